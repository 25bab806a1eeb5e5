# SPDX-License-Identifier: GPL-2.0
"""replay, whose connections mercuryd marks, or it itself: the result is the same."""

from __future__ import annotations

import json
import pathlib
import subprocess
import time
from collections.abc import Iterator

import pytest

BUILD = pathlib.Path(__file__).resolve().parents[3] / "build/userspace"
REPLAY = BUILD / "replay/replay"
# The last layer is ready first, and needed last.
PROFILE = """idx,layer,fwd_ms,bwd_ms,param_bytes
0,first,1,1,4000000
1,second,1,1,8000000
2,third,1,1,16000000
"""
EXPERIMENT = """
title = "Two hosts with a daemon"
description = "As small as can be."
[network]
hosts = 2
[job]
model = "{profile}"
hosts = "0-1"
placement = "colocated"
strategy = "mercury hints={hints}"
[run]
warm_up = 0
iterations = 1
repeats = 1
"""


class Daemon:
    def __init__(self, folder: pathlib.Path) -> None:
        self.socket = folder / "hints.sock"
        config = folder / "mercuryd.toml"
        config.write_text(f'[hints]\nsocket = "{self.socket}"\n')
        words = [BUILD / "daemon/mercuryd", "--config", config]
        self._process = subprocess.Popen(words, stderr=subprocess.PIPE)
        while not self.socket.exists():
            assert self._process.poll() is None, self._process.communicate()
            time.sleep(0.1)

    def sockets(self) -> int:
        words = [BUILD / "cli/mercuryctl", "status", "--json"]
        said = subprocess.check_output(words, env={"MERCURY_SOCKET": str(self.socket)})
        return json.loads(said)["daemon"]["sockets"]

    def end(self) -> None:
        self._process.terminate()
        self._process.communicate()


@pytest.fixture
def daemon(tmp_path: pathlib.Path) -> Iterator[Daemon]:
    made = Daemon(tmp_path)
    yield made
    made.end()


@pytest.fixture
def profile(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "profile.csv"
    path.write_text(PROFILE)
    return path


def demo(profile: pathlib.Path, *words: object) -> float:
    result = profile.with_name("demo.json")
    options = ["--arms", "mercury", "--iterations", "1", "--json", result]
    subprocess.run([REPLAY, "demo", profile, *options, *words], check=True, capture_output=True)
    return json.loads(result.read_text())["iteration_ms"]["mercury"]


def test_the_demo_is_the_same_with_a_daemon(daemon: Daemon, profile: pathlib.Path) -> None:
    alone = demo(profile)
    assert daemon.sockets() == 0
    assert demo(profile, "--hints", daemon.socket) == pytest.approx(alone, rel=0.02)
    # Each of six connections, and the measurement's two, from both ends.
    assert daemon.sockets() == 2 * (6 + 2)


def test_the_cluster_can_have_a_daemon(daemon: Daemon, profile: pathlib.Path) -> None:
    experiment = profile.with_name("experiment.toml")
    experiment.write_text(EXPERIMENT.format(profile=profile, hints=daemon.socket))
    words = [REPLAY, "cluster", experiment, "--json", profile.with_name("out.json")]
    subprocess.run(words, check=True, capture_output=True)
    # Two workers, each with a connection for control and six for classes to each of two servers,
    # which send on three.
    assert daemon.sockets() == 2 * 2 * (7 + 3)


@pytest.mark.parametrize("command", ["demo", "cluster"])
def test_a_daemon_that_is_not_there_is_an_error(profile: pathlib.Path, command: str) -> None:
    experiment = profile.with_name("experiment.toml")
    experiment.write_text(EXPERIMENT.format(profile=profile, hints="/nowhere/hints.sock"))
    words = {
        "demo": [profile, "--hints", "/nowhere/hints.sock"],
        "cluster": [experiment, "--json", profile.with_name("out.json")],
    }
    done = subprocess.run([REPLAY, command, *words[command]], capture_output=True, text=True)
    assert done.returncode != 0
    assert "no daemon at /nowhere/hints.sock: No such file or directory" in done.stderr + done.stdout
