# SPDX-License-Identifier: GPL-2.0
"""The shaper: rates to half a per cent, and the size of what goes on the wire."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest

from lib import checks, tc
from lib.capture import Capture, Packet
from lib.netns import Pair
from lib.traffic import Tcp, Udp, mark, transfer

MS = 10**6


def _rate(packets: Sequence[Packet]) -> float:
    """bit/s: a packet leaves when the link is free of those before it."""
    return sum(p.length for p in packets[:-1]) * 8 * 10**9 / (packets[-1].time - packets[0].time)


@pytest.mark.parametrize("size", [60, 1000, 1514])
@pytest.mark.parametrize(
    ("rate", "bits"),
    [("8kbit", 8e3), ("1mbit", 1e6), ("100mbit", 1e8), ("1gbit", 1e9), ("2.5gbit", 2.5e9)],
)
def test_the_rate_is_exact(pair: Pair, wire: Capture, rate: str, bits: float, size: int) -> None:
    pair.add(f"rate {rate} rescue 0")
    flow = Udp(pair, mark(1), size=max(size, 80))
    count = 200 if bits < 1e6 else 3000
    flow.send(count)
    time.sleep(count * 1514 * 8 / bits + 1)
    packets = wire.ours()
    checks.nothing_lost(packets, [flow])
    assert abs(_rate(packets[1:]) / bits - 1) < 0.005


@pytest.mark.parametrize(("rate", "bits"), [("10gbit", 1e10), ("40gbit", 4e10), ("100gbit", 1e11)])
def test_the_rate_is_exact_with_large_packets(
    pair: Pair, wire: Capture, rate: str, bits: float
) -> None:
    """Of a GSO packet the headers of all its segments count, as they do on a wire."""
    pair.add(f"rate {rate}")
    flow = Udp(pair, mark(1), size=42 + 43 * 1358, segment=1400)
    flow.send(1000)
    time.sleep(1)
    packets = wire.ours()
    assert [p.length for p in packets] == [42 + 43 * 1358] * 1000
    bytes_of_others = 1400 * 43 * 998
    seconds = (packets[-1].time - packets[1].time) / 10**9
    assert abs(bytes_of_others * 8 / seconds / bits - 1) < 0.005


def test_mixed_sizes_and_bands_and_unmarked(pair: Pair, wire: Capture) -> None:
    pair.add("rate 50mbit rescue 0")
    flows = [Udp(pair, mark(i * 9 % 60, job=i % 3), size=100 + 200 * i) for i in range(8)]
    for _ in range(100):
        for flow in flows:
            flow.send()
    time.sleep(2)
    packets = wire.ours()
    checks.nothing_lost(packets, flows)
    assert abs(_rate(packets[1:]) / 5e7 - 1) < 0.005


def test_an_idle_link_saves_nothing_up(pair: Pair, wire: Capture) -> None:
    """After a pause the packets of a burst are spaced as always."""
    pair.add("rate 100mbit")
    flow = Udp(pair, mark(1))
    flow.send(3)
    time.sleep(1)
    wire.ours()
    flow.send(50)
    time.sleep(1)
    packets = wire.ours()
    gaps = [b.time - a.time for a, b in zip(packets, packets[1:])]
    assert all(abs(gap - 80_000) <= 600 for gap in gaps)


def test_a_packet_on_an_idle_link_leaves_at_once(pair: Pair, wire: Capture) -> None:
    pair.add("rate 1mbit")
    flow = Udp(pair, mark(9))
    for _ in range(10):
        flow.send()
        time.sleep(0.0081)
    assert all(p.waited < checks.GRAIN for p in wire.ours())


def test_change_of_rate_under_traffic(pair: Pair, wire: Capture) -> None:
    pair.add("rate 100mbit rescue 0")
    flow = Udp(pair, mark(1))
    flow.send(3000)
    time.sleep(0.040)
    at = time.time_ns()
    pair.change("rate 10mbit")
    time.sleep(0.400)
    later = time.time_ns()
    pair.change("rate 1gbit")
    time.sleep(1)
    packets = wire.ours()
    checks.nothing_lost(packets, [flow])
    before = [p for p in packets[1:] if p.time < at]
    during = [p for p in packets if at + MS < p.time < later]
    after = [p for p in packets if p.time > later + MS]
    for part, bits in ((before, 1e8), (during, 1e7), (after, 1e9)):
        assert abs(_rate(part) / bits - 1) < 0.005


@pytest.mark.parametrize("new", ["none", "1gbit"])
def test_a_rate_that_was_too_low_is_mended_at_once(pair: Pair, wire: Capture, new: str) -> None:
    """The link was taken for 8 s by the first packet; nothing else is sent to wake it."""
    pair.add("rate 1kbit")
    flow = Udp(pair, mark(1))
    flow.send(20)
    time.sleep(0.1)
    assert len(wire.ours()) == 1
    pair.change(f"rate {new}")
    time.sleep(0.1)
    assert len(wire.ours()) == 19
    checks.wait_until_empty(pair.a)


def test_a_rate_that_was_too_low_under_a_parent(pair: Pair, wire: Capture) -> None:
    pair.a.tc("qdisc add dev eth0 root handle 9: prio bands 2 priomap " + "0 " * 16)
    pair.a.tc("qdisc add dev eth0 parent 9:1 handle 1: mercury rate 1kbit")
    Udp(pair, mark(1)).send(20)
    time.sleep(0.1)
    pair.a.tc("qdisc change dev eth0 parent 9:1 handle 1: mercury rate none")
    time.sleep(0.1)
    assert len(wire.ours()) == 20


def test_a_new_rate_for_a_backlog(pair: Pair, wire: Capture) -> None:
    """From none to some: nothing is queued before, what comes is shaped."""
    pair.add("")
    flow = Udp(pair, mark(1))
    flow.send(100)
    assert all(p.waited < checks.GRAIN for p in wire.ours())
    pair.change("rate 100mbit")
    flow.send(100)
    time.sleep(1)
    assert abs(_rate(wire.ours()) / 1e8 - 1) < 0.005


@pytest.mark.parametrize(
    ("options", "is_split"),
    [
        ("split_gso", True),
        ("split_gso rate 10gbit", True),
        ("no_split_gso", False),
        ("no_split_gso rate 100mbit", False),
        ("auto_split_gso", False),
        ("auto_split_gso rate 999mbit", True),
        ("auto_split_gso rate 1gbit", False),
        ("rate 100mbit", True),
        ("rate 10gbit", False),
    ],
)
@pytest.mark.parametrize("layer", [7, 0], ids=["marked", "unmarked"])
def test_split_gso_of_udp(
    pair: Pair, wire: Capture, options: str, is_split: bool, layer: int
) -> None:
    pair.add(options)
    flow = Udp(pair, mark(layer), size=1400 * 10 - 9 * 42, segment=1400)
    flow.send(5)
    time.sleep(1)
    packets = wire.ours()
    if is_split:
        assert [p.length for p in packets] == [1400] * 50
        assert checks.sequence(packets, flow) == list(range(50))
    else:
        assert [p.length for p in packets] == [1400 * 10 - 9 * 42] * 5
        assert checks.sequence(packets, flow) == list(range(0, 50, 10))
    q = tc.qdisc(pair.a)
    assert q["gso_split"] == (5 if is_split else 0)
    assert q["packets"] == 50  # GSO packets count their segments


@pytest.mark.parametrize(("options", "is_split"), [("split_gso", True), ("no_split_gso", False)])
@pytest.mark.parametrize("layer", [7, 0], ids=["marked", "unmarked"])
def test_split_gso_of_tcp(
    pair: Pair, wire: Capture, options: str, is_split: bool, layer: int
) -> None:
    pair.add(f"{options} rate 500mbit")
    c = Tcp(pair.a, pair.b, pair.B4, 3_000_000, mark(layer))
    transfer([c])
    assert c.intact
    lengths = [p.length for p in wire.read() if p.dport == c.port]
    assert (max(lengths) <= 1514) == is_split
    if not is_split:
        assert max(lengths) > 10000


def test_split_gso_lets_urgent_packets_in_between(pair: Pair, wire: Capture) -> None:
    """A GSO packet of 60 KB lasts 4.8 ms at 100 Mbit/s: split, it holds nobody up."""
    pair.add("rate 100mbit")
    bulk = Udp(pair, mark(40), size=60000, segment=1400)
    urgent = Udp(pair, mark(1), size=200)
    bulk.send(3)
    for _ in range(5):
        time.sleep(0.002)
        urgent.send()
    time.sleep(0.1)
    waited = [p.waited for p in wire.ours() if p.flow == urgent.flow]
    assert max(waited) <= 1400 * 80 + checks.GRAIN


def test_change_of_split_gso_under_traffic(pair: Pair, wire: Capture) -> None:
    """What is queued keeps its size; order and number of the packets stay."""
    pair.add("rate 1gbit no_split_gso")
    flow = Udp(pair, mark(3), size=1400 * 10 - 9 * 42, segment=1400)
    flow.send(5)
    pair.change("split_gso")
    flow.send(5)
    pair.change("no_split_gso")
    flow.send(5)
    time.sleep(1)
    packets = wire.ours()
    checks.in_order(packets)
    assert [p.length > 1400 for p in packets] == [True] * 5 + [False] * 50 + [True] * 5
