# SPDX-License-Identifier: GPL-2.0
"""Shares of the link: bytes captured behind a shaped link in a window of time."""

from __future__ import annotations

import time
from collections.abc import Hashable

import pytest

from lib import checks, tc
from lib.capture import Capture, Packet
from lib.netns import Pair
from lib.traffic import Tcp, Udp, mark, transfer

MS = 10**6


def _weight(pair: Pair, job: int, weight: int) -> None:
    pair.a.tc(f"class change dev eth0 classid {tc.job(job)} mercury weight {weight}")


def _deep_default_class(pair: Pair) -> None:
    pair.a.tc("qdisc add dev eth0 parent 1:ffff pfifo limit 10000")


def _close(
    found: dict[Hashable, float], expected: dict[Hashable, float], points: float = 2
) -> None:
    assert found.keys() == expected.keys()
    for name, per_cent in expected.items():
        assert abs(found[name] - per_cent) <= points, (found, expected)


def _shares_of_backlogs(
    pair: Pair, wire: Capture, backlogs: dict[str, tuple[int, int]]
) -> dict[Hashable, float]:
    """Queue backlogs, name: (mark, packets of 1500 bytes), on a link of 1 Gbit/s.

    Returns the shares until the first of them is nearly gone.
    """
    flows = {name: Udp(pair, so_mark, size=1500) for name, (so_mark, _) in backlogs.items()}
    names = {flow.flow: name for name, flow in flows.items()}
    for name, flow in flows.items():
        flow.send(backlogs[name][1])
    time.sleep(1)
    packets = wire.ours()
    checks.nothing_lost(packets, flows.values())
    start = max(min(p.time for p in packets if names[p.flow] == name) for name in backlogs)
    end = min(max(p.time for p in packets if names[p.flow] == name) for name in backlogs)
    assert end - start > 10 * MS
    return checks.shares(packets, start, start + (end - start) * 9 // 10, lambda p: names[p.flow])


def test_two_jobs_of_weight_1_and_2_and_unmarked_bulk(pair: Pair, wire: Capture) -> None:
    pair.add("rate 1gbit")
    _deep_default_class(pair)
    _weight(pair, 1, 2)
    found = _shares_of_backlogs(
        pair,
        wire,
        {"one": (mark(20), 3000), "two": (mark(20, job=1), 6000), "unmarked": (0, 1000)},
    )
    _close(found, {"one": 30, "two": 60, "unmarked": 10})


@pytest.mark.parametrize("rate", ["1gbit", "10gbit"])
def test_shares_of_tcp(pair: Pair, wire: Capture, rate: str) -> None:
    """The same with the real TCP and GSO packets of up to 64 KiB."""
    pair.add(f"rate {rate}")
    _weight(pair, 1, 2)
    marks = {"one": mark(20), "two": mark(20, job=1), "unmarked": 0}
    connections: dict[int, str] = {}
    everything = []
    for name, so_mark in marks.items():
        for _ in range(4):
            c = Tcp(pair.a, pair.b, pair.B4, 1 << 40, so_mark)
            connections[c.port] = name
            everything.append(c)
    transfer(everything, until=0.05)
    start = time.time_ns()
    transfer(everything, until=0.1 if rate == "10gbit" else 0.3)
    end = time.time_ns()
    packets = [p for p in wire.read() if p.dport in connections]
    found = checks.shares(packets, start, end, lambda p: connections[p.dport])
    _close(found, {"one": 30, "two": 60, "unmarked": 10})
    assert all(c.intact for c in everything)


@pytest.mark.parametrize(
    ("weights", "backlogs", "expected"),
    [
        ({}, {"a": (mark(1), 3000), "b": (mark(64, job=1), 3000)}, {"a": 50, "b": 50}),
        ({0: 3}, {"a": (mark(1), 3000), "b": (mark(1, job=1), 1000)}, {"a": 75, "b": 25}),
        ({0: 1000}, {"a": (mark(1), 6000), "b": (mark(1, job=1), 10)}, {"a": 99.9, "b": 0.1}),
        ({}, {"a": (mark(1), 3000), "unmarked": (0, 400)}, {"a": 90, "unmarked": 10}),
        ({0: 5}, {"a": (mark(1), 3000), "unmarked": (0, 400)}, {"a": 90, "unmarked": 10}),
        ({}, {"unmarked": (0, 2000)}, {"unmarked": 100}),
        ({}, {"a": (mark(1), 2000)}, {"a": 100}),
        (
            {},
            {f"{j}": (mark(1 + j, job=j), 500) for j in range(16)} | {"unmarked": (0, 800)},
            {f"{j}": 90 / 16 for j in range(16)} | {"unmarked": 10},
        ),
    ],
    ids=["equal", "3 to 1", "1000 to 1", "with unmarked", "weight alone", "unmarked alone",
         "job alone", "16 jobs"],
)  # fmt: skip
def test_shares(
    pair: Pair,
    wire: Capture,
    weights: dict[int, int],
    backlogs: dict[str, tuple[int, int]],
    expected: dict[str, float],
) -> None:
    """What one does not use goes to the others."""
    pair.add("rate 1gbit")
    _deep_default_class(pair)
    for job, weight in weights.items():
        _weight(pair, job, weight)
    _close(_shares_of_backlogs(pair, wire, backlogs), expected)


@pytest.mark.parametrize("per_cent", [1, 25, 50, 90, 99])
def test_default_share(pair: Pair, wire: Capture, per_cent: int) -> None:
    pair.add(f"rate 1gbit default_share {per_cent}")
    _deep_default_class(pair)
    found = _shares_of_backlogs(
        pair,
        wire,
        {"job": (mark(5), 20 * (100 - per_cent) + 20), "unmarked": (0, 20 * per_cent + 20)},
    )
    _close(found, {"job": 100 - per_cent, "unmarked": per_cent})


def test_small_packets_get_their_share_in_bytes(pair: Pair, wire: Capture) -> None:
    pair.add("rate 100mbit")
    small, large = Udp(pair, mark(1), size=150), Udp(pair, mark(1, job=1), size=1500)
    small.send(5000)
    large.send(500)
    time.sleep(0.2)
    packets = wire.ours()
    start = packets[100].time
    found = checks.shares(packets, start, start + 80 * MS, lambda p: p.flow == small.flow)
    _close(found, {True: 50, False: 50})


def test_an_idle_job_saves_nothing_up(pair: Pair, wire: Capture) -> None:
    """One that comes back gets its share from then on, and no more."""
    pair.add("rate 1gbit")
    first, late = Udp(pair, mark(1), size=1500), Udp(pair, mark(1, job=1), size=1500)
    late.send()
    first.send(6000)
    time.sleep(0.030)
    start = time.time_ns()
    late.send(1000)
    time.sleep(0.1)
    packets = wire.ours()
    for begin in range(0, 20, 2):
        found = checks.shares(
            packets, start + begin * MS, start + (begin + 2) * MS, lambda p: p.flow == late.flow
        )
        _close(found, {True: 50, False: 50})


def test_an_idle_job_owes_nothing(pair: Pair, wire: Capture) -> None:
    """One that had the link for itself is not made to wait for those that come."""
    pair.add("rate 1gbit")
    first, late = Udp(pair, mark(1), size=1500), Udp(pair, mark(1, job=1), size=1500)
    first.send(4000)
    time.sleep(0.020)
    start = time.time_ns()
    late.send(2000)
    time.sleep(0.1)
    found = checks.shares(
        wire.ours(), start, start + 4 * MS, lambda p: p.flow == late.flow
    )
    _close(found, {True: 50, False: 50})


def test_a_greedy_job_gets_no_more_than_its_share(pair: Pair, wire: Capture) -> None:
    """It marks everything as layer 1, and on ten sockets."""
    pair.add("rate 1gbit")
    greedy = [Udp(pair, mark(1), size=1500) for _ in range(10)]
    honest = [Udp(pair, mark(10 + i, job=1), size=1500) for i in range(4)]
    for _ in range(400):
        for flow in greedy:
            flow.send()
    for _ in range(500):
        for flow in honest:
            flow.send()
    start = time.time_ns()
    time.sleep(0.2)
    ours = {f.flow for f in greedy}
    packets = wire.ours()
    found = checks.shares(packets, start, start + 40 * MS, lambda p: p.flow in ours)
    _close(found, {True: 50, False: 50}, points=1)
    # And among the honest job's bands the order is what it would be without the other.
    by_band = checks.order(packets, {f.flow: i for i, f in enumerate(honest)})
    assert by_band[20:] == sorted(by_band[20:])


def test_jobs_beyond_the_number_share_the_last_one(pair: Pair, wire: Capture) -> None:
    """Job 9 of 2 is job 1: the two take turns in one band, and half of the link."""
    pair.add("jobs 2 rate 1gbit")
    one, nine = Udp(pair, mark(1, job=1), size=1500), Udp(pair, mark(1, job=9), size=1500)
    other = Udp(pair, mark(1), size=1500)
    for _ in range(500):
        one.send()
        nine.send()
    other.send(1000)
    start = time.time_ns()
    time.sleep(0.1)
    names = {one.flow: "1", nine.flow: "9", other.flow: "0"}
    found = checks.shares(wire.ours(), start, start + 10 * MS, lambda p: names[p.flow])
    _close(found, {"0": 50, "1": 25, "9": 25})


def _small_packets_beside(pair: Pair, wire: Capture, bulk: list[Tcp]) -> list[Packet]:
    """300 small unmarked packets, 1 ms apart, beside connections that never stop."""
    small = Udp(pair, size=110)
    transfer(bulk, until=0.05)
    for _ in range(300):
        small.send()
        transfer(bulk, until=0.001)
        # Reading the bulk's packets now keeps the capture small.
        yield from (p for p in wire.read() if p.flow == small.flow)


def _p99(values: list[int]) -> int:
    return sorted(values)[len(values) * 99 // 100]


@pytest.mark.parametrize("unmarked_bulk", [0, 8], ids=["", "and unmarked bulk"])
def test_small_packets_beside_a_greedy_job(pair: Pair, wire: Capture, unmarked_bulk: int) -> None:
    """ssh in the default class, with what systemd makes the default: fq_codel."""
    pair.add("rate 10gbit")
    bulk = [Tcp(pair.a, pair.b, pair.B4, 1 << 40, mark(1)) for _ in range(8)]
    bulk += [Tcp(pair.a, pair.b, pair.B4, 1 << 40) for _ in range(unmarked_bulk)]
    waits = [p.waited for p in _small_packets_beside(pair, wire, bulk)]
    assert len(waits) == 300
    assert _p99(waits) < 5 * MS
    print(f"p50 {sorted(waits)[150] / MS:.3f} ms, p99 {_p99(waits) / MS:.3f} ms")


def test_change_of_weight_under_traffic(pair: Pair, wire: Capture) -> None:
    pair.add("rate 1gbit")
    a, b = Udp(pair, mark(1), size=1500), Udp(pair, mark(1, job=1), size=1500)
    a.send(5000)
    b.send(5000)
    middle = time.time_ns() + 20 * MS
    time.sleep(0.020)
    _weight(pair, 1, 4)
    time.sleep(0.2)
    packets = wire.ours()
    checks.nothing_lost(packets, [a, b])
    before = checks.shares(packets, middle - 18 * MS, middle, lambda p: p.flow == b.flow)
    after = checks.shares(packets, middle + MS, middle + 40 * MS, lambda p: p.flow == b.flow)
    _close(before, {True: 50, False: 50})
    _close(after, {True: 80, False: 20})


def test_change_of_default_share_under_traffic(pair: Pair, wire: Capture) -> None:
    pair.add("rate 1gbit")
    _deep_default_class(pair)
    a, b = Udp(pair, mark(1), size=1500), Udp(pair, size=1500)
    a.send(5000)
    b.send(5000)
    middle = time.time_ns() + 20 * MS
    time.sleep(0.020)
    pair.change("default_share 60")
    time.sleep(0.2)
    packets = wire.ours()
    checks.nothing_lost(packets, [a, b])
    before = checks.shares(packets, middle - 18 * MS, middle, lambda p: p.flow == b.flow)
    after = checks.shares(packets, middle + MS, middle + 40 * MS, lambda p: p.flow == b.flow)
    _close(before, {True: 10, False: 90})
    _close(after, {True: 60, False: 40})
