# SPDX-License-Identifier: GPL-2.0
"""ce_threshold: packets that waited longer are marked, if they can be."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from lib import tc
from lib.capture import Capture
from lib.netns import Pair
from lib.traffic import CE, ECT_0, ECT_1, NOT_ECT, Udp, mark

MS = 10**6


@pytest.mark.parametrize("ecn", [NOT_ECT, ECT_1, ECT_0, CE])
@pytest.mark.parametrize("v6", [False, True], ids=["ipv4", "ipv6"])
def test_marks_what_waited_longer(make_pair: Callable[..., Pair], v6: bool, ecn: int) -> None:
    pair = make_pair(ipv6=v6)
    wire = Capture(pair.b)
    pair.add("rate 100mbit ce_threshold 5ms")
    flow = Udp(pair, mark(3), tos=10 << 2 | ecn, v6=v6)
    flow.send(200)  # 16 ms
    time.sleep(0.1)
    packets = wire.ours()
    assert len(packets) == 200
    assert all(p.dscp == 10 for p in packets)
    expected_after = {NOT_ECT: NOT_ECT, ECT_1: CE, ECT_0: CE, CE: CE}[ecn]
    for p in packets:
        if abs(p.waited - 5 * MS) > 0.1 * MS:
            assert p.ecn == (expected_after if p.waited > 5 * MS else ecn), p
    marked = [p for p in packets if p.ecn == CE]
    if ecn in (ECT_0, ECT_1):
        assert 130 < len(marked) < 142
        assert tc.qdisc(pair.a)["ce_marks"] == len(marked)
    if ecn == NOT_ECT:
        assert tc.qdisc(pair.a)["ce_marks"] == 0


def test_only_marks_by_the_time_in_the_queue(pair: Pair, wire: Capture) -> None:
    """An urgent packet that does not wait is not marked, whatever the others do."""
    pair.add("rate 100mbit ce_threshold 1ms")
    bulk, urgent = Udp(pair, mark(40), tos=ECT_0), Udp(pair, mark(1), tos=ECT_0)
    bulk.send(500)
    for _ in range(20):
        time.sleep(0.001)
        urgent.send()
    time.sleep(0.1)
    packets = wire.ours()
    assert {p.ecn for p in packets if p.flow == urgent.flow} == {ECT_0}
    assert sum(p.ecn == CE for p in packets if p.flow == bulk.flow) > 450


def test_without_a_threshold_nothing_is_marked(pair: Pair, wire: Capture) -> None:
    pair.add("rate 10mbit")
    flow = Udp(pair, mark(3), tos=ECT_0)
    flow.send(200)
    time.sleep(1)
    assert [p.ecn for p in wire.ours()] == [ECT_0] * 200


def test_change_under_traffic(pair: Pair, wire: Capture) -> None:
    pair.add("rate 100mbit")
    flow = Udp(pair, mark(3), tos=ECT_0)
    flow.send(1000)  # 80 ms
    time.sleep(0.020)
    on = time.time_ns()
    pair.change("ce_threshold 1ms")
    time.sleep(0.020)
    off = time.time_ns()
    pair.change("ce_threshold none")
    time.sleep(0.1)
    for p in wire.ours():
        if min(abs(p.time - on), abs(p.time - off)) > 0.2 * MS:
            assert (p.ecn == CE) == (on < p.time < off), p
