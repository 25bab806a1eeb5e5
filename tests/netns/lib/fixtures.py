# SPDX-License-Identifier: GPL-2.0
"""Fixtures of every suite that runs in a guest; a conftest.py imports those that it wants."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from . import kernel
from .capture import Capture
from .netns import Pair


@pytest.fixture(autouse=True)
def quiet_kernel() -> Iterator[kernel.Log]:
    """No test may make the kernel complain, but about what it says in `expected`."""
    log = kernel.Log()
    yield log
    complaints = log.complaints()
    log.close()
    assert not complaints, "\n".join(complaints)


@pytest.fixture
def wire(pair: Pair) -> Iterator[Capture]:
    """What arrives at the other end of the link."""
    capture = Capture(pair.b)
    yield capture
    capture.close()
