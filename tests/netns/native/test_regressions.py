# SPDX-License-Identifier: GPL-2.0
"""
Trees that have broken other qdiscs, with mercury in the place of each.

The situations are those of the kernel's own regression corpus
(tools/testing/selftests/tc-testing/tc-tests/infra/qdiscs.json; its ids are in
the names): deletion and change with a backlog, a child that empties itself while
it is peeked at, that drops what it has just taken, that duplicates. Afterwards
every level counts the same packets, and the tree can go.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from lib import checks, kernel, tc
from lib.netns import Namespace, Pair
from lib.traffic import Udp, mark

# Nothing leaves it while a test lasts, but for a burst.
STOPPED = "tbf rate 8bit burst 2000b limit 100kb"
# One packet more than a burst, and a parent that peeks before every packet.
PEEKING = "tbf rate 100mbit burst 2000b peakrate 200mbit minburst 1600 limit 100kb"
DROPS_ALL_BUT_ONE = "fq_codel memory_limit 1 flows 1 target 0.1ms interval 1ms"


@pytest.fixture
def small(make_pair: Callable[..., Pair]) -> Pair:
    return make_pair(queues=4)


def build(ns: Namespace, *lines: str) -> None:
    """Lines of tc without the words that all of them have: `add`, `dev eth0`."""
    for line in lines:
        kind, rest = line.split(maxsplit=1)
        ns.tc(f"{kind} add dev eth0 {rest}")


def send(pair: Pair, *marks: int, count: int = 1, size: int = 500) -> None:
    for so_mark in marks:
        flow = Udp(pair, so_mark, size=size)
        flow.ignore_errors = True  # a drop is what some trees are for
        flow.send(count)
        flow.close()


def held(ns: Namespace) -> dict[str, tuple[int, int]]:
    return {q["handle"]: (q["qlen"], q["backlog"]) for q in tc.qdiscs(ns)}


def wait_until_held(ns: Namespace, *handles: str) -> tuple[int, int]:
    """Wait until these qdiscs, each below the one before, hold the same; what it is."""
    end = time.monotonic() + 10
    while True:
        now = held(ns)
        found = {now[handle] for handle in handles}
        if len(found) == 1:
            return found.pop()
        assert time.monotonic() < end, {handle: now[handle] for handle in handles}
        time.sleep(0.02)


def classes_hold_it(ns: Namespace, handle: str = "1:") -> None:
    """
    The classes of a stopped qdisc hold what it holds, but for one packet that a
    parent has seen.
    """
    in_classes = sum(
        c.get("qlen", 0)
        for name, c in tc.classes(ns, handle).items()
        if name.startswith((f"{handle}fc", f"{handle}ffff"))
    )
    assert tc.qdisc(ns, handle)["qlen"] - in_classes in (0, 1)


@pytest.fixture(autouse=True)
def may_hold_back(quiet_kernel: kernel.Log) -> None:
    """A child that does, as netem, makes hfsc, qfq, drr and ets remark on its parent."""
    quiet_kernel.expected = "non-work-conserving"


@pytest.fixture(autouse=True)
def goes_away() -> Iterator[None]:
    """Whatever a tree still holds is freed with it: fixtures made later end earlier."""
    yield
    kernel.wait_until_unused()


# --- Deletion and change with a backlog, below a parent that has peeked -----------


@pytest.mark.parametrize(
    "change",
    [
        "qdisc change dev eth0 handle 1: parent 9:1 mercury limit 1",
        "qdisc change dev eth0 handle 1: parent 9:1 mercury limit 1 jobs 1 bands 2",
        "class change dev eth0 classid 1:fc00 mercury limit 1",
        "qdisc replace dev eth0 handle 1: parent 9:1 mercury jobs 62 bands 1024",
        "qdisc change dev eth0 parent 1:ffff handle f1: pfifo limit 1",
        "qdisc del dev eth0 parent 1:ffff",
    ],
)
def test_34c0_change_and_delete_below_tbf(pair: Pair, change: str) -> None:
    build(
        pair.a,
        f"qdisc root handle 9: {STOPPED}",
        "qdisc parent 9:1 handle 1: mercury limit 1000",
        "qdisc parent 1:ffff handle f1: pfifo limit 1000",
    )
    send(pair, mark(1), mark(9), 0, count=10)
    assert wait_until_held(pair.a, "9:", "1:")[0] > 20
    pair.a.tc(change)
    wait_until_held(pair.a, "9:", "1:")
    classes_hold_it(pair.a)
    pair.a.tc("qdisc del dev eth0 handle 1: parent 9:1")
    assert held(pair.a)["9:"] == (0, 0)


def test_c024_displaced_packets_below_tbf(pair: Pair) -> None:
    """One packet is the limit; what comes is more urgent, or less, and of other sizes."""
    build(
        pair.a,
        f"qdisc root handle 9: {STOPPED}",
        "qdisc parent 9:1 handle 1: mercury limit 1",
    )
    for so_mark, size in [(mark(9), 1400), (mark(1), 100), (mark(9), 1400), (mark(1), 1400)] * 3:
        send(pair, so_mark, count=2, size=size)
        wait_until_held(pair.a, "9:", "1:")
        classes_hold_it(pair.a)
    assert tc.qdisc(pair.a)["drops"] > 0
    pair.a.tc("qdisc del dev eth0 handle 1: parent 9:1")
    assert held(pair.a)["9:"] == (0, 0)


# --- A child that drops what it has just taken, below every parent -----------------

_CLASSFUL = {
    "htb": ("htb default 10", "class parent 9: classid 9:10 htb rate 100kbit"),
    "qfq": ("qfq", "class parent 9: classid 9:10 qfq weight 1 maxpkt 2000"),
    "hfsc": (
        "hfsc default 10",
        "class parent 9: classid 9:10 hfsc sc rate 100kbit ul rate 100kbit",
    ),
    "drr": ("drr", "class parent 9: classid 9:10 drr quantum 1500"),
    "ets": ("ets bands 16 strict 16", ""),
    "prio": ("prio bands 16", ""),
}


def below(ns: Namespace, parent: str, *lines: str) -> None:
    """A mercury at 9:10, where every packet goes."""
    kind, classes = _CLASSFUL[parent]
    build(
        ns,
        f"qdisc root handle 9: {kind}",
        *filter(None, [classes]),
        "qdisc parent 9:10 handle 1: mercury",
        "filter parent 9: matchall classid 9:10",
        *lines,
    )


@pytest.mark.parametrize("parent", _CLASSFUL)
def test_a4bb_a_child_that_drops_while_empty(pair: Pair, parent: str) -> None:
    below(pair.a, parent, f"qdisc parent 1:ffff handle 2: {DROPS_ALL_BUT_ONE}")
    for _ in range(3):
        send(pair, 0, count=20)
        send(pair, mark(1), mark(9), count=2)
        checks.wait_until_empty(pair.a)
    # Below the others a packet is gone before the next one comes.
    assert tc.qdisc(pair.a, "2:")["drops"] > 0 or parent not in ("htb", "hfsc")
    assert tc.qdisc(pair.a)["packets"] > 0


@pytest.mark.parametrize("parent", _CLASSFUL)
def test_4366_a_cake_that_is_too_small(pair: Pair, parent: str) -> None:
    below(pair.a, parent, "qdisc parent 1:ffff handle 2: cake memlimit 9")
    send(pair, 0, mark(2), count=5)
    checks.wait_until_empty(pair.a)
    pair.a.tc("qdisc replace dev eth0 parent 9:10 handle 3: netem delay 0ms")
    send(pair, 0, count=5)
    checks.wait_until_empty(pair.a)
    assert tc.qdisc(pair.a, "3:")["packets"] == 5


@pytest.mark.parametrize("parent", _CLASSFUL)
def test_90ec_a_child_that_duplicates(pair: Pair, parent: str) -> None:
    """netem hands the duplicate to the root while the parent is in the middle of enqueue."""
    below(pair.a, parent, "qdisc parent 1:ffff handle 2: netem duplicate 100%")
    send(pair, 0)
    checks.wait_until_empty(pair.a)
    assert tc.qdisc(pair.a, "9:")["packets"] == 2
    assert tc.qdisc(pair.a)["packets"] == 2


def test_7c3b_a_child_that_duplicates_below_two_drr(pair: Pair) -> None:
    build(
        pair.a,
        "qdisc root handle 8: drr",
        "class parent 8: classid 8:1 drr",
        "filter parent 8: matchall classid 8:1",
        "qdisc parent 8:1 handle 9: drr",
        "class parent 9: classid 9:1 drr",
        "filter parent 9: matchall classid 9:1",
        "qdisc parent 9:1 handle 1: mercury",
        "qdisc parent 1:ffff handle 2: netem duplicate 100%",
    )
    send(pair, 0)
    checks.wait_until_empty(pair.a)
    assert {tc.qdisc(pair.a, handle)["packets"] for handle in ("8:", "9:", "1:")} == {2}


@pytest.mark.parametrize("parent", _CLASSFUL)
def test_5456_a_blackhole_in_the_default_class(pair: Pair, parent: str) -> None:
    """What it takes is gone at once, and it says that it has not failed."""
    below(pair.a, parent, "qdisc parent 1:ffff handle 2: blackhole")
    send(pair, 0, count=5)
    checks.wait_until_empty(pair.a)
    send(pair, mark(1), count=5)
    checks.wait_until_empty(pair.a)
    assert tc.qdisc(pair.a)["packets"] == 5


@pytest.mark.parametrize("parent", _CLASSFUL)
def test_a4b9_a_filter_that_drops_all(pair: Pair, parent: str) -> None:
    below(pair.a, parent, "filter parent 1: matchall action drop")
    send(pair, 0, mark(3), count=5)
    checks.wait_until_empty(pair.a)
    assert tc.qdisc(pair.a)["packets"] == 0
    pair.a.tc("filter del dev eth0 parent 1:")
    send(pair, 0, mark(3), count=5)
    checks.wait_until_empty(pair.a)
    assert tc.qdisc(pair.a)["packets"] == 10


# --- Classes that go with a backlog in the mercury below them ----------------------


@pytest.mark.parametrize("handle", ["1:", "fffe:"])
def test_ca5e_delete_the_class_above(pair: Pair, handle: str) -> None:
    build(
        pair.a,
        "qdisc root handle 9: drr",
        "filter parent 9: basic classid 9:1",
        "class parent 9: classid 9:1 drr",
        f"qdisc parent 9:1 handle {handle} mercury",
        f"qdisc parent {handle}ffff handle 2: netem delay 100s",
    )
    send(pair, 0, count=3)
    wait_until_held(pair.a, "9:", handle, "2:")
    pair.a.tc(f"qdisc del dev eth0 parent {handle}ffff")
    assert wait_until_held(pair.a, "9:", handle) == (0, 0)
    pair.a.tc(f"qdisc replace dev eth0 parent {handle}ffff handle 3: netem delay 100s")
    send(pair, 0, count=3)
    pair.a.tc("class del dev eth0 classid 9:1")
    assert held(pair.a)["9:"] == (0, 0)
    pair.a.tc("class add dev eth0 parent 9: classid 9:1 drr")
    send(pair, 0, count=3)
    checks.wait_until_empty(pair.a)


@pytest.mark.parametrize("parent", ["root", "parent 9:1"])
def test_ca5e_the_last_handle_is_refused(pair: Pair, parent: str) -> None:
    """As ffff: its default class would be ffff:ffff, which means the root of the device."""
    pair.a.tc("qdisc add dev eth0 root handle 9: prio")
    command = "replace" if parent == "root" else "add"
    words = f"qdisc {command} dev eth0 {parent} handle ffff: mercury"
    assert "the handle must not be ffff:" in pair.a.refused(words, status=2)


def test_33a9_an_ingress_qdisc_is_not_taken_for_the_parent(pair: Pair) -> None:
    pair.a.tc("qdisc add dev eth0 ingress")
    below(pair.a, "drr", "qdisc parent 1:ffff handle 2: netem delay 100s")
    send(pair, 0, count=3)
    wait_until_held(pair.a, "9:", "1:", "2:")
    pair.a.tc("qdisc del dev eth0 parent 1:ffff")
    assert wait_until_held(pair.a, "9:", "1:") == (0, 0)


def test_309e_hfsc_classes_that_go_with_a_duplicating_child(pair: Pair) -> None:
    build(
        pair.a,
        f"qdisc root handle 8: {STOPPED}",
        "qdisc parent 8:1 handle 9: hfsc",
        "class parent 9: classid 9:1 hfsc rt m2 20Kbit",
        "class parent 9: classid 9:2 hfsc rt m2 20Kbit",
        "qdisc parent 9:1 handle 1: mercury",
        "qdisc parent 1:ffff handle 2: netem duplicate 100%",
        "filter parent 9: protocol all prio 1 handle 5 fw classid 9:2",
        "filter parent 9: protocol all prio 2 matchall classid 9:1",
    )
    send(pair, 0, count=3)
    pair.a.tc("filter del dev eth0 parent 9: protocol all prio 2")
    pair.a.tc("class del dev eth0 classid 9:1")
    send(pair, mark(5), count=3)
    pair.a.tc("class change dev eth0 parent 9: classid 9:2 hfsc sc m2 20Kbit")
    assert tc.qdisc(pair.a, "8:")["qlen"] == tc.qdisc(pair.a, "9:")["qlen"]


@pytest.mark.parametrize("after", ["bands 1 strict 1", "bands 2 strict 1", "bands 2 strict 2"])
def test_6e4f_an_ets_band_becomes_strict_with_a_backlog(pair: Pair, after: str) -> None:
    build(
        pair.a,
        "qdisc root handle 9: ets bands 2 strict 1",
        "qdisc parent 9:2 handle 1: mercury rate 1kbit",
        "filter parent 9: basic classid 9:2",
    )
    send(pair, mark(1), mark(3), 0, count=3)
    assert wait_until_held(pair.a, "9:", "1:")[0] > 6
    pair.a.tc("qdisc change dev eth0 root handle 9: ets bands 2 strict 2")
    pair.a.tc(f"qdisc change dev eth0 root handle 9: ets {after}")
    send(pair, mark(1), count=3)
    if after.startswith("bands 2"):
        wait_until_held(pair.a, "9:", "1:")
    else:
        checks.wait_until_empty(pair.a)


def test_a3d7_hfsc_with_a_steep_curve(pair: Pair) -> None:
    build(
        pair.a,
        "qdisc root handle 9: hfsc default 1",
        "class parent 9: classid 9:1 hfsc rt m1 32gbit d 1ms m2 0bit ls m1 32gbit d 1ms m2 0bit",
        "qdisc parent 9:1 handle 1: mercury",
    )
    for _ in range(2):
        send(pair, 0, mark(2), count=3)
        checks.wait_until_empty(pair.a)
    assert tc.qdisc(pair.a)["packets"] == 12


# --- Peeked packets: above, and in the default class -------------------------------

_QFQ = (
    "class parent 3: classid 3:1 qfq maxpkt 2000 weight 1",
    "filter parent 3: matchall classid 3:1",
)


@pytest.mark.parametrize("leaf", [("qfq", *_QFQ), ("dualpi2",), ("tbf rate 50mbit burst 2k limit 1mb",)])
def test_7a5f_a_mercury_that_is_peeked_at_above_a_child_that_peeks(
    pair: Pair, leaf: tuple[str, ...]
) -> None:
    """What the child has been peeked at lies in its gso_skb, where dequeue must look."""
    build(
        pair.a,
        f"qdisc root handle 9: {PEEKING}",
        "qdisc parent 9:1 handle 1: mercury",
        f"qdisc parent 1:ffff handle 3: {leaf[0]}",
        *leaf[1:],
    )
    send(pair, 0, mark(1), 0, mark(9), count=10)
    checks.wait_until_empty(pair.a)
    assert {tc.qdisc(pair.a, handle)["packets"] for handle in ("9:", "1:")} == {40}


@pytest.mark.parametrize("middle", ["red limit 75700 min 1600 max 2400 avpkt 160", "multiq", "cbs"])
def test_7a5f_a_parent_that_is_peeked_at(
    small: Pair, middle: str
) -> None:
    if middle.startswith("red"):
        middle += " burst 100 probability 0.01 bandwidth 10mbit"
    build(
        small.a,
        f"qdisc root handle 8: {PEEKING}",
        f"qdisc parent 8:1 handle 9: {middle}",
        "qdisc parent 9:1 handle 1: mercury",
    )
    if middle == "multiq":
        small.a.tc("filter add dev eth0 parent 9: matchall action skbedit queue_mapping 0")
    send(small, 0, mark(1), mark(9), count=3)
    found = {q["handle"]: q for q in checks.wait_until_empty(small.a)}
    assert found["1:"]["packets"] + found["1:"]["drops"] + found["9:"]["drops"] >= 9
    assert found["8:"]["packets"] == found["1:"]["packets"] > 0


@pytest.mark.parametrize("child", ["pfifo", "qfq", "dualpi2"])
def test_476f_below_taprio(small: Pair, child: str) -> None:
    """Its gates are open half of the time. The device needs a clock of its own: a veth has one."""
    queues = " ".join(f"1@{i}" for i in range(4))
    gates = " ".join(f"sched-entry S 0{gate} 300000" for gate in ("f", "0"))
    build(
        small.a,
        f"qdisc root handle 9: taprio num_tc 4 map {'0 ' * 16} queues {queues} base-time 0 {gates}"
        " flags 0x0 clockid CLOCK_TAI",
        "qdisc parent 9:1 handle 1: mercury",
        f"qdisc parent 1:ffff handle 3: {child}",
        *(_QFQ if child == "qfq" else ()),
    )
    send(small, 0, mark(1), mark(9), count=10)
    checks.wait_until_empty(small.a)
    assert tc.qdisc(small.a)["packets"] == 30


@pytest.mark.parametrize(
    "child", ["fq_codel target 1us interval 1us flows 1", "codel target 1us interval 1us", "dualpi2"]
)
def test_c797_a_child_that_drops_while_it_is_peeked_at(pair: Pair, child: str) -> None:
    """qfq must not lose sight of a class whose child has dropped all but one."""
    build(
        pair.a,
        "qdisc root handle 9: qfq",
        "class parent 9: classid 9:1 qfq weight 1 maxpkt 2000",
        "class parent 9: classid 9:2 qfq weight 1 maxpkt 2000",
        "qdisc parent 9:1 handle 2: plug limit 100000",
        "qdisc parent 9:2 handle 1: mercury",
        f"qdisc parent 1:ffff handle 3: {child}",
        "filter parent 9: protocol all prio 1 handle 5 fw classid 9:1",
        "filter parent 9: protocol all prio 2 matchall classid 9:2",
    )
    send(pair, mark(5))
    send(pair, 0, count=5, size=1400)
    time.sleep(0.05)
    send(pair, 0, mark(1), count=5)
    pair.a.tc("qdisc change dev eth0 handle 2: plug release_indefinite")
    send(pair, mark(5), 0, mark(1), count=2)
    checks.wait_until_empty(pair.a)


# --- Lengths that are not those of the packets --------------------------------------


@pytest.mark.parametrize("split", ["split_gso", "no_split_gso"])
@pytest.mark.parametrize("stab", ["overhead 1000", "overhead -60 linklayer atm", "mpu 60000"])
def test_stab(pair: Pair, stab: str, split: str) -> None:
    """A table of sizes makes packets longer or shorter; segments have their own length."""
    pair.a.tc(f"qdisc add dev eth0 root handle 1: stab {stab} mercury rate 1kbit {split}")
    for so_mark in (0, mark(1), mark(40)):
        flow = Udp(pair, so_mark, size=14_000, segment=1400)
        flow.send(3)
        flow.close()
    send(pair, 0, mark(1), count=5)
    assert tc.qdisc(pair.a)["qlen"] > 15
    classes_hold_it(pair.a)
    pair.change("rate none")
    checks.wait_until_empty(pair.a)
    classes_hold_it(pair.a)


# --- The device goes down, and other trees ------------------------------------------


def test_3a62_down_and_up_with_a_backlog_in_the_child(pair: Pair) -> None:
    build(
        pair.a,
        "qdisc root handle 9: qfq",
        "class parent 9: classid 9:1 qfq",
        "class parent 9: classid 9:2 qfq",
        "qdisc parent 9:1 handle 1: mercury",
        "qdisc parent 1:ffff handle 3: netem delay 100s",
        "filter parent 9: protocol all prio 1 handle 5 fw classid 9:2",
        "filter parent 9: protocol all prio 2 matchall classid 9:1",
    )
    send(pair, 0, count=3)
    pair.a.ip("link set eth0 down", "link set eth0 up")
    assert set(held(pair.a).values()) == {(0, 0)}
    pair.a.tc("qdisc replace dev eth0 parent 1:ffff handle 4: pfifo")
    pair.a.ip(f"neigh replace {pair.SINK4} lladdr {pair.B_MAC} dev eth0")
    send(pair, mark(5), 0, mark(1), count=3)
    checks.wait_until_empty(pair.a)
    assert tc.qdisc(pair.a)["packets"] == 6


def test_a4c3_hfsc_whose_class_empties_while_it_is_peeked_at(pair: Pair) -> None:
    """netem above a blackhole: what netem lets go is gone before hfsc sees it."""
    lines = (
        "class parent 9: classid 9:1 hfsc rt m1 5Mbit d 10ms m2 10Mbit",
        "qdisc parent 9:1 handle 1: mercury",
        "qdisc parent 1:ffff handle 4: netem delay 1ms",
        "qdisc parent 4:1 handle 5: blackhole",
    )
    build(pair.a, "qdisc root handle 9: hfsc default 1", *lines)
    send(pair, 0, count=3)
    pair.a.tc("class change dev eth0 parent 9: classid 9:1 hfsc sc m1 5Mbit d 10ms m2 10Mbit")
    pair.a.tc("qdisc del dev eth0 parent 9:1")
    pair.a.tc("class del dev eth0 classid 9:1")
    build(pair.a, *lines)
    send(pair, 0, count=3)
    pair.a.tc("class change dev eth0 parent 9: classid 9:1 hfsc sc m1 5Mbit d 10ms m2 10Mbit")
    checks.wait_until_empty(pair.a)


@pytest.mark.parametrize(
    "netem", ["delay 2ms reorder 30% 50%", "duplicate 50%", "loss 20% delay 1ms", "slot 1ms 2ms"]
)
def test_below_netem(pair: Pair, netem: str) -> None:
    build(
        pair.a,
        f"qdisc root handle 9: netem {netem} limit 2000",
        "qdisc parent 9:1 handle 1: mercury",
        "qdisc parent 1:ffff handle 3: pfifo limit 5",
    )
    send(pair, 0, mark(1), mark(40), count=30)
    found = {q["handle"]: q for q in checks.wait_until_empty(pair.a)}
    # What it sends out of turn it does not show to its child.
    assert found["9:"]["packets"] >= found["1:"]["packets"] > 0


def test_two_mercuries_under_one_parent(pair: Pair) -> None:
    """Side by side under prio, and one of them above another; each counts its own."""
    build(
        pair.a,
        "qdisc root handle 9: prio bands 2 priomap " + "1 " * 16,
        "qdisc parent 9:1 handle 1: mercury",
        "qdisc parent 9:2 handle 2: mercury",
        "qdisc parent 2:ffff handle 3: mercury mask 0xff00 job_mask 0",
        "filter parent 9: protocol all prio 1 handle 5 fw classid 9:1",
    )
    send(pair, mark(5), count=3)
    send(pair, mark(1), 0, 0xFF000000, count=4)
    checks.wait_until_empty(pair.a)
    assert [tc.qdisc(pair.a, h)["packets"] for h in ("9:", "1:", "2:", "3:")] == [15, 3, 12, 8]


def test_be28_where_mercury_cannot_be(pair: Pair) -> None:
    """Below a class that there is not, below ingress, and a child of its root."""
    pair.a.tc("qdisc add dev eth0 handle ffff: ingress")
    pair.a.refused("qdisc add dev eth0 parent ffff: handle 1: mercury", status=2)
    pair.a.tc("qdisc add dev eth0 root handle 9: hfsc")
    pair.a.refused("qdisc add dev eth0 parent 9:fff2 handle 1: mercury", status=2)
    pair.a.tc("qdisc replace dev eth0 root handle 1: mercury")
    pair.a.refused("qdisc add dev eth0 parent 1: handle 2: fq_codel", status=2)
