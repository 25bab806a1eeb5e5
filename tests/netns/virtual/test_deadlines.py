# SPDX-License-Identifier: GPL-2.0
"""Deadlines and the rescue of what is overdue, within its cap."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

import pytest

from lib import checks, tc
from lib.capture import Capture, Packet
from lib.netns import Pair
from lib.traffic import Udp, mark

MS = 10**6
US = 10**3
# 1000 bytes take 80 us.
RATE = "rate 100mbit"
PACKET = 80 * US


def _starve(
    pair: Pair, wire: Capture, *, starving: int, ahead: int = 5000, layer: int = 6
) -> tuple[list[Packet], Udp, Udp]:
    """Queue packets of band 0 for 400 ms before some of a later band; take all."""
    urgent, late = Udp(pair, mark(1)), Udp(pair, mark(layer))
    late.send(starving)
    urgent.send(ahead)
    time.sleep(5)
    packets = wire.ours()
    checks.nothing_lost(packets, [urgent, late])
    checks.in_order(packets)
    return packets, urgent, late


def _early(packets: Sequence[Packet], urgent: Udp, late: Udp) -> list[Packet]:
    """The less urgent packets that left while more urgent ones waited."""
    first = next(i for i, p in enumerate(packets) if p.flow == urgent.flow)
    last = max(i for i, p in enumerate(packets) if p.flow == urgent.flow)
    return [p for p in packets[first:last] if p.flow == late.flow]


def test_a_starved_band_is_served_after_its_deadline_within_the_cap(
    pair: Pair, wire: Capture
) -> None:
    pair.add(f"{RATE} rescue 10 deadline 5 20ms")
    packets, urgent, late = _starve(pair, wire, starving=1000)
    rescued = _early(packets, urgent, late)
    # Not before it is due, and then at once.
    assert all(p.waited >= 20 * MS for p in rescued)
    assert rescued[0].waited < 20 * MS + 2 * PACKET + checks.GRAIN
    # Never more than a tenth of what the job has sent, but for the last packet.
    sent = of_late = 0
    first = next(i for i, p in enumerate(packets) if p.flow == urgent.flow)
    for i, p in enumerate(packets[: packets.index(rescued[-1])]):
        sent += p.length
        if i > first and p.flow == late.flow:
            of_late += p.length
        assert of_late <= 0.10 * sent + p.length
    # And not much less: it is a budget that is used.
    assert of_late >= 0.095 * sent


@pytest.mark.parametrize(("per_cent", "least", "most"), [(1, 0.008, 0.0105), (50, 0.45, 0.505)])
def test_the_cap_is_what_was_asked_for(
    pair: Pair, wire: Capture, per_cent: int, least: float, most: float
) -> None:
    pair.add(f"{RATE} rescue {per_cent} deadline 5 1ms")
    packets, urgent, late = _starve(pair, wire, starving=5500)
    window = packets[200:4000]
    part = sum(p.flow == late.flow for p in window) / len(window)
    assert least <= part <= most


def test_rescue_100_serves_all_that_is_overdue_first(pair: Pair, wire: Capture) -> None:
    pair.add(f"{RATE} rescue 100 deadline 5 20ms deadline 0 none")
    packets, urgent, late = _starve(pair, wire, starving=500)
    rescued = _early(packets, urgent, late)
    assert len(rescued) >= 495
    assert rescued[-1].time - rescued[0].time < 501 * PACKET


@pytest.mark.parametrize(
    "options",
    ["rescue 0", "rescue 0 deadline 5 1ms", "deadline 5 none", "deadline 0-63 none",
     "deadline 0:5 none", "deadline 5 1ms deadline 5 none"],
)  # fmt: skip
def test_a_band_without_rescue_waits_to_the_end(
    pair: Pair, wire: Capture, options: str
) -> None:
    pair.add(f"{RATE} {options}")
    packets, urgent, late = _starve(pair, wire, starving=200)
    early = _early(packets, urgent, late)
    # What left before the first urgent packet was queued does not count.
    assert not [p for p in early if p.waited > 2 * MS]


def test_every_band_has_a_deadline_of_100_ms(pair: Pair, wire: Capture) -> None:
    pair.add(RATE)
    packets, urgent, late = _starve(pair, wire, starving=200)
    rescued = [p for p in _early(packets, urgent, late) if p.waited > MS]
    assert rescued[0].waited >= 100 * MS
    assert rescued[0].waited < 100 * MS + 3 * PACKET
    assert len(rescued) > 150


def test_the_earliest_deadline_is_rescued_first(
    pair: Pair, wire: Capture, rng: random.Random
) -> None:
    """Of many overdue bands, whatever their order and whatever was queued first."""
    bands = rng.sample(range(1, 1024), 60)
    # They come due 50 us apart, and each has 240 us to send.
    deadlines = " ".join(f"deadline {b} {20000 + 50 * i}us" for i, b in enumerate(bands))
    pair.add(f"{RATE} bands 1024 rescue 100 deadline 0 none {deadlines}")
    urgent = Udp(pair, mark(1))
    urgent.send(10)
    flows = {band: Udp(pair, mark(band + 1)) for band in rng.sample(bands, len(bands))}
    for flow in flows.values():
        flow.send(3)
    urgent.send(2000)
    time.sleep(1)
    packets = wire.ours()
    order = checks.order(packets, {f.flow: band for band, f in flows.items()})
    assert order == [band for band in bands for _ in range(3)]


def test_deadlines_of_one_job_leave_the_others_alone(pair: Pair, wire: Capture) -> None:
    pair.add(f"{RATE} deadline 0-63 none deadline 1:5 5ms")
    flows = []
    for job in (0, 1):
        for layer, count in ((6, 100), (1, 2000)):
            flows.append(Udp(pair, mark(layer, job)))
            flows[-1].send(count)
    time.sleep(1)
    packets = wire.ours()
    checks.nothing_lost(packets, flows)
    assert not [p for p in _early(packets, flows[1], flows[0]) if p.waited > 2 * MS]
    rescued = [p for p in _early(packets, flows[3], flows[2]) if p.waited > 2 * MS]
    assert len(rescued) > 90
    assert min(p.waited for p in rescued) >= 5 * MS


@pytest.mark.parametrize(
    "how",
    ["qdisc change dev eth0 root handle 1: mercury deadline 5 30ms",
     "qdisc change dev eth0 root handle 1: mercury deadline 0:5 30ms",
     "class change dev eth0 classid 1:6 mercury deadline 30ms"],
    ids=["by qdisc", "by job", "by class"],
)  # fmt: skip
def test_change_of_a_deadline_under_traffic(pair: Pair, wire: Capture, how: str) -> None:
    """It holds for what is queued already, at the time that it was queued."""
    pair.add(f"{RATE} deadline 0-63 none")
    urgent, late = Udp(pair, mark(1)), Udp(pair, mark(6))
    urgent.send(5)
    late.send(100)
    urgent.send(4000)
    time.sleep(0.010)
    pair.a.tc(how)
    time.sleep(1)
    packets = wire.ours()
    rescued = _early(packets, urgent, late)
    assert abs(rescued[0].waited - 30 * MS) < 3 * PACKET
    assert len(rescued) > 90


def test_change_of_a_deadline_to_none_under_traffic(pair: Pair, wire: Capture) -> None:
    pair.add(f"{RATE} deadline 5 20ms")
    urgent, late = Udp(pair, mark(1)), Udp(pair, mark(6))
    urgent.send(5)
    late.send(300)
    urgent.send(4000)
    time.sleep(0.040)
    at = time.time_ns()
    pair.a.tc("class change dev eth0 classid 1:6 mercury deadline none")
    time.sleep(1)
    times = [p.time for p in _early(wire.ours(), urgent, late)]
    assert any(t < at for t in times)
    assert not any(t > at + 2 * PACKET for t in times)


def test_change_of_rescue_under_traffic(pair: Pair, wire: Capture) -> None:
    pair.add(f"{RATE} rescue 0 deadline 5 5ms")
    urgent, late = Udp(pair, mark(1)), Udp(pair, mark(6))
    urgent.send(5)
    late.send(1000)
    urgent.send(4000)
    time.sleep(0.050)
    at = time.time_ns()
    pair.change("rescue 50")
    time.sleep(1)
    times = [p.time for p in _early(wire.ours(), urgent, late)]
    assert min(times) > at
    in_20_ms = [t for t in times if t < at + 20 * MS]
    assert 110 <= len(in_20_ms) <= 135


@pytest.mark.parametrize("clock", [time.CLOCK_MONOTONIC, time.CLOCK_REALTIME, time.CLOCK_TAI])
def test_so_txtime_in_deadline_mode(pair: Pair, wire: Capture, clock: int) -> None:
    """The packet's own time is its deadline, earlier than its band's and later."""
    pair.add(f"{RATE} deadline 0 none deadline 5 20ms")
    urgent = Udp(pair, mark(1))
    soon, late, plain = Udp(pair, mark(6)), Udp(pair, mark(7)), Udp(pair, mark(6))
    soon.use_txtime(clock)
    late.use_txtime(clock)
    urgent.send(5)
    soon.send_by(0.007)
    late.send_by(0.150)
    plain.send()
    urgent.send(4000)
    time.sleep(1)
    packets = wire.ours()
    waited = {p.flow: p.waited for p in packets if p.flow != urgent.flow}
    assert abs(waited[soon.flow] - 7 * MS) < 3 * PACKET
    assert abs(waited[plain.flow] - 20 * MS) < 3 * PACKET
    assert abs(waited[late.flow] - 150 * MS) < 3 * PACKET


def test_so_txtime_in_another_mode_is_no_deadline(pair: Pair, wire: Capture) -> None:
    pair.add(f"{RATE} deadline 5 20ms")
    urgent, timed = Udp(pair, mark(1)), Udp(pair, mark(6))
    timed.use_txtime(deadline=False)
    urgent.send(5)
    timed.send_by(0.007)
    urgent.send(4000)
    time.sleep(1)
    waited = [p.waited for p in wire.ours() if p.flow == timed.flow]
    assert abs(waited[0] - 20 * MS) < 3 * PACKET


def test_so_txtime_in_the_past_is_overdue_at_once(pair: Pair, wire: Capture) -> None:
    pair.add(f"{RATE} deadline 0-63 none")
    urgent, timed = Udp(pair, mark(1)), Udp(pair, mark(6))
    timed.use_txtime()
    urgent.send(1000)
    time.sleep(0.020)
    timed.send_by(-0.5)
    time.sleep(1)
    waited = [p.waited for p in wire.ours() if p.flow == timed.flow]
    assert waited[0] < 3 * PACKET


def test_met_and_missed_are_counted(pair: Pair, wire: Capture) -> None:
    """As the capture says, with the time on the wire of each packet added."""
    pair.add(f"{RATE} rescue 0 deadline 0 10ms deadline 5 none")
    urgent, other = Udp(pair, mark(1)), Udp(pair, mark(6))
    urgent.send(500)
    other.send(10)
    time.sleep(1)
    packets = [p for p in wire.ours() if p.flow == urgent.flow]
    late = [p.waited - 10 * MS for p in packets if p.waited > 10 * MS]
    q = tc.qdisc(pair.a)
    assert abs(q["deadline_missed"] - len(late)) <= 1
    assert q["deadline_met"] + q["deadline_missed"] == 500
    assert abs(q["lateness_max_ns"] - max(late)) < PACKET
    assert abs(q["lateness_mean_ns"] - sum(late) / len(late)) < PACKET


def test_rescued_are_counted(pair: Pair, wire: Capture) -> None:
    pair.add(f"{RATE} deadline 5 20ms")
    packets, urgent, late = _starve(pair, wire, starving=300)
    rescued = [p for p in _early(packets, urgent, late) if p.waited > 2 * MS]
    q = tc.qdisc(pair.a)
    assert q["rescued_packets"] == len(rescued)
    assert q["rescued_bytes"] == sum(p.length for p in rescued)
