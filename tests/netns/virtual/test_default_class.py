# SPDX-License-Identifier: GPL-2.0
"""The default class and the qdisc in it."""

from __future__ import annotations

import pathlib
import time

import pytest

from lib import checks, tc
from lib.capture import Capture
from lib.netns import Pair
from lib.traffic import Udp, mark


def _child_kind(pair: Pair) -> str:
    """The kind of the qdisc of the default class, also when tc hides it."""
    found = [q["kind"] for q in tc.qdiscs(pair.a) if q.get("parent") == tc.DEFAULT]
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize("kind", ["fq_codel", "pfifo_fast", "fq"])
def test_it_has_the_systems_default_qdisc(pair: Pair, wire: Capture, kind: str) -> None:
    default = pathlib.Path("/proc/sys/net/core/default_qdisc")
    before = default.read_text()
    try:
        default.write_text(kind)
        pair.add("rate 100mbit")
    finally:
        default.write_text(before)
    assert _child_kind(pair) == kind
    flow = Udp(pair)
    flow.send(50)
    time.sleep(0.1)
    checks.nothing_lost(wire.ours(), [flow])
    checks.wait_until_empty(pair.a)


_CHILDREN = ["pfifo limit 500", "fq_codel", "fq", "sfq", "prio", "cake", "netem delay 1ms",
             "tbf rate 1gbit burst 20k limit 1mb", "mercury"]  # fmt: skip


@pytest.mark.parametrize("child", _CHILDREN)
def test_graft_and_delete(pair: Pair, wire: Capture, child: str) -> None:
    pair.add("rate 100mbit")
    flow = Udp(pair)
    for add in (True, False, True):
        if add:
            pair.a.tc(f"qdisc add dev eth0 parent 1:ffff handle 2: {child}")
        else:
            pair.a.tc("qdisc del dev eth0 parent 1:ffff")
        assert _child_kind(pair) == (child.split()[0] if add else "fq_codel")
        flow.send(30)
        time.sleep(0.1)
        checks.wait_until_empty(pair.a)
    checks.nothing_lost(wire.ours(), [flow])


def test_a_graft_with_a_backlog_drops_it_and_counts_it(pair: Pair, wire: Capture) -> None:
    pair.add("rate 10kbit")
    pair.a.tc("qdisc add dev eth0 parent 1:ffff handle 2: pfifo limit 500")
    unmarked, marked = Udp(pair), Udp(pair, mark(3))
    marked.send(10)
    unmarked.send(100)
    assert tc.qdisc(pair.a)["qlen"] == 109
    pair.a.tc("qdisc replace dev eth0 parent 1:ffff handle 3: pfifo limit 500")
    q = tc.qdisc(pair.a)
    assert (q["qlen"], q["backlog"]) == (9, 9000)
    unmarked.send(5)
    pair.a.tc("qdisc del dev eth0 parent 1:ffff")
    q = tc.qdisc(pair.a)
    assert (q["qlen"], q["backlog"]) == (9, 9000)
    unmarked.send(5)
    pair.change("rate 1gbit")  # fq_codel drops what waits for seconds
    time.sleep(1)
    checks.wait_until_empty(pair.a)
    packets = wire.ours()
    checks.nothing_lost(packets, [marked])
    assert checks.sequence(packets, unmarked) == list(range(105, 110))


def test_a_graft_with_a_backlog_under_a_parent(pair: Pair, wire: Capture) -> None:
    pair.a.tc("qdisc add dev eth0 root handle 9: tbf rate 10kbit burst 1600 limit 1mb")
    pair.a.tc("qdisc add dev eth0 parent 9:1 handle 1: mercury")
    unmarked, marked = Udp(pair), Udp(pair, mark(3))
    marked.send(10)
    unmarked.send(100)
    pair.a.tc("qdisc replace dev eth0 parent 1:ffff handle 3: pfifo limit 500")
    found = {q["handle"]: q for q in tc.qdiscs(pair.a)}
    assert found["9:"]["qlen"] == found["1:"]["qlen"] <= 10
    assert found["9:"]["backlog"] == found["1:"]["backlog"]
    time.sleep(100)
    checks.wait_until_empty(pair.a)
    checks.nothing_lost(wire.ours(), [marked])


@pytest.mark.parametrize("cls", ["1:1", "1:40", "1:401", "1:fc00", "1:fc0f"])
def test_grafting_elsewhere_is_refused(pair: Pair, cls: str) -> None:
    pair.add("")
    before = tc.qdiscs(pair.a)
    said = pair.a.refused(f"qdisc add dev eth0 parent {cls} handle 5: pfifo", 2)
    assert "only the default class, ffff, can have a child qdisc" in said
    assert tc.qdiscs(pair.a) == before


@pytest.mark.parametrize("cls", ["1:41", "1:fbff", "1:fc10", "1:fffe", "1:f7ff"])
def test_grafting_where_there_is_no_class_is_refused(pair: Pair, cls: str) -> None:
    pair.add("")
    before = tc.qdiscs(pair.a)
    pair.a.refused(f"qdisc add dev eth0 parent {cls} handle 5: pfifo", 2)
    assert tc.qdiscs(pair.a) == before


def test_classes_can_be_neither_made_nor_deleted(pair: Pair) -> None:
    pair.add("")
    before = pair.a.tc("-s class show dev eth0")
    said = pair.a.refused("class del dev eth0 classid 1:5", 2)
    assert "classes come and go with jobs and bands" in said
    pair.a.refused("class add dev eth0 parent 1: classid 1:41 mercury deadline 5ms", 2)
    assert pair.a.tc("-s class show dev eth0") == before


def test_a_split_packet_that_displaced_others_is_not_reported_as_dropped(
    pair: Pair, wire: Capture
) -> None:
    """
    A child may answer "congested" when it has taken a packet and dropped another.
    If a GSO packet of which that is true were reported as dropped, TCP would not
    count it as sent, refuse the receiver's ACKs for it and hang.
    """
    pair.add("rate 10kbit split_gso")
    pair.a.tc("qdisc add dev eth0 parent 1:ffff handle 2: pfifo_head_drop limit 5")
    before, flow = Udp(pair), Udp(pair, size=1400 * 10 - 9 * 42, segment=1400)
    before.send(8)
    flow.report_drops()
    flow.send()  # would raise ENOBUFS
    pair.change("rate 1gbit")
    time.sleep(0.1)
    packets = wire.ours()
    assert checks.sequence(packets, flow) == [5, 6, 7, 8, 9]
    checks.wait_until_empty(pair.a)


def test_a_split_packet_of_which_nothing_is_left_is_reported_as_dropped(pair: Pair) -> None:
    pair.add("rate 10kbit split_gso")
    pair.a.tc("qdisc add dev eth0 parent 1:ffff handle 2: pfifo limit 5")
    before, flow = Udp(pair), Udp(pair, size=1400 * 10 - 9 * 42, segment=1400)
    before.send(8)
    flow.report_drops()
    with pytest.raises(OSError, match="No buffer space"):
        flow.send()
    q = tc.qdisc(pair.a)
    assert (q["qlen"], q["drops"]) == (5, 12)
