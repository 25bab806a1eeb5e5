# SPDX-License-Identifier: GPL-2.0
"""Sockets of the job, and of nothing else, are passed in the class of their layers."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Iterator

import pytest
import torch

import scenarios
from daemon import NOWHERE, Daemon
from mercury.torch import Scheduler
from models import Plain
from ranks import Failed, run


@pytest.fixture
def server() -> Iterator[tuple[str, int]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()


@pytest.mark.parametrize("ranks", [2, 4])
def test_each_class_has_its_sockets(daemon: Daemon, server: tuple[str, int], ranks: int) -> None:
    for rank, seen in enumerate(run(ranks, scenarios.schedule, server, 4, daemon=daemon.socket)):
        classes = seen["classes"]
        assert len(classes) == 4
        marks = Counter(mark for mark, _, _ in seen["sockets"])
        for index in range(1, 4):
            assert marks[1 << 16 | index + 1] == ranks - 1, f"class {index}"
        # The first class also has what coordinates the ranks, and nothing is left out.
        assert marks[1 << 16 | 1] > ranks - 1
        assert set(marks) == {1 << 16 | index + 1 for index in range(4)}
        for mark, priority, lowat in seen["sockets"]:
            assert (priority, lowat) == (mark & 0xFFFF, 128 << 10)
        assert seen["stranger"][:2] == (0, 0)
        count = len(seen["sockets"])
        assert seen["status"] == (True, 1, count, count, "")


def test_without_a_daemon_sockets_have_priorities(server: tuple[str, int]) -> None:
    for seen in run(2, scenarios.schedule, server, 8):
        assert {mark for mark, _, _ in seen["sockets"]} == {0}
        priorities = {priority for _, priority, _ in seen["sockets"]}
        assert priorities == {min(i + 1, 6) for i in range(len(seen["classes"]))}
        assert seen["stranger"][:2] == (0, 0)
        connected, _, sockets, marked, why = seen["status"]
        assert (connected, marked) == (False, 0) and sockets == len(seen["sockets"])
        assert NOWHERE in why


def test_a_group_of_a_class_uses_its_sockets_only(daemon: Daemon) -> None:
    for rows in run(2, scenarios.carry, daemon=daemon.socket):
        assert rows == [[index + 1] for index in range(len(rows))]
        assert len(rows) == 4


@pytest.mark.parametrize("what", ["model", "classes"])
def test_ranks_that_disagree_are_told(what: str) -> None:
    with pytest.raises(Failed, match="rank 1 and rank 0 have different models"):
        run(2, scenarios.disagree, what)


def test_it_comes_after_init_process_group() -> None:
    with pytest.raises(RuntimeError, match="init_process_group"):
        Scheduler(Plain(), torch.zeros(4, 8))
