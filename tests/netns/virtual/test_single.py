# SPDX-License-Identifier: GPL-2.0
"""A packet that waits alone is like any other, whatever short cut it took."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest

from lib import checks, tc, trees
from lib.capture import Capture
from lib.netns import Pair
from lib.traffic import CE, ECT_0, Udp, mark

# 1000 bytes take 80 ms. There is no short cut where GSO packets are split.
SLOW = "rate 100kbit no_split_gso"
MS = 10**6


def _one_waits(pair: Pair, so_mark: int = mark(40), **how: object) -> Udp:
    """The link is busy with a packet of job 9, and one of the returned flow waits."""
    Udp(pair, mark(1, job=9)).send()
    flow = Udp(pair, so_mark, **how)
    flow.send()
    return flow


def test_it_is_counted(pair: Pair) -> None:
    pair.add(SLOW)
    _one_waits(pair)
    q = tc.qdisc(pair.a)
    assert (q["qlen"], q["backlog"], q["active_jobs"]) == (1, 1000, 1)
    assert 1000 < q["memory_used"] <= q["memory_peak"]
    classes = tc.classes(pair.a)
    assert classes[tc.band(0, 39)]["qlen"] == classes[tc.job(0)]["qlen"] == 1


def test_an_urgent_packet_overtakes_it(pair: Pair, wire: Capture) -> None:
    pair.add(SLOW)
    waits = _one_waits(pair)
    urgent, last = Udp(pair, mark(1)), Udp(pair, mark(40))
    last.send()
    urgent.send()
    time.sleep(1)
    order = checks.order(wire.ours(), {waits.flow: 1, urgent.flow: 0, last.flow: 2})
    assert order == [0, 1, 2]


@pytest.mark.parametrize(
    "change",
    ["bands 2", "bands 1024", "jobs 1", "jobs 62", "jobs 1 bands 2", "key dscp", "mask 0xff",
     "split_gso", "auto_split_gso", "no_ack_first", "limit 1", "memory_limit 1mb", "deadline 0-63 none",
     "default_share 50", "rescue 0", "ce_threshold 1us"],
)  # fmt: skip
@pytest.mark.parametrize("so_mark", [mark(40), mark(64, job=15), 0], ids=["", "last", "unmarked"])
def test_change_while_it_waits(pair: Pair, wire: Capture, change: str, so_mark: int) -> None:
    pair.add(SLOW)
    flow = _one_waits(pair, so_mark)
    pair.change(change)
    q = tc.qdisc(pair.a)
    assert (q["qlen"], q["backlog"]) == (1, 1000)
    flow.send()
    time.sleep(1)
    left = checks.sequence(wire.ours(), flow)
    # The limit is one packet, and only one of those that wait in bands may stay.
    assert left == ([0] if change == "limit 1" and so_mark else [0, 1])
    checks.wait_until_empty(pair.a)


@pytest.mark.parametrize(
    "command",
    ["class change dev eth0 classid 1:28 mercury limit 1",
     "class change dev eth0 classid 1:fc00 mercury limit 1"],
    ids=["of its band", "of its job"],
)  # fmt: skip
@pytest.mark.parametrize("when", ["before", "while it waits"])
def test_it_counts_for_limits(pair: Pair, wire: Capture, command: str, when: str) -> None:
    pair.add(SLOW)
    if when == "before":
        pair.a.tc(command)
    flow = _one_waits(pair)
    if when != "before":
        pair.a.tc(command)
    flow.send(2)
    time.sleep(1)
    assert checks.sequence(wire.ours(), flow) == [0]
    assert tc.qdisc(pair.a)["drop_limit"] == 2


def test_its_deadline_may_change(pair: Pair, wire: Capture) -> None:
    pair.add("rate 100mbit no_split_gso deadline 0-63 none")
    flow = _one_waits(pair)
    pair.a.tc("class change dev eth0 classid 1:28 mercury deadline 5ms")
    Udp(pair, mark(1)).send(200)  # 16 ms
    time.sleep(1)
    waited = [p.waited for p in wire.ours() if p.flow == flow.flow]
    assert abs(waited[0] - 5 * MS) < 0.2 * MS


def test_its_own_time_is_its_deadline(pair: Pair, wire: Capture) -> None:
    pair.add("rate 100mbit no_split_gso deadline 0-63 none")
    Udp(pair, mark(1, job=9)).send()
    flow = Udp(pair, mark(40))
    flow.use_txtime()
    flow.send_by(0.005)
    Udp(pair, mark(1)).send(200)
    time.sleep(1)
    waited = [p.waited for p in wire.ours() if p.flow == flow.flow]
    assert abs(waited[0] - 5 * MS) < 0.2 * MS


def test_deadlines_met_and_missed(pair: Pair, wire: Capture) -> None:
    pair.add(f"{SLOW} deadline 0 none deadline 1 79ms deadline 2 81ms")
    for layer in (2, 3):
        _one_waits(pair, mark(layer))
        time.sleep(1)
    classes = tc.classes(pair.a)
    q = tc.qdisc(pair.a)
    assert (q["deadline_met"], q["deadline_missed"], q["rescued_packets"]) == (1, 1, 0)
    assert 0.9 * MS < q["lateness_max_ns"] < 1.1 * MS
    assert classes[tc.band(0, 1)]["packets"] == classes[tc.band(0, 2)]["packets"] == 1


def test_ecn(pair: Pair, wire: Capture) -> None:
    pair.add(f"{SLOW} ce_threshold 50ms")
    flow = _one_waits(pair, tos=ECT_0)
    time.sleep(1)
    flow.send()  # does not wait
    assert [p.ecn for p in wire.ours() if p.flow == flow.flow] == [CE, ECT_0]


@pytest.mark.parametrize("so_mark", [mark(40), 0], ids=["marked", "unmarked"])
def test_it_goes_when_the_device_is_down(pair: Pair, wire: Capture, so_mark: int) -> None:
    pair.add(SLOW)
    for _ in range(3):
        _one_waits(pair, so_mark)
        pair.a.ip("link set eth0 down")
        q = tc.qdisc(pair.a)
        assert (q["qlen"], q["backlog"], q["memory_used"]) == (0, 0, 0)
        pair.a.ip("link set eth0 up", f"neigh replace {pair.SINK4} lladdr {pair.B_MAC} dev eth0")
        # The kernel takes a moment to see that there is a link again.
        time.sleep(1)


def test_it_goes_with_the_qdisc(pair: Pair, wire: Capture) -> None:
    pair.add(SLOW)
    flow = _one_waits(pair)
    pair.a.tc("qdisc del dev eth0 root")
    flow.send()
    assert checks.sequence(wire.ours(), flow) == [1]


@pytest.mark.parametrize(
    "command",
    ["qdisc replace dev eth0 parent 1:ffff handle 2: pfifo",
     "filter add dev eth0 parent 1: protocol ip matchall action drop",
     "class change dev eth0 classid 1:fc00 mercury weight 7"],
    ids=["graft", "filter", "weight"],
)  # fmt: skip
def test_it_stays_when_something_else_changes(pair: Pair, wire: Capture, command: str) -> None:
    pair.add(SLOW)
    flow = _one_waits(pair)
    pair.a.tc(command)
    time.sleep(1)
    assert checks.sequence(wire.ours(), flow) == [0]
    checks.wait_until_empty(pair.a)


@pytest.mark.parametrize("name", [n for n, p in trees.PARENTS.items() if p.queues == 1])
def test_one_after_another_below_a_parent(
    make_pair: Callable[..., Pair], rng: random.Random, name: str
) -> None:
    """One packet, or two, or three at a time, of any class: counts stay right."""
    parent = trees.PARENTS[name]
    pair = make_pair()
    wire = Capture(pair.b)
    trees.build(pair.a, parent)
    flows = [Udp(pair, mark(layer, job)) for layer in (0, 1, 40, 64) for job in (0, 3)]
    for _ in range(100):
        for _ in range(rng.randrange(1, 4)):
            rng.choice(flows).send()
        time.sleep(rng.choice([0, 0.00004, 0.0001, 0.0005]))
    time.sleep(0.1)
    found = {q["handle"]: q for q in checks.wait_until_empty(pair.a)}
    packets = wire.ours()
    checks.nothing_lost(packets, flows)
    checks.in_order(packets)
    trees.consistent(found, parent)
    trees.classes_add_up(pair.a, parent)


@pytest.mark.parametrize("above", ["none", "tbf"])
def test_it_pays_its_share(make_pair: Callable[..., Pair], above: str) -> None:
    """A job that sent packet by packet does not owe anything, nor is it owed."""
    pair = make_pair()
    wire = Capture(pair.b)
    trees.build(pair.a, trees.PARENTS[above], "no_split_gso")
    flows = [Udp(pair, mark(5)), Udp(pair, mark(5, job=1))]
    for alone, other in (flows, flows[::-1]):
        other.send(300)
        time.sleep(0.1)
        for _ in range(100):
            alone.send()
            time.sleep(0.0001)
        alone.send(100)
        other.send(100)
        wire.ours()  # tbf let a burst go before both were there
        start = time.time_ns()
        time.sleep(1)
        shares = checks.shares(
            wire.ours(), start, start + 8 * MS, lambda p: p.flow == alone.flow
        )
        assert abs(shares[True] - 50) <= 2
