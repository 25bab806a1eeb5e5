# SPDX-License-Identifier: GPL-2.0
"""
mercuryd from end to end: the real module, the real daemon without root's privileges, and
training programs without any.

    scripts/testbed/uml -- /usr/bin/python3 -m pytest tests/daemon

MERCURY_BUILD is the folder with mercuryd and libmercury (build/userspace).
"""

from __future__ import annotations

import pathlib
import resource
from collections.abc import Callable, Iterator

import pytest

from lib import kernel
from lib.fixtures import quiet_kernel, wire  # noqa: F401 (pytest finds them here)
from lib.netns import Pair

from hosts import daemon, pair  # noqa: F401
from trainer import Trainer


def pytest_sessionstart() -> None:
    if not kernel.is_loaded():
        raise pytest.UsageError("sch_mercury is not loaded: run this with scripts/testbed/uml")
    resource.setrlimit(resource.RLIMIT_NOFILE, (65536, 65536))


@pytest.fixture
def make_trainer(pair: Pair, tmp_path: pathlib.Path) -> Iterator[Callable[..., Trainer]]:
    trainers: list[Trainer] = []

    def make(socket: str, **options: object) -> Trainer:
        trainers.append(Trainer(pair, socket, **options))
        return trainers[-1]

    yield make
    for trainer in trainers:
        trainer.end()
