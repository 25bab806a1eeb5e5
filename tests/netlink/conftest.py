# SPDX-License-Identifier: GPL-2.0
"""
What sch_mercury answers to netlink messages that tc would never send.

    scripts/testbed/uml -- /usr/bin/python3 -m pytest tests/netlink

With $MERCURY_RESULTS set, the results are written there as netlink.xml (JUnit).
"""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import rtnl

DEVICE = "hostile0"


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    results = os.environ.get("MERCURY_RESULTS")
    if results and not config.option.xmlpath:
        config.option.xmlpath = os.path.join(results, "netlink.xml")


def pytest_sessionstart() -> None:
    if "sch_mercury" not in Path("/proc/modules").read_text():
        raise pytest.UsageError("sch_mercury is not loaded: run this with scripts/testbed/uml")


@pytest.fixture(autouse=True)
def quiet_kernel() -> Iterator[None]:
    """No message may make the kernel complain."""
    log = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    os.lseek(log, 0, os.SEEK_END)
    yield
    lines = []
    try:
        while True:
            lines.append(os.read(log, 8192).decode(errors="replace"))
    except BlockingIOError:
        os.close(log)
    bad = ("WARNING:", "BUG:", "Oops", "Call Trace", "KASAN", "UBSAN", "refcount_t", "stall")
    assert not [line for line in lines if any(word in line for word in bad)]


@pytest.fixture
def route() -> Iterator[rtnl.Route]:
    with rtnl.Route() as opened:
        yield opened


@pytest.fixture
def device() -> Iterator[int]:
    """The index of a device of its own, without a qdisc."""
    subprocess.run(["ip", "link", "add", DEVICE, "type", "dummy"], check=True)
    yield socket.if_nametoindex(DEVICE)
    subprocess.run(["ip", "link", "del", DEVICE], check=True)
