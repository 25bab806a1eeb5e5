# SPDX-License-Identifier: GPL-2.0
"""Trees of qdiscs with mercury in them, and traffic that must come through."""

from __future__ import annotations

import dataclasses
import re

from lib import checks, tc
from lib.capture import Capture
from lib.netns import Namespace, Pair
from lib.traffic import Tcp, Udp, mark, transfer

_SHAPER = "qdisc add dev eth0 root handle 9: tbf rate 100mbit burst 10k limit 10mb"
_ROOT = "qdisc add dev eth0 root handle 9:"


@dataclasses.dataclass(frozen=True)
class Parent:
    """What is above mercury. {} in a line stands for more options of mercury."""

    lines: tuple[str, ...]
    above: tuple[str, ...] = ("9:",)  # handles of what every packet goes through
    mercury: tuple[str, ...] = ("1:",)
    queues: int = 1


def _below_a_shaper(kind: str, *lines: str) -> Parent:
    """A work-conserving qdisc a: with a class a:1, between a shaper and mercury."""
    return Parent(
        (
            _SHAPER,
            f"qdisc add dev eth0 parent 9:1 handle a: {kind}",
            *lines,
            "qdisc add dev eth0 parent a:1 handle 1: mercury {}",
        ),
        above=("9:", "a:"),
    )


def _above_four(kind: str, above: tuple[str, ...] = ("9:",)) -> Parent:
    """A qdisc with a mercury for each of four queues of the device."""
    lines = (
        f"qdisc add dev eth0 parent 9:{i} handle {10 + i}: mercury rate 50mbit {{}}"
        for i in range(1, 5)
    )
    handles = tuple(f"{10 + i}:" for i in range(1, 5))
    return Parent((f"{_ROOT} {kind}", *lines), above, handles, queues=4)


_ALL_TO_A1 = "filter add dev eth0 parent a: matchall flowid a:1"

PARENTS = {
    "none": Parent(("qdisc add dev eth0 root handle 1: mercury rate 100mbit {}",), above=()),
    "tbf": Parent((_SHAPER, "qdisc add dev eth0 parent 9:1 handle 1: mercury {}")),
    "htb": Parent(
        (
            f"{_ROOT} htb default 1",
            "class add dev eth0 parent 9: classid 9:1 htb rate 100mbit burst 64k",
            "qdisc add dev eth0 parent 9:1 handle 1: mercury {}",
        )
    ),
    "hfsc": Parent(
        (
            f"{_ROOT} hfsc default 1",
            "class add dev eth0 parent 9: classid 9:1 hfsc sc rate 100mbit ul rate 100mbit",
            "qdisc add dev eth0 parent 9:1 handle 1: mercury {}",
        )
    ),
    "drr": _below_a_shaper("drr", "class add dev eth0 parent a: classid a:1 drr", _ALL_TO_A1),
    "ets": _below_a_shaper("ets bands 2 quanta 1514 1514 priomap " + "0 " * 16),
    "ets strict": _below_a_shaper("ets bands 2 strict 2 priomap " + "0 " * 16),
    "prio": _below_a_shaper("prio bands 2 priomap " + "0 " * 16),
    "prio above a shaping mercury": Parent(
        (
            f"{_ROOT} prio bands 2 priomap " + "0 " * 16,
            "qdisc add dev eth0 parent 9:1 handle 1: mercury rate 100mbit {}",
        )
    ),
    "qfq": _below_a_shaper(
        "qfq", "class add dev eth0 parent a: classid a:1 qfq weight 1 maxpkt 65536", _ALL_TO_A1
    ),
    "multiq": _above_four("multiq"),
    "netem": Parent(
        (
            f"{_ROOT} netem delay 1ms limit 20000",
            "qdisc add dev eth0 parent 9:1 handle 1: mercury rate 100mbit {}",
        )
    ),
    "mq": _above_four("mq", above=()),  # it shows the sum of its children
    "mercury": Parent(
        (
            f"{_ROOT} mercury key priority rate 100mbit",
            "qdisc add dev eth0 parent 9:ffff handle 1: mercury {}",
        )
    ),
    "mercury in mercury in tbf": Parent(
        (
            _SHAPER,
            "qdisc add dev eth0 parent 9:1 handle a: mercury key priority",
            "qdisc add dev eth0 parent a:ffff handle 1: mercury {}",
        ),
        above=("9:", "a:"),
    ),
}

# What the default class may hold: what loses nothing of the traffic below, what
# may drop to keep delays short, and what is too small for it.
CHILDREN = {
    "fq_codel": "fq_codel target 10s interval 20s",
    "fq": "fq limit 100000 flow_limit 10000",
    "pfifo": "pfifo limit 10000",
    "pfifo_fast": "pfifo_fast",
    "tbf": "tbf rate 200mbit burst 100k limit 10mb",
    "slow tbf": "tbf rate 20mbit burst 100k limit 10mb",
    "netem": "netem delay 1ms limit 10000",
    "htb": "htb default 0",
}
ACTIVE_CHILDREN = {
    "cake": "cake",
    "cake bandwidth": "cake bandwidth 50mbit",
    "sfq": "sfq",
    "mercury": "mercury",
    "shaping mercury": "mercury rate 20mbit",
}
TIGHT_CHILDREN = {
    "fq_codel": "fq_codel limit 10",
    "fq": "fq limit 10",
    "codel": "codel limit 10",
    "pfifo": "pfifo limit 5",
    "bfifo": "bfifo limit 9000",
    "pfifo_head_drop": "pfifo_head_drop limit 5",
    "sfq": "sfq limit 10",
    "cake": "cake memlimit 20k",
    "red": "red limit 20000 min 3000 max 9000 avpkt 1000 burst 5 bandwidth 10mbit",
    "tbf": "tbf rate 10mbit burst 2k limit 10k",
    "netem loss": "netem loss 20% limit 10",
    "mercury": "mercury limit 10",
}
DUPLICATING = "netem duplicate 50% limit 10000"


def build(ns: Namespace, parent: Parent, options: str = "", child: str | None = None) -> None:
    for line in parent.lines:
        ns.tc(line.format(options))
    if child is not None:
        for handle in parent.mercury:
            ns.tc(f"qdisc add dev eth0 parent {handle}ffff handle f{handle} {child}")


class Traffic:
    """TCP and UDP, marked and unmarked, plain and GSO, at once."""

    def __init__(self, pair: Pair, *, tcp_size: int = 200_000) -> None:
        self.marked = [
            Udp(pair, mark(1), size=200),
            Udp(pair, mark(40, job=1)),
            Udp(pair, mark(5, job=2), size=14_000, segment=1400),
        ]
        self.unmarked = [Udp(pair), Udp(pair, size=14_000, segment=1400)]
        self.tcp = [
            Tcp(pair.a, pair.b, pair.B4, tcp_size, so_mark, seed=i)
            for i, so_mark in enumerate((mark(3), mark(64, job=1), 0, 0))
        ]

    def run(self, *, rounds: int = 10, limit: float = 60) -> None:
        for _ in range(rounds):
            for flow in (*self.marked, *self.unmarked):
                flow.send(2)
            transfer(self.tcp, until=0.005)
        transfer(self.tcp, limit=limit)
        assert all(c.intact for c in self.tcp)

    def close(self) -> None:
        for flow in (*self.marked, *self.unmarked, *self.tcp):
            flow.close()


def consistent(found: dict[str, tc.Record], parent: Parent) -> None:
    """Every qdisc on the way has sent what mercury has sent."""
    for field in ("packets", "bytes"):
        sent = sum(found[handle][field] for handle in parent.mercury)
        for handle in parent.above:
            assert found[handle][field] == sent, (handle, field, found[handle][field], sent)


def classes_add_up(ns: Namespace, parent: Parent) -> None:
    """mercury has sent what its jobs and its default class have sent."""
    found = {q["handle"]: q for q in tc.qdiscs(ns)}
    for handle in parent.mercury:
        classes = tc.classes(ns, handle)
        users = [c for name, c in classes.items() if re.fullmatch(f"{handle}(fc..|ffff)", name)]
        for field in ("packets", "bytes"):
            total = sum(c[field] for c in users)
            assert total == found[handle][field], (handle, field, total, found[handle][field])


def comes_through(
    pair: Pair, wire: Capture, parent: Parent, *, loses: bool = False, duplicates: bool = False
) -> dict[str, tc.Record]:
    """Run traffic through a tree, then check that nothing is left in it."""
    traffic = Traffic(pair)
    traffic.run()
    found = {q["handle"]: q for q in checks.wait_until_empty(pair.a)}
    packets = wire.ours()
    checks.nothing_lost_of_segments(packets, traffic.marked)
    for flow in traffic.unmarked:
        got = checks.datagrams(packets, flow)
        if not duplicates:
            assert got == sorted(set(got))
        if not loses:
            assert set(got) == set(range(flow.seq))
    if not loses:
        assert not {h: q["drops"] for h, q in found.items() if q["drops"]}
    consistent(found, parent)
    if not duplicates:
        classes_add_up(pair.a, parent)
    traffic.close()
    return found
