# SPDX-License-Identifier: GPL-2.0
"""What would differ from plain DDP, or hang, ends with an error that says what to do."""

from __future__ import annotations

import pytest

import scenarios
from daemon import Daemon, eventually
from ranks import Failed, Job, run


@pytest.mark.parametrize(
    ("what", "error"),
    [
        ("closure", "takes no closure"),
        ("lbfgs", "LBFGS may update a parameter from more than its own"),
        ("not_optimized", "last.weight is trained, but the optimizer does not have it"),
        ("stranger", "the optimizer has a parameter that is not the model's"),
        ("add_group", "knows the parameters that the optimizer had"),
        ("clip_by_hand", "this gradient is being reduced.*wait_for_gradients"),
        ("scale_by_hand", "this gradient is being reduced.*wait_for_gradients"),
        ("twice", "a second backward pass before step"),
        ("no_gradient", "has no gradient for never.weight, never.bias.*find_unused_parameters"),
        ("other_way", "last.weight was used by the forward pass before it was updated"),
        ("interrupted", "the last backward pass ended with an exception"),
        ("sparse", "the gradient of embed.weight is sparse"),
        ("bad_clip", "clip_value must be above 0, not 0"),
    ],
)
def test_it_is_refused(what: str, error: str) -> None:
    with pytest.raises(Failed, match=error):
        run(2, scenarios.refused, what)


@pytest.mark.parametrize("way", ["ddp", "cross"])
@pytest.mark.parametrize("ranks", [2, 4])
def test_a_rank_that_is_killed_ends_the_others(daemon: Daemon, ranks: int, way: str) -> None:
    job = Job(ranks, scenarios.train_until_killed, way, daemon=daemon.socket)
    for rank in range(ranks):
        assert job.hear(rank) == "training"
    job.kill(1)
    for rank in range(ranks):
        what, why = job.outcome(rank)
        if rank == 1:
            assert what == "gone"
        else:
            assert what == "failed" and ("onnection" in why or "reset" in why), why
    job.end()
    eventually(lambda: not daemon.status()["jobs"], "the job is forgotten")


def test_a_daemon_that_is_killed_changes_nothing(daemon: Daemon) -> None:
    """Nor does one that comes back: it is told again."""
    plain = run(2, scenarios.train, False, "Attention", "sgd", 40)
    job = Job(2, scenarios.train_slowly, 40, daemon=daemon.socket)
    for rank in range(2):
        assert job.hear(rank) == 10
    daemon.kill()
    job.go_on()
    for rank in range(2):
        assert job.hear(rank) == 20
    daemon.start()
    job.go_on()
    weights, connected = zip(*job.results())
    assert all(connected)
    for rank in range(2):
        assert weights[rank].keys() == plain[rank].keys()
        for name, value in plain[rank].items():
            assert (weights[rank][name] == value).all(), name
