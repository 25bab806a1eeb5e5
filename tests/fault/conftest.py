# SPDX-License-Identifier: GPL-2.0
"""
What sch_mercury does when an allocation fails: each of each request in turn.

    scripts/testbed/debug faults
    scripts/testbed/uml --kernel debug -- /usr/bin/python3 -m pytest tests/fault

The kernel lets the n-th allocation of a thread fail that asks for it in
/proc/thread-self/fail-nth; it must be one with CONFIG_FAULT_INJECTION.
"""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import rtnl

_DEBUG = Path("/sys/kernel/debug")
_SETTINGS = {
    # Allocations that may sleep fail as well, and nothing is said about it.
    "failslab/ignore-gfp-wait": "N",
    "failslab/verbose": "0",
    "fail_page_alloc/ignore-gfp-wait": "N",
    "fail_page_alloc/verbose": "0",
    # Not those of a page: they are also what this program's own memory is made of.
    "fail_page_alloc/min-order": "1",
}
DEVICE = "fault0"


def pytest_sessionstart() -> None:
    if not Path("/proc/thread-self/fail-nth").exists():
        raise pytest.UsageError("this needs a kernel with fault injection: see conftest.py")
    for name, value in _SETTINGS.items():
        (_DEBUG / name).write_text(value)


class Faults:
    """Makes the n-th allocation of what this thread does next fail."""

    def __init__(self) -> None:
        self._fd = os.open("/proc/thread-self/fail-nth", os.O_RDWR)

    def arm(self, n: int) -> None:
        os.pwrite(self._fd, b"%d" % n, 0)

    def disarm(self) -> bool:
        """True: there was an allocation that failed."""
        left = int(os.pread(self._fd, 16, 0))
        os.pwrite(self._fd, b"0", 0)
        return left == 0

    def close(self) -> None:
        os.close(self._fd)


@pytest.fixture
def faults() -> Iterator[Faults]:
    opened = Faults()
    yield opened
    opened.close()


@pytest.fixture
def route() -> Iterator[rtnl.Route]:
    with rtnl.Route() as opened:
        yield opened


@pytest.fixture
def device() -> Iterator[int]:
    """The index of a device that is up, without a qdisc of its own."""
    subprocess.run(["ip", "link", "add", DEVICE, "type", "dummy"], check=True)
    subprocess.run(["ip", "link", "set", DEVICE, "up"], check=True)
    yield socket.if_nametoindex(DEVICE)
    subprocess.run(["ip", "link", "del", DEVICE], check=True)


@pytest.fixture
def pass_packets(device: int) -> Iterator[Callable[[], None]]:
    """Sends packets through the device, marked and not: what is left of it works."""
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    opened.bind((DEVICE, 0x0800))

    def send() -> None:
        for mark in (0, 1, 2, 0x10040):
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, mark)
            for _ in range(3):
                opened.send(bytes(100))

    yield send
    opened.close()
