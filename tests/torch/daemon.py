# SPDX-License-Identifier: GPL-2.0
"""mercuryd as a process, and one that says what a test tells it to."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable

_TREE = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("MERCURY_BUILD", _TREE / "build/userspace"))
NOWHERE = "/nowhere/hints.sock"


def eventually(condition: Callable[[], bool], what: str, limit: float = 60) -> None:
    """Wait until it is so; it always is, unless something is broken."""
    end = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < end, f"never: {what}"
        time.sleep(0.02)


class Daemon:
    def __init__(self, folder: pathlib.Path) -> None:
        self.socket = str(folder / "hints.sock")
        self._config = folder / "mercuryd.toml"
        self._config.write_text(f'[hints]\nsocket = "{self.socket}"\n')
        self._log = folder / "mercuryd.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        before = self.log().count("ready")
        with self._log.open("ab") as log:
            words = [BUILD / "daemon/mercuryd", "--config", self._config]
            self._process = subprocess.Popen(words, stderr=log)
        eventually(lambda: self.log().count("ready") > before, "mercuryd is ready")

    def _end(self, number: signal.Signals) -> int:
        if self._process is None:
            return 0
        self._process.send_signal(number)
        status = self._process.wait(60)
        self._process = None
        return status

    def kill(self) -> None:
        """As if by the kernel: it has no time for anything."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        assert self._end(signal.SIGTERM) == 0, self.log()

    def log(self) -> str:
        return self._log.read_text() if self._log.exists() else ""

    def status(self) -> dict:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
            client.settimeout(60)
            client.connect(self.socket)
            for request in ({"type": "hello", "version": 1, "client": "test"}, {"type": "status"}):
                client.send(json.dumps(request).encode())
                answer = json.loads(client.recv(1 << 17))
            return answer


class Puppet:
    """Takes one client, and answers each message with what ANSWER makes of it; None: not at all."""

    def __init__(self, path: pathlib.Path, answer: Callable[[dict], object]) -> None:
        self.heard: list[dict] = []
        self.socket = str(path)
        self._answer = answer
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(self.socket)
        self._listener.listen(1)
        self._client: socket.socket | None = None
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        self._client, _ = self._listener.accept()
        with contextlib.suppress(ConnectionError):  # the client goes when it likes
            while packet := self._client.recv(1 << 17):
                self.heard.append(json.loads(packet))
                said = self._answer(self.heard[-1])
                if said is not None:
                    self.say(said)

    def say(self, answer: object) -> None:
        assert self._client is not None
        self._client.send(answer if isinstance(answer, bytes) else json.dumps(answer).encode())

    def close(self) -> None:
        self._listener.close()
