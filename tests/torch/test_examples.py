# SPDX-License-Identifier: GPL-2.0
"""The examples do what they say, started as their users start them."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

import pytest

from daemon import BUILD, Daemon
from server import LIBRARY, Server

PACKAGE = pathlib.Path(__file__).resolve().parents[2] / "userspace/python"
EXAMPLES = PACKAGE / "examples"


def start(daemon: str, *words: str | pathlib.Path) -> str:
    environment = {
        **os.environ, "PYTHONPATH": str(PACKAGE), "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1",
        "MERCURY_SOCKET": daemon, "MERCURY_TRANSPORT_LIBRARY": str(LIBRARY),
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, *map(str, words)], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def train(daemon: str, script: str, *words: str | pathlib.Path) -> str:
    launcher = ("-m", "mercury.run", "--nproc_per_node", "2", "--master_port", "29400", "--")
    return start(daemon, *launcher, EXAMPLES / script, *words)


def last_accuracy(said: str) -> float:
    return float(re.findall(r"accuracy (\S+)", said)[-1])


def test_ddp(daemon: Daemon) -> None:
    said = train(daemon.socket, "train_ddp.py", "--epochs", "2")
    assert "connected=True" in said
    assert last_accuracy(said) > 0.6  # by chance it is 1/3


def test_cross_iteration_goes_on_from_its_checkpoint(daemon: Daemon, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "shapes.pt"
    whole = train(daemon.socket, "train_cross.py", "--epochs", "2")
    parts = train(daemon.socket, "train_cross.py", "--epochs", "1", "--checkpoint", file)
    parts += train(daemon.socket, "train_cross.py", "--epochs", "2", "--checkpoint", file)
    epochs = re.compile(r"^epoch.*$", re.M)
    assert epochs.findall(whole) == epochs.findall(parts)
    assert last_accuracy(whole) > 0.6  # by chance it is 1/3


def test_push_pull() -> None:
    server = Server()
    said = train("/nowhere", "train_push_pull.py", "--epochs", "2", server.address)
    server.kill()
    assert last_accuracy(said) > 0.6


def test_profile(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "shapes.csv"
    start("/nowhere", EXAMPLES / "profile_model.py", file)
    planned = subprocess.check_output([BUILD / "cli/mercuryctl", "plan", file], text=True)
    assert "12" in planned


def test_a_script_that_fails_fails(tmp_path: pathlib.Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("raise SystemExit(3)")
    with pytest.raises(AssertionError, match="FAILED"):
        start("/nowhere", "-m", "mercury.run", "--nproc_per_node", "1", "--master_port", "29400", "--", script)
