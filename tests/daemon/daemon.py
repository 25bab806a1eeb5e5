# SPDX-License-Identifier: GPL-2.0
"""mercuryd as a process of an unprivileged user with a few capabilities, in a network namespace."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import socket
import subprocess
import time
from collections.abc import Callable

from lib.netns import Namespace

_TREE = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("MERCURY_BUILD", _TREE / "build/userspace"))
USER = 64001


def eventually(condition: Callable[[], bool], what: str, limit: float = 30) -> None:
    """Wait until it is so; it always is, unless something is broken."""
    end = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < end, f"never: {what}"
        time.sleep(0.02)


class Daemon:
    def __init__(self, ns: Namespace, folder: pathlib.Path) -> None:
        self._ns = ns
        self.capabilities = ["net_admin"]
        self.hints = ""  # more lines of [hints]
        folder.chmod(0o711)
        for above in folder.parents[:2]:  # pytest's, which are its user's alone
            above.chmod(0o711)
        own = folder / "mercuryd"
        own.mkdir()
        os.chown(own, USER, USER)
        own.chmod(0o755)
        self.socket = str(own / "hints.sock")
        self._config = own / "mercuryd.toml"
        self._log = folder / "mercuryd.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.configure('[[device]]\nname = "eth0"\nrate = "100mbit"\nrescue = 0\n')

    def configure(self, text: str) -> None:
        self._config.write_text(f'[hints]\nsocket = "{self.socket}"\n{self.hints}{text}')

    def start(self) -> None:
        words = ["ip", "netns", "exec", self._ns.name, "setpriv", "--reuid", str(USER)]
        words += ["--regid", str(USER), "--clear-groups", "--no-new-privs"]
        only = "-all," + ",".join(f"+{name}" for name in self.capabilities)
        words += ["--inh-caps", only, "--ambient-caps", only, "--bounding-set", only]
        words += [str(BUILD / "daemon/mercuryd"), "--config", str(self._config)]
        with self._log.open("ab") as log:
            before = self.log().count("ready")
            self._process = subprocess.Popen(words, stderr=log)
        eventually(lambda: self.log().count("ready") > before, "mercuryd is ready")
        eventually(lambda: self._owns_device(), "its device has its qdisc")

    def _owns_device(self) -> bool:
        devices = self.status()["devices"]
        return any(d["managed"] and d["qdiscs"] >= 1 and not d["problem"] for d in devices)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """As if by the kernel: it has no time for anything."""
        self._signal(signal.SIGKILL)
        assert self._process is not None
        self._process.wait()
        self._process = None

    def stop(self) -> None:
        if self._process is None:
            return
        self._signal(signal.SIGTERM)
        assert self._process.wait(30) == 0, self.log()
        self._process = None

    def reload(self) -> str:
        """What it logged about it."""
        before = self.log()
        self._signal(signal.SIGHUP)
        said = ("has been read again", "the old configuration stays")
        eventually(
            lambda: any(one in self.log()[len(before) :] for one in said), "it has been reloaded"
        )
        return self.log()[len(before) :]

    def log(self) -> str:
        return self._log.read_text() if self._log.exists() else ""

    def status(self) -> dict:
        """As root sees it."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
            client.settimeout(30)
            client.connect(self.socket)
            for request in ({"type": "hello", "version": 1, "client": "test"}, {"type": "status"}):
                client.send(json.dumps(request).encode())
                answer = json.loads(client.recv(1 << 17))
            return answer
