# SPDX-License-Identifier: GPL-2.0
"""
Namespace tests: the real tc, the real module and real sockets in a guest.

    scripts/testbed/uml --virtual-time -- /usr/bin/python3 -m pytest tests/netns/virtual
    scripts/testbed/uml                -- /usr/bin/python3 -m pytest tests/netns/native

virtual/ holds what is exact there: while a test runs, no time passes; it passes
when the test sleeps, and then nothing but the links takes any. native/ holds what
needs timers and senders that interrupt each other; it also runs on stock kernels
with two processors, in scripts/testbed/vm. With $MERCURY_RESULTS set, the results
are written there as netns-virtual.xml or netns-native.xml (JUnit).

No test compares times of the machine. Random tests print their seed; it can be
given in MERCURY_SEED (scripts/testbed/uml -- env MERCURY_SEED=7 ...).
"""

from __future__ import annotations

import os
import pathlib
import random
import resource
import time
from collections.abc import Callable, Iterator

import pytest

from lib import kernel
from lib.fixtures import quiet_kernel, wire  # noqa: F401 (pytest finds them here)
from lib.netns import Pair

_MODE = "virtual" if kernel.has_virtual_time() else "native"


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    results = os.environ.get("MERCURY_RESULTS")
    if results and not config.option.xmlpath:
        config.option.xmlpath = os.path.join(results, f"netns-{_MODE}.xml")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        mode = item.path.parent.name
        if mode != _MODE:
            raise pytest.UsageError(f"{item.path} needs a kernel with {mode} time: see conftest.py")


def pytest_sessionstart() -> None:
    if not kernel.is_loaded():
        raise pytest.UsageError("sch_mercury is not loaded: run this with scripts/testbed/uml")
    # A kernel with virtual time has coarse timers until its first clock tick.
    time.sleep(0.1)
    resource.setrlimit(resource.RLIMIT_NOFILE, (65536, 65536))
    pathlib.Path("/proc/sys/net/core/netdev_max_backlog").write_text("1000000\n")


@pytest.fixture
def make_pair() -> Iterator[Callable[..., Pair]]:
    """Pairs of namespaces, see lib.netns.Pair; they go away with the test."""
    pairs: list[Pair] = []

    def make(**options: object) -> Pair:
        pairs.append(Pair(**options))
        return pairs[-1]

    yield make
    for pair in pairs:
        pair.delete()


@pytest.fixture
def pair(make_pair: Callable[..., Pair]) -> Pair:
    return make_pair()


@pytest.fixture
def rng() -> random.Random:
    seed = int(os.environ.get("MERCURY_SEED", random.SystemRandom().randrange(1 << 32)))
    print(f"MERCURY_SEED={seed}")
    return random.Random(seed)
