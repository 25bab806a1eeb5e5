# SPDX-License-Identifier: GPL-2.0
"""mercury-server as a process."""

from __future__ import annotations

import itertools
import subprocess

from daemon import BUILD

LIBRARY = BUILD / "transport/libmercury_transport.so"
_ports = itertools.count(7700)


class Server:
    def __init__(self) -> None:
        self.address = f"127.0.0.1:{next(_ports)}"
        self._process = subprocess.Popen(
            [BUILD / "transport/mercury-server", "--listen", self.address],
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        for line in self._process.stderr:
            if "listening at" in line:
                return
        raise AssertionError(f"mercury-server ended with {self._process.wait()}")

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._process.stderr.close()
