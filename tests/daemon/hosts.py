# SPDX-License-Identifier: GPL-2.0
"""Two hosts, the first of which has a daemon: fixtures for whoever tests with the real mercuryd."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest

from lib.netns import Pair

from daemon import Daemon


@pytest.fixture
def pair() -> Iterator[Pair]:
    pair = Pair()
    yield pair
    pair.delete()


@pytest.fixture
def daemon(pair: Pair, tmp_path: pathlib.Path) -> Iterator[Daemon]:
    """Runs in the namespace that sends, and owns its device."""
    daemon = Daemon(pair.a, tmp_path)
    daemon.start()
    yield daemon
    daemon.stop()
