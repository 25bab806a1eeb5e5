# SPDX-License-Identifier: GPL-2.0
"""
The Python package, with the real mercuryd and mercury-server, in a network namespace of its own.

    cmake --build build/userspace --target mercuryd mercuryctl mercury-server mercury_transport
    /usr/bin/python3 -m pytest tests/torch

Needs root, for the namespace and for mercuryd. MERCURY_BUILD is the folder with the programs
(build/userspace).
"""

from __future__ import annotations

import ctypes
import os
import pathlib
import subprocess
from collections.abc import Iterator

import pytest

from daemon import BUILD, Daemon

collect_ignore = ["network"]  # which wants a guest
_CLONE_NEWNET = 0x40000000


def pytest_sessionstart() -> None:
    if not (BUILD / "daemon/mercuryd").exists():
        raise pytest.UsageError(f"there is no {BUILD}/daemon/mercuryd: see tests/torch/conftest.py")
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET):
        raise pytest.UsageError(f"no network namespace: {os.strerror(ctypes.get_errno())}")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    # Not bbr, which would pace what the loopback device carries.
    pathlib.Path("/proc/sys/net/ipv4/tcp_congestion_control").write_text("reno")


@pytest.fixture
def daemon(tmp_path: pathlib.Path) -> Iterator[Daemon]:
    daemon = Daemon(tmp_path)
    daemon.start()
    yield daemon
    daemon.stop()
