# SPDX-License-Identifier: GPL-2.0
"""
A training job between two hosts with the real module and the real daemon.

    scripts/testbed/uml -- /usr/bin/python3 -m pytest tests/torch/network
"""

from __future__ import annotations

import pytest

from lib import kernel
from lib.fixtures import quiet_kernel  # noqa: F401 (pytest finds it here)

from hosts import daemon, pair  # noqa: F401


def pytest_sessionstart() -> None:
    if not kernel.is_loaded():
        raise pytest.UsageError("sch_mercury is not loaded: run this with scripts/testbed/uml")
