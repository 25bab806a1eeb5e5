# SPDX-License-Identifier: GPL-2.0
"""mercury below every parent and above every child: exact counts at the end."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from lib import checks, tc, trees
from lib.capture import Capture
from lib.kernel import Log
from lib.netns import Pair
from lib.traffic import Udp, mark


def _tree(
    make_pair: Callable[..., Pair],
    parent: trees.Parent,
    options: str = "",
    child: str | None = None,
) -> tuple[Pair, Capture]:
    pair = make_pair(queues=parent.queues)
    trees.build(pair.a, parent, options, child)
    return pair, Capture(pair.b)


@pytest.mark.parametrize("split", ["no_split_gso", "split_gso"])
@pytest.mark.parametrize("name", trees.PARENTS)
def test_below(make_pair: Callable[..., Pair], name: str, split: str) -> None:
    parent = trees.PARENTS[name]
    pair, wire = _tree(make_pair, parent, split, trees.CHILDREN["pfifo"])
    found = trees.comes_through(pair, wire, parent)
    if name in ("mq", "multiq"):
        assert sum(found[h]["packets"] > 0 for h in parent.mercury) > 1


@pytest.mark.parametrize("above", ["none", "hfsc"])
@pytest.mark.parametrize("child", [*trees.CHILDREN, *trees.ACTIVE_CHILDREN])
def test_above(
    make_pair: Callable[..., Pair], quiet_kernel: Log, child: str, above: str
) -> None:
    """A child that holds its packets back makes hfsc say so, but nothing stops."""
    quiet_kernel.expected = "non-work-conserving"
    parent = trees.PARENTS[above]
    active = child in trees.ACTIVE_CHILDREN
    command = (trees.ACTIVE_CHILDREN if active else trees.CHILDREN)[child]
    pair, wire = _tree(make_pair, parent, "", command)
    trees.comes_through(pair, wire, parent, loses=active)


@pytest.mark.parametrize("above", ["none", "tbf", "hfsc"])
@pytest.mark.parametrize("child", trees.TIGHT_CHILDREN)
def test_above_a_child_that_drops(
    make_pair: Callable[..., Pair], quiet_kernel: Log, child: str, above: str
) -> None:
    """Whatever a child drops, on arrival or later: marked packets do not suffer."""
    quiet_kernel.expected = "non-work-conserving"
    parent = trees.PARENTS[above]
    pair, wire = _tree(make_pair, parent, "", trees.TIGHT_CHILDREN[child])
    found = trees.comes_through(pair, wire, parent, loses=True)
    assert found["f1:"]["drops"] > 0
    assert found["1:"]["drops"] > 0


@pytest.mark.parametrize("above", ["none", "tbf", "hfsc", "htb", "mercury"])
def test_above_a_child_that_duplicates(make_pair: Callable[..., Pair], above: str) -> None:
    """netem hands its duplicates to the root of the tree, while it is being called."""
    parent = trees.PARENTS[above]
    pair, wire = _tree(make_pair, parent, "split_gso", trees.DUPLICATING)
    found = trees.comes_through(pair, wire, parent, loses=False, duplicates=True)
    # More than a tenth of the unmarked traffic was sent twice.
    assert found["f1:"]["packets"] > 1.1 * 240


@pytest.mark.parametrize("above", ["drr", "htb", "hfsc", "qfq", "ets"])
def test_a_shaping_mercury_below_a_work_conserving_parent(
    make_pair: Callable[..., Pair], quiet_kernel: Log, above: str
) -> None:
    """The kernel may remark on it, but everything comes through."""
    quiet_kernel.expected = "non-work-conserving"
    parent = trees.PARENTS[above]
    pair, wire = _tree(make_pair, parent, "rate 50mbit", trees.CHILDREN["pfifo"])
    trees.comes_through(pair, wire, parent)


def _place(parent: trees.Parent) -> str:
    """The class above mercury."""
    words = parent.lines[-1].split()
    return words[words.index("parent") + 1]


@pytest.mark.parametrize(
    "name", [n for n, p in trees.PARENTS.items() if n != "none" and p.queues == 1]
)
def test_delete_with_a_backlog(make_pair: Callable[..., Pair], name: str) -> None:
    """Deleting mercury leaves its parents with nothing, and working."""
    parent = trees.PARENTS[name]
    pair, wire = _tree(make_pair, parent, "limit 300")
    flows = [Udp(pair, mark(9)), Udp(pair, mark(1, job=1)), Udp(pair)]
    for flow in flows:
        flow.send(100)
    time.sleep(0.005)
    assert tc.qdisc(pair.a)["qlen"] > 100
    pair.a.tc(f"qdisc del dev eth0 parent {_place(parent)}")
    checks.wait_until_empty(pair.a)
    wire.ours()
    if name in ("tbf", "hfsc", "htb", "netem"):
        flows[0].send(3)
        time.sleep(0.1)
        # Some parents have a fifo of their own again, some drop from now on.
        assert len(wire.ours()) in (0, 3)
    checks.wait_until_empty(pair.a)


@pytest.mark.parametrize(
    "name", [n for n, p in trees.PARENTS.items() if n != "none" and p.queues == 1]
)
def test_replace_with_a_backlog(make_pair: Callable[..., Pair], name: str) -> None:
    """Another mercury in its place, and traffic goes on."""
    parent = trees.PARENTS[name]
    pair, wire = _tree(make_pair, parent, "limit 300")
    flows = [Udp(pair, mark(9)), Udp(pair, mark(1, job=1)), Udp(pair)]
    for flow in flows:
        flow.send(100)
    pair.a.tc(f"qdisc replace dev eth0 parent {_place(parent)} handle 7: mercury")
    wire.ours()
    for flow in flows:
        flow.send(20)
    time.sleep(1)
    checks.wait_until_empty(pair.a)
    packets = wire.ours()
    assert [checks.sequence(packets, f)[-20:] for f in flows] == [list(range(100, 120))] * 3


@pytest.mark.parametrize("name", [n for n in trees.PARENTS if n != "none"])
def test_delete_the_root_with_a_backlog(make_pair: Callable[..., Pair], name: str) -> None:
    parent = trees.PARENTS[name]
    pair, wire = _tree(make_pair, parent, "limit 300")
    for so_mark in (mark(9), mark(1, job=1), 0):
        Udp(pair, so_mark).send(100)
    pair.a.tc("qdisc del dev eth0 root")
    wire.ours()
    Udp(pair).send(3)
    assert len(wire.ours()) == 3
