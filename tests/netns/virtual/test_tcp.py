# SPDX-License-Identifier: GPL-2.0
"""TCP as training uses it: layers on connections of their own, and many sockets."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest

from lib import checks, tc
from lib.capture import Capture
from lib.netns import Pair
from lib.traffic import Tcp, mark, transfer

MS = 10**6
LATE = 128 << 10  # TCP_NOTSENT_LOWAT


@pytest.mark.parametrize("v6", [False, True], ids=["ipv4", "ipv6"])
def test_layers_finish_in_the_order_of_their_urgency(
    make_pair: Callable[..., Pair], v6: bool
) -> None:
    """Four connections with 2 MB each; the least urgent starts first."""
    pair = make_pair(ipv6=v6)
    pair.add("rate 1gbit")
    address = pair.B6 if v6 else pair.B4
    layers = [60, 30, 10, 1]
    connections = [
        Tcp(pair.a, pair.b, address, 2_000_000, mark(n), late_binding=LATE, seed=n)
        for n in layers
    ]
    start = time.time_ns()
    transfer(connections[:1], until=0.0005)
    transfer(connections)
    took = {n: c.finished - start for n, c in zip(layers, connections)}
    assert all(c.intact for c in connections)
    assert sorted(took, key=took.get) == [1, 10, 30, 60]
    # 2 MB last 16.6 ms with headers; each has to wait for those before it only.
    for place, layer in enumerate((1, 10, 30, 60), 1):
        assert took[layer] < place * 17 * MS + 3 * MS
    checks.wait_until_empty(pair.a)


def test_an_urgent_layer_hardly_notices_bulk(pair: Pair) -> None:
    """1 MiB of layer 1 behind bulk of layer 60 at 1 Gbit/s: wire time 8.7 ms."""
    pair.add("rate 1gbit")
    bulk = Tcp(pair.a, pair.b, pair.B4, 40 << 20, mark(60), late_binding=LATE)
    transfer([bulk], until=0.05)
    urgent = Tcp(pair.a, pair.b, pair.B4, 1 << 20, mark(1), late_binding=LATE)
    start = time.time_ns()
    transfer([bulk, urgent], limit=10)
    assert urgent.finished - start < 10 * MS
    assert urgent.intact and bulk.intact


def test_jobs_do_not_slow_each_other_beyond_their_shares(pair: Pair) -> None:
    """8 MB of each of two jobs, whatever their layers, end together."""
    pair.add("rate 1gbit")
    connections = [
        Tcp(pair.a, pair.b, pair.B4, 8_000_000, mark(layer, job), late_binding=LATE)
        for layer, job in ((1, 0), (64, 1))
    ]
    start = time.time_ns()
    transfer(connections)
    a, b = (c.finished - start for c in connections)
    assert abs(a - b) < 0.05 * max(a, b)
    assert max(a, b) < 140 * MS


@pytest.mark.parametrize(("rate", "jobs"), [("100mbit", 16), ("1gbit", 1)])
def test_1000_busy_sockets_lose_nothing(
    pair: Pair, rng: random.Random, rate: str, jobs: int
) -> None:
    """With defaults, on a slow link: the qdisc drops none of their packets."""
    pair.add(f"rate {rate}")
    connections = [
        Tcp(pair.a, pair.b, pair.B4, 20_000, mark(rng.randrange(1, 65), rng.randrange(jobs)))
        for _ in range(1000)
    ]
    transfer(connections, limit=120)
    assert all(c.intact for c in connections)
    q = {q["handle"]: q for q in checks.wait_until_empty(pair.a)}["1:"]
    assert q["drops"] == q["drop_limit"] == q["drop_memory"] == 0
    # They were busy at the same time, indeed.
    assert q["memory_peak"] > 1 << 20
    for c in connections:
        c.close()


@pytest.mark.parametrize("late_binding", [0, LATE], ids=["", "late binding"])
def test_memory_of_bulk_senders_stays_small(pair: Pair, late_binding: int) -> None:
    """TCP small queues keep most of a bulk flow in its socket: the limits are far."""
    pair.add("rate 1gbit")
    bulk = [
        Tcp(pair.a, pair.b, pair.B4, 1 << 40, mark(5), late_binding=late_binding)
        for _ in range(16)
    ]
    transfer(bulk, until=0.2)
    q = tc.qdisc(pair.a)
    assert q["drops"] == 0
    assert q["memory_peak"] < 64 << 20


def test_dscp_marks_survive_and_classify(pair: Pair, wire: Capture) -> None:
    pair.add("rate 1gbit key dscp")
    connections = [
        Tcp(pair.a, pair.b, pair.B4, 1_000_000, tos=n << 2, late_binding=LATE) for n in (40, 1)
    ]
    transfer(connections)
    assert connections[1].finished < connections[0].finished
    assert {p.dscp for p in wire.read() if p.tcp_payload} == {40, 1}
