# SPDX-License-Identifier: GPL-2.0
"""From the example of docs/pytorch.md to the bands of the qdisc."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

from lib import tc
from lib.netns import Namespace, Pair

from daemon import BUILD, Daemon

PACKAGE = pathlib.Path(__file__).resolve().parents[3] / "userspace/python"


def start(host: Namespace, rank: int, daemon: str) -> subprocess.Popen[str]:
    environment = {
        **os.environ, "PYTHONPATH": str(PACKAGE), "PYTHONDONTWRITEBYTECODE": "1", "MERCURY_SOCKET": daemon,
        "GLOO_SOCKET_IFNAME": "eth0", "MASTER_ADDR": Pair.A4, "MASTER_PORT": "29500",
        "RANK": str(rank), "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    script = PACKAGE / "examples/train_cross.py"
    words = ["ip", "netns", "exec", host.name, sys.executable, str(script), "--epochs", "1"]
    return subprocess.Popen(
        words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def test_layers_travel_in_their_bands(pair: Pair, daemon: Daemon) -> None:
    ranks = [start(pair.a, 0, daemon.socket), start(pair.b, 1, "/nowhere")]
    said = [process.communicate(timeout=600)[0] for process in ranks]
    assert [process.returncode for process in ranks] == [0, 0], "\n".join(said)
    assert "connected=True, job=1, classes=5" in said[0]
    words = ["ip", "netns", "exec", pair.a.name, str(BUILD / "cli/mercuryctl"), "stats", "--json"]
    (qdisc,) = json.loads(subprocess.check_output(words))["devices"][0]["qdiscs"]
    sent = {one["classid"]: one["bytes"] for one in qdisc["classes"]}
    bands = [sent[tc.band(1, index)] for index in range(5)]
    # The fourth class is the large fully connected layer, most of the model.
    assert max(bands) == bands[3] > sum(bands) / 2
    # Nothing of the job but its first packets has no mark.
    assert sum(bands) > 0.99 * qdisc["bytes"]
