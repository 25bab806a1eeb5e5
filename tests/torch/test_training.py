# SPDX-License-Identifier: GPL-2.0
"""Every way of use gives the weights of plain DDP."""

from __future__ import annotations

import numpy
import pytest

import scenarios
from daemon import Daemon
from ranks import run

STEPS = 50


def assert_same(found: dict, expected: dict, what: str) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert numpy.array_equal(found[name], value), f"{what}: {name}"


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_the_hook_changes_no_bit(daemon: Daemon, ranks: int, optimizer: str) -> None:
    plain = run(ranks, scenarios.train_ddp, "Attention", optimizer, STEPS, False)
    hooked = run(ranks, scenarios.train_ddp, "Attention", optimizer, STEPS, True, daemon=daemon.socket)
    for rank in range(ranks):
        assert_same(hooked[rank], plain[rank], f"rank {rank}")
    moved = scenarios.weights(scenarios.make("Attention"))
    assert not numpy.array_equal(plain[0]["head.weight"], moved["head.weight"])


def assert_close(found: dict, expected: dict, what: str) -> None:
    """
    Four terms are added up in the order of a ring, which starts at another rank for each part of a
    tensor, and DDP's buckets are other tensors than ours.
    """
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        numpy.testing.assert_allclose(found[name], value, 1e-4, 1e-5, err_msg=f"{what}: {name}")


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
@pytest.mark.parametrize("model", ["Plain", "Shared", "Attention", "Recurrent"])
def test_the_next_forward_pass_may_begin_early(daemon: Daemon, model: str, optimizer: str) -> None:
    """Two terms have one sum: no bit may differ."""
    plain = run(2, scenarios.train, False, model, optimizer, STEPS)
    cross = run(2, scenarios.train, True, model, optimizer, STEPS, daemon=daemon.socket)
    for rank in range(2):
        assert_same(cross[rank], plain[rank], f"rank {rank}")


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_the_same_with_four_ranks(daemon: Daemon, optimizer: str) -> None:
    plain = run(4, scenarios.train, False, "Recurrent", optimizer, STEPS)
    cross = run(4, scenarios.train, True, "Recurrent", optimizer, STEPS, daemon=daemon.socket)
    for rank in range(4):
        assert_close(cross[rank], plain[rank], f"rank {rank}")
        assert_same(cross[rank], cross[0], f"rank {rank}")


@pytest.mark.parametrize("optimizer", ["Adam", "RMSprop", "Adagrad", "NAdam"])
def test_other_optimizers(optimizer: str) -> None:
    plain = run(2, scenarios.train, False, "Attention", optimizer, 10)
    cross = run(2, scenarios.train, True, "Attention", optimizer, 10)
    assert_same(cross[0], plain[0], optimizer)


@pytest.mark.parametrize(
    "what",
    [name.removeprefix("_train_") for name in vars(scenarios) if name.startswith("_train_")],
)
def test_however_the_loop_is_written(what: str) -> None:
    plain = run(2, scenarios.train_with, False, what)
    cross = run(2, scenarios.train_with, True, what)
    for rank in range(2):
        assert_same(cross[rank], plain[rank], f"rank {rank}")
