# SPDX-License-Identifier: GPL-2.0
"""What must hold of captures and of qdiscs, whatever was sent."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence

from lib import tc
from lib.capture import Packet
from lib.netns import Namespace
from lib.traffic import Udp

# A guest's clock has a grain of 256 ns, and between a sender's look at the clock
# and its packet's arrival in the queue there are a few of them.
GRAIN = 2000  # ns


def sequence(packets: Iterable[Packet], flow: Udp) -> list[int]:
    """The sequence numbers of a flow in the order of the capture."""
    return [p.seq for p in packets if p.flow == flow.flow]


def order(packets: Iterable[Packet], flows: dict[int, Hashable]) -> list[Hashable]:
    """The names of the flows of packets, in the order of the capture."""
    return [flows[p.flow] for p in packets if p.flow in flows]


def overtakes_all_queued(packets: Sequence[Packet], urgent: Udp, bulk: Udp) -> None:
    """All bulk before the first urgent packet had left before that one was sent."""
    first = next(i for i, p in enumerate(packets) if p.flow == urgent.flow)
    late = [
        p
        for p in packets[:first]
        if p.flow == bulk.flow and p.time > packets[first].sent + GRAIN
    ]
    assert not late, f"{len(late)} packets went before a more urgent one, first {late[0]}"


def in_order(packets: Iterable[Packet]) -> None:
    """In each flow, every packet is later than those before it."""
    last: dict[int, int] = defaultdict(lambda: -1)
    for p in packets:
        assert p.seq > last[p.flow], f"flow {p.flow}: {p.seq} after {last[p.flow]}"
        last[p.flow] = p.seq


def nothing_lost(packets: Iterable[Packet], flows: Iterable[Udp]) -> None:
    """Every packet of these flows has come, once."""
    came = Counter((p.flow, p.seq) for p in packets)
    for f in flows:
        missing = [s for s in range(f.seq) if came[f.flow, s] != 1]
        assert not missing, (
            f"flow {f.flow}: of {f.seq} not once: {len(missing)}, first {missing[:10]}"
        )


def datagrams(packets: Iterable[Packet], flow: Udp) -> list[int]:
    """The sequence numbers of a flow, also of those inside of GSO packets."""
    got: list[int] = []
    for p in packets:
        if p.flow == flow.flow:
            got += range(p.seq, p.seq + flow.segments_in(p.length))
    return got


def nothing_lost_of_segments(packets: Sequence[Packet], flows: Iterable[Udp]) -> None:
    """All datagrams of these flows have come, in order."""
    for flow in flows:
        got = datagrams(packets, flow)
        assert got == list(range(flow.seq)), f"flow {flow.flow}: {len(got)} of {flow.seq}"


def shares(
    packets: Iterable[Packet], start: int, end: int, key: Callable[[Packet], Hashable]
) -> dict[Hashable, float]:
    """Per cent of the bytes captured in a window of time, by a key."""
    bytes_of: Counter[Hashable] = Counter()
    for p in packets:
        if start <= p.time < end:
            bytes_of[key(p)] += p.length
    total = sum(bytes_of.values())
    assert total, "nothing was captured in the window"
    return {k: 100 * n / total for k, n in bytes_of.items()}


def wait_until_empty(ns: Namespace, dev: str = "eth0", *, limit: float = 30) -> list[tc.Record]:
    """Wait until every qdisc of a device is empty; then their statistics."""
    end = time.monotonic() + limit
    pause = 0.05
    while True:
        found = tc.qdiscs(ns, dev)
        holding = {q["handle"]: (q["qlen"], q["backlog"]) for q in found}
        if not any(packets or size for packets, size in holding.values()):
            return found
        assert time.monotonic() < end, f"packets and bytes left: {holding}"
        time.sleep(pause)
        pause = min(2 * pause, 2)
