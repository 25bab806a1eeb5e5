# SPDX-License-Identifier: GPL-2.0
"""mercuryd and its service manager: its units, socket activation, sd_notify(3) and the watchdog."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator

import pytest

_TREE = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("MERCURY_BUILD", _TREE / "build/userspace"))
MERCURYD = BUILD / "daemon/mercuryd"
PATIENCE = 30  # seconds, for what takes milliseconds
EXPOSURE_MAX = 2.0  # of 10


def needs(tool: str) -> None:
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not there: the package systemd is not installed")


@pytest.fixture
def units(tmp_path: pathlib.Path) -> list[pathlib.Path]:
    """As they are installed, but for where the program is."""
    service = tmp_path / "mercuryd.service"
    text = (BUILD / "daemon/mercuryd.service").read_text()
    service.write_text(re.sub(r"^ExecStart=\S+", f"ExecStart={MERCURYD}", text, flags=re.M))
    socket_unit = tmp_path / "mercuryd.socket"
    socket_unit.write_text((_TREE / "packaging/mercuryd.socket").read_text())
    return [service, socket_unit]


def test_systemd_understands_the_units(units: list[pathlib.Path]) -> None:
    needs("systemd-analyze")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *units], capture_output=True, text=True
    )
    ours = [line for line in done.stderr.splitlines() if "mercury" in line]
    assert (done.returncode, ours) == (0, [])


def test_the_service_is_exposed_to_little(units: list[pathlib.Path]) -> None:
    needs("systemd-analyze")
    words = ["systemd-analyze", "security", "--offline=true", "--no-pager", units[0]]
    said = subprocess.run(words, capture_output=True, text=True).stdout
    found = re.search(r"Overall exposure level for mercuryd.service: ([0-9.]+)", said)
    assert found is not None, said
    assert float(found[1]) <= EXPOSURE_MAX


def hello(path: pathlib.Path) -> dict:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
        client.settimeout(PATIENCE)
        client.connect(str(path))
        client.send(b'{"type":"hello","version":1,"client":"test"}')
        return json.loads(client.recv(1 << 17))


def eventually(path: pathlib.Path) -> None:
    end = time.monotonic() + PATIENCE
    while not path.exists():
        assert time.monotonic() < end, f"{path} never appears"
        time.sleep(0.02)


def test_the_first_client_starts_it(tmp_path: pathlib.Path) -> None:
    needs("systemd-socket-activate")
    path = tmp_path / "hints.sock"
    empty = tmp_path / "mercuryd.toml"
    empty.write_text("")
    words = ["systemd-socket-activate", "--seqpacket", "-l", path, MERCURYD, "--config", empty]
    process = subprocess.Popen(words, stderr=subprocess.DEVNULL)
    try:
        eventually(path)
        assert hello(path)["type"] == "hello"
        assert hello(path)["type"] == "hello"
        process.send_signal(signal.SIGTERM)  # it has become mercuryd
        assert process.wait(PATIENCE) == 0
        assert path.exists(), "a socket of the service manager stays"
    finally:
        process.kill()
        process.wait()


class Manager:
    """Hears what mercuryd tells its service manager."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(folder / "notify"))
        self._socket.settimeout(PATIENCE)
        self._config = folder / "mercuryd.toml"
        self.configure("")
        environment = os.environ | {
            "NOTIFY_SOCKET": str(folder / "notify"),
            "WATCHDOG_USEC": "200000",
        }
        self._path = folder / "hints.sock"
        self.configure("")
        words = [MERCURYD, "--config", self._config]
        self.process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=environment)

    def configure(self, text: str) -> None:
        self._config.write_text(f'[hints]\nsocket = "{self._config.parent}/hints.sock"\n{text}')

    def next(self, but: str = "WATCHDOG=1") -> str:
        while (said := self._socket.recv(4096).decode()) == but:
            pass
        return said

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()
        self._socket.close()


@pytest.fixture
def manager(tmp_path: pathlib.Path) -> Iterator[Manager]:
    manager = Manager(tmp_path)
    yield manager
    manager.close()


def test_it_tells_when_it_is_ready_reloading_and_stopping(manager: Manager) -> None:
    assert manager.next() == "READY=1"
    for text in ("", "[nonsense]\n"):
        manager.configure(text)
        manager.process.send_signal(signal.SIGHUP)
        assert re.fullmatch(r"RELOADING=1\nMONOTONIC_USEC=\d+", manager.next())
        assert manager.next() == "READY=1"
    manager.process.send_signal(signal.SIGTERM)
    assert manager.next() == "STOPPING=1"
    assert manager.process.wait(PATIENCE) == 0


def test_it_feeds_the_watchdog_for_as_long_as_it_works(manager: Manager) -> None:
    assert manager.next() == "READY=1"
    for _ in range(3):
        assert manager.next(but="READY=1") == "WATCHDOG=1"
    manager.process.send_signal(signal.SIGSTOP)
    manager._socket.settimeout(1)
    with pytest.raises(TimeoutError):  # five times its time
        while True:
            manager.next(but="WATCHDOG=1")
    manager.process.send_signal(signal.SIGCONT)
    manager._socket.settimeout(PATIENCE)
    assert manager.next(but="") == "WATCHDOG=1"
