# SPDX-License-Identifier: GPL-2.0
"""
A training job between two hosts with the real module and the real daemon.

    scripts/testbed/uml -- /usr/bin/python3 -m pytest tests/torch/network
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest

from lib import kernel
from lib.fixtures import quiet_kernel  # noqa: F401 (pytest finds it here)
from lib.netns import Pair

from daemon import Daemon


def pytest_sessionstart() -> None:
    if not kernel.is_loaded():
        raise pytest.UsageError("sch_mercury is not loaded: run this with scripts/testbed/uml")


@pytest.fixture
def pair() -> Iterator[Pair]:
    pair = Pair()
    yield pair
    pair.delete()


@pytest.fixture
def daemon(pair: Pair, tmp_path: pathlib.Path) -> Iterator[Daemon]:
    """On the first host, whose device it owns."""
    daemon = Daemon(pair.a, tmp_path)
    daemon.start()
    yield daemon
    daemon.stop()
