# SPDX-License-Identifier: GPL-2.0
"""What is dropped when too much is queued: sequence numbers behind the link."""

from __future__ import annotations

import random
import time
from collections import defaultdict

import pytest

from lib import checks, stopped, tc
from lib.capture import Capture
from lib.netns import Pair
from lib.traffic import Udp, mark

def test_push_out_takes_the_tail_of_the_least_urgent_band(pair: Pair, wire: Capture) -> None:
    pair.add(f"{stopped.OPTIONS} limit 100")
    stopped.stop(pair)
    middle, last, first = (Udp(pair, mark(n)) for n in (10, 20, 1))
    last.send(60)
    middle.send(60)  # 20 of the last band go
    first.send(30)  # 30 more
    packets = stopped.drain(pair, wire)
    assert checks.sequence(packets, first) == list(range(30))
    assert checks.sequence(packets, middle) == list(range(60))
    assert checks.sequence(packets, last) == list(range(10))
    assert tc.qdisc(pair.a)["drops"] == tc.qdisc(pair.a)["drop_limit"] == 50
    assert tc.classes(pair.a)[tc.band(0, 19)]["drops"] == 50


def test_a_less_urgent_packet_does_not_displace_a_more_urgent_one(
    pair: Pair, wire: Capture
) -> None:
    pair.add(f"{stopped.OPTIONS} limit 50")
    stopped.stop(pair)
    urgent, late, same = Udp(pair, mark(3)), Udp(pair, mark(30)), Udp(pair, mark(3))
    urgent.send(50)
    late.send(20)
    same.send(20)
    packets = stopped.drain(pair, wire)
    assert checks.sequence(packets, urgent) == list(range(50))
    assert checks.sequence(packets, late) == []
    assert checks.sequence(packets, same) == []


def test_push_out_goes_on_to_the_next_band(pair: Pair, wire: Capture) -> None:
    pair.add(f"{stopped.OPTIONS} limit 40 bands 1024")
    stopped.stop(pair)
    flows = {n: Udp(pair, mark(n)) for n in (1024, 700, 65, 64, 2)}
    for flow in flows.values():
        flow.send(20)
    packets = stopped.drain(pair, wire)
    left = {n: checks.sequence(packets, flow) for n, flow in flows.items()}
    twenty = list(range(20))
    assert left == {1024: [], 700: [], 65: [], 64: twenty, 2: twenty}


def test_random_against_a_model(pair: Pair, wire: Capture, rng: random.Random) -> None:
    """One job with limits of the qdisc, the job and some bands."""
    limit, job_limit, band_limits = 80, 60, {3: 10, 9: 0, 20: 25}
    pair.add(f"{stopped.OPTIONS} limit {limit} bands 32")
    pair.a.tc(f"class change dev eth0 classid {tc.job(0)} mercury limit {job_limit}")
    for band, of_band in band_limits.items():
        if of_band:
            pair.a.tc(f"class change dev eth0 classid {tc.band(0, band)} mercury limit {of_band}")
    stopped.stop(pair)
    flow = Udp(pair, mark(1), size=200)
    model: dict[int, list[int]] = defaultdict(list)
    for seq in range(600):
        band = rng.randrange(32)
        flow.re_mark(mark(band + 1))
        flow.send()
        if band_limits.get(band) and len(model[band]) >= band_limits[band]:
            continue
        model[band].append(seq)
        if sum(map(len, model.values())) > job_limit:
            model[max(b for b in model if model[b])].pop()
    left = checks.sequence(stopped.drain(pair, wire), flow)
    assert left == [seq for band in sorted(model) for seq in model[band]]


def test_the_job_that_holds_most_beyond_its_share_gives_way(pair: Pair, wire: Capture) -> None:
    """Even if what it holds is the more urgent: urgency counts inside a job."""
    pair.add(f"{stopped.OPTIONS} limit 100")
    stopped.stop(pair)
    hog, small = Udp(pair, mark(1)), Udp(pair, mark(60, job=1))
    hog.send(100)
    small.send(40)
    packets = stopped.drain(pair, wire)
    assert checks.sequence(packets, small) == list(range(40))
    assert checks.sequence(packets, hog) == list(range(60))


def test_the_share_of_the_limit_follows_the_weights(pair: Pair, wire: Capture) -> None:
    pair.add(f"{stopped.OPTIONS} limit 140")
    for job, weight in ((1, 2), (2, 4)):
        pair.a.tc(f"class change dev eth0 classid {tc.job(job)} mercury weight {weight}")
    stopped.stop(pair)
    flows = [Udp(pair, mark(5, job=j)) for j in range(3)]
    for _ in range(300):
        for flow in flows:
            flow.send()
    packets = stopped.drain(pair, wire)
    left = [checks.sequence(packets, flow) for flow in flows]
    assert sum(map(len, left)) == 140
    for seqs, share in zip(left, (20, 40, 80)):
        assert abs(len(seqs) - share) <= 1
        assert seqs == sorted(seqs)


def test_a_job_keeps_its_urgent_packets_when_it_gives_way(pair: Pair, wire: Capture) -> None:
    pair.add(f"{stopped.OPTIONS} limit 100")
    stopped.stop(pair)
    urgent, late, other = Udp(pair, mark(1)), Udp(pair, mark(9)), Udp(pair, mark(1, job=1))
    late.send(50)
    urgent.send(50)
    other.send(50)
    packets = stopped.drain(pair, wire)
    assert checks.sequence(packets, urgent) == list(range(50))
    assert checks.sequence(packets, late) == []
    assert checks.sequence(packets, other) == list(range(50))


def test_what_senders_are_told(pair: Pair, wire: Capture) -> None:
    """TCP takes what it is told for what has happened to its packet, not to another."""
    pair.add(f"{stopped.OPTIONS} limit 20 split_gso")
    pair.a.tc(f"class change dev eth0 classid {tc.band(0, 4)} mercury limit 1")
    stopped.stop(pair)
    late = Udp(pair, mark(30))
    late.send(20)
    told = {
        # 10 segments displace others, of a later band, of another job.
        "split": Udp(pair, mark(2), size=1400 * 10 - 9 * 42, segment=1400),
        "urgent": Udp(pair, mark(1)),
        "other job": Udp(pair, mark(60, job=1)),
        "limited": Udp(pair, mark(5)),
    }
    for flow in (late, *told.values()):
        flow.report_drops()
    told["urgent"].send(5)
    told["other job"].send(2)
    told["split"].send()
    told["limited"].send()
    for flow in (late, told["limited"]):
        with pytest.raises(OSError, match="No buffer space"):
            flow.send()
    # Of these 10 segments there is room for three, in place of what is left of `late`
    # and `limited`; then they displace each other. A part is not a drop.
    again = Udp(pair, mark(3), size=1400 * 10 - 9 * 42, segment=1400)
    again.report_drops()
    again.send()
    packets = stopped.drain(pair, wire)
    left = {name: len(checks.sequence(packets, flow)) for name, flow in told.items()}
    assert left == {"split": 10, "urgent": 5, "other job": 2, "limited": 0}
    assert checks.sequence(packets, again) == [0, 1, 2]


def test_unmarked_packets_are_limited_by_their_own_qdisc(pair: Pair, wire: Capture) -> None:
    pair.add(f"{stopped.OPTIONS} limit 10")
    pair.a.tc("qdisc add dev eth0 parent 1:ffff handle 2: pfifo limit 30")
    stopped.stop(pair)
    marked, unmarked = Udp(pair, mark(1)), Udp(pair)
    unmarked.send(50)
    marked.send(20)
    packets = stopped.drain(pair, wire)
    assert checks.sequence(packets, unmarked) == list(range(30))
    assert checks.sequence(packets, marked) == list(range(10))
    assert tc.qdisc(pair.a, "2:")["drops"] == 20


def test_memory_limit(pair: Pair, wire: Capture) -> None:
    """1 MiB of truesize: the tail of the least urgent band goes, and no more than must."""
    pair.add(f"{stopped.OPTIONS} memory_limit 1mb")
    stopped.stop(pair)
    late, urgent = Udp(pair, mark(9), size=1500), Udp(pair, mark(1), size=1500)
    late.send(1000)
    at_first = tc.qdisc(pair.a)
    urgent.send(100)
    packets = stopped.drain(pair, wire)
    held = at_first["qlen"]
    truesize = at_first["memory_used"] // held
    assert 1500 < truesize <= 4096
    assert (1 << 20) - truesize < at_first["memory_used"] <= 1 << 20
    assert checks.sequence(packets, urgent) == list(range(100))
    assert checks.sequence(packets, late) == list(range(held - 100))
    q = tc.qdisc(pair.a)
    assert q["drop_memory"] == q["drops"] == 1100 - held
    assert q["drop_limit"] == 0
    assert q["memory_used"] == 0
    assert (1 << 20) - truesize < q["memory_peak"] <= (1 << 20) + truesize


def test_memory_limit_takes_from_the_job_that_holds_most_bytes(pair: Pair, wire: Capture) -> None:
    """Not from the one with most packets."""
    pair.add(f"{stopped.OPTIONS} no_split_gso memory_limit 1mb")
    stopped.stop(pair)
    small = Udp(pair, mark(1), size=100)
    large = Udp(pair, mark(1, job=1), size=40000, segment=1400)
    small.send(500)
    large.send(60)
    packets = stopped.drain(pair, wire)
    assert checks.sequence(packets, small) == list(range(500))
    kept = len(checks.sequence(packets, large))
    assert 0 < kept < 60


def test_limit_of_a_job(pair: Pair, wire: Capture) -> None:
    pair.add(stopped.OPTIONS)
    pair.a.tc(f"class change dev eth0 classid {tc.job(1)} mercury limit 30")
    stopped.stop(pair)
    late, urgent = Udp(pair, mark(9, job=1)), Udp(pair, mark(1, job=1))
    other = Udp(pair, mark(9))
    late.send(40)
    urgent.send(20)
    other.send(40)
    packets = stopped.drain(pair, wire)
    assert checks.sequence(packets, urgent) == list(range(20))
    assert checks.sequence(packets, late) == list(range(10))
    assert checks.sequence(packets, other) == list(range(40))


def test_limit_of_a_band(pair: Pair, wire: Capture) -> None:
    pair.add(stopped.OPTIONS)
    pair.a.tc(f"class change dev eth0 classid {tc.band(0, 4)} mercury limit 7")
    stopped.stop(pair)
    limited, other = Udp(pair, mark(5)), Udp(pair, mark(6))
    limited.send(20)
    other.send(20)
    packets = stopped.drain(pair, wire)
    assert checks.sequence(packets, limited) == list(range(7))
    assert checks.sequence(packets, other) == list(range(20))
    assert tc.classes(pair.a)[tc.band(0, 4)]["drops"] == 13


@pytest.mark.parametrize(
    ("new", "left"),
    [("limit 30", (20, 10, 0)), ("limit 5", (5, 0, 0)), ("limit 1", (1, 0, 0)),
     ("limit 60", (20, 20, 20))],
)  # fmt: skip
def test_a_smaller_limit_under_traffic(
    pair: Pair, wire: Capture, new: str, left: tuple[int, ...]
) -> None:
    pair.add(stopped.OPTIONS)
    stopped.stop(pair)
    flows = [Udp(pair, mark(n)) for n in (1, 2, 64)]
    for flow in flows:
        flow.send(20)
    pair.change(new)
    packets = stopped.drain(pair, wire)
    assert tuple(len(checks.sequence(packets, f)) for f in flows) == left
    assert all(checks.sequence(packets, f) == list(range(n)) for f, n in zip(flows, left))
    assert tc.qdisc(pair.a)["drops"] == 60 - sum(left)


def test_a_smaller_memory_limit_under_traffic(pair: Pair, wire: Capture) -> None:
    pair.add(stopped.OPTIONS)
    stopped.stop(pair)
    urgent, late = Udp(pair, mark(1), size=1500), Udp(pair, mark(2), size=1500)
    late.send(600)
    urgent.send(300)
    pair.change("memory_limit 1mb")
    q = tc.qdisc(pair.a)
    assert q["memory_used"] <= 1 << 20
    packets = stopped.drain(pair, wire)
    assert checks.sequence(packets, urgent) == list(range(300))
    assert checks.sequence(packets, late) == list(range(q["qlen"] - 300))


def test_a_smaller_limit_of_a_job_under_traffic(pair: Pair, wire: Capture) -> None:
    pair.add(stopped.OPTIONS)
    stopped.stop(pair)
    urgent, late, other = Udp(pair, mark(1, job=2)), Udp(pair, mark(2, job=2)), Udp(pair, mark(3))
    for flow in (late, urgent, other):
        flow.send(20)
    pair.a.tc(f"class change dev eth0 classid {tc.job(2)} mercury limit 25")
    packets = stopped.drain(pair, wire)
    assert checks.sequence(packets, urgent) == list(range(20))
    assert checks.sequence(packets, late) == list(range(5))
    assert checks.sequence(packets, other) == list(range(20))


def test_fewer_jobs_keep_the_limit_of_the_last_job(pair: Pair, wire: Capture) -> None:
    """The packets of the jobs that are gone come under it at once."""
    pair.add(stopped.OPTIONS)
    pair.a.tc(f"class change dev eth0 classid {tc.job(1)} mercury limit 10")
    stopped.stop(pair)
    flows = [Udp(pair, mark(5, job=j)) for j in (1, 2, 3)]
    for flow in flows:
        flow.send(8)
    pair.change("jobs 2")
    assert tc.classes(pair.a)[tc.job(1)]["qlen"] == 10
    packets = stopped.drain(pair, wire)
    assert [len(checks.sequence(packets, f)) for f in flows] == [8, 2, 0]


# A chain of qdiscs above mercury: the lines that build it, and the handles. The
# shaper is at the top, so that the queue forms in mercury.
_TBF = "qdisc add dev eth0 root handle 9: tbf rate 10kbit burst 1600 limit 10mb"
_CHAINS = {
    "tbf": ([_TBF, "qdisc add dev eth0 parent 9:1 handle 1: mercury {}"], ["9:"]),
    "drr": (
        [
            _TBF,
            "qdisc add dev eth0 parent 9:1 handle a: drr",
            "class add dev eth0 parent a: classid a:1 drr",
            "filter add dev eth0 parent a: matchall flowid a:1",
            "qdisc add dev eth0 parent a:1 handle 1: mercury {}",
        ],
        ["9:", "a:"],
    ),
    "hfsc": (
        [
            "qdisc add dev eth0 root handle 9: hfsc default 1",
            "class add dev eth0 parent 9: classid 9:1 hfsc sc rate 10kbit ul rate 10kbit",
            "qdisc add dev eth0 parent 9:1 handle 1: mercury {}",
        ],
        ["9:"],
    ),
}


@pytest.mark.parametrize("chain", _CHAINS)
@pytest.mark.parametrize(
    ("options", "size"), [("limit 50", 1000), ("memory_limit 1mb", 1500)], ids=["packets", "memory"]
)
def test_accounting_under_a_parent(
    pair: Pair, wire: Capture, rng: random.Random, chain: str, options: str, size: int
) -> None:
    """Whatever is pushed out, parents hold what their child holds; then all is gone."""
    lines, parents = _CHAINS[chain]
    for line in lines:
        pair.a.tc(line.format(f"{options} rescue 0"))
    flow = Udp(pair, mark(1), size=size)
    count = 0
    for _ in range(20):
        for _ in range(60):
            flow.re_mark(mark(rng.randrange(1, 65), job=rng.randrange(3)))
            flow.send()
            count += 1
        found = {q["handle"]: q for q in tc.qdiscs(pair.a)}
        child = found["1:"]
        for handle in parents:
            # A packet that a parent has looked at already is the parent's.
            ahead = found[handle]["qlen"] - child["qlen"]
            assert ahead in (0, 1), (handle, found[handle], child)
            assert found[handle]["backlog"] == child["backlog"] + ahead * size
    assert found["1:"]["drops"] > 0
    time.sleep(3000)
    found = {q["handle"]: q for q in checks.wait_until_empty(pair.a)}
    captured = wire.ours()
    assert len(captured) + found["1:"]["drops"] == count
    for handle in (*parents, "1:"):
        assert found[handle]["packets"] == len(captured)
        assert found[handle]["bytes"] == sum(p.length for p in captured)


@pytest.mark.parametrize("parent", ["tbf", "hfsc"])
def test_a_smaller_limit_under_a_parent(pair: Pair, wire: Capture, parent: str) -> None:
    lines, parents = _CHAINS[parent]
    for line in lines:
        pair.a.tc(line.format("rescue 0"))
    flows = [Udp(pair, mark(n)) for n in (1, 2, 64)]
    for flow in flows:
        flow.send(20)
    pair.a.tc("qdisc change dev eth0 parent 9:1 handle 1: mercury limit 10")
    found = {q["handle"]: q for q in tc.qdiscs(pair.a)}
    assert found["9:"]["qlen"] == found["1:"]["qlen"]
    assert found["9:"]["backlog"] == found["1:"]["backlog"]
    time.sleep(100)
    checks.wait_until_empty(pair.a)
    left = wire.ours()
    # One has left at once, and one more may have been looked at by the parent.
    assert 11 <= len(left) <= 12
    assert {p.flow for p in left} == {flows[0].flow}


@pytest.mark.parametrize("options", ["limit 5", "memory_limit 1mb"])
def test_overload_by_segments(pair: Pair, wire: Capture, options: str) -> None:
    """A GSO packet that is split and does not fit: its last segments go."""
    pair.a.tc(_TBF)
    pair.a.tc(f"qdisc add dev eth0 parent 9:1 handle 1: mercury split_gso rescue 0 {options}")
    flow = Udp(pair, mark(3), size=42000, segment=1400)
    flow.send(30)
    found = {q["handle"]: q for q in tc.qdiscs(pair.a)}
    assert found["9:"]["qlen"] == found["1:"]["qlen"]
    assert found["9:"]["backlog"] == found["1:"]["backlog"]
    time.sleep(2000)
    found = {q["handle"]: q for q in checks.wait_until_empty(pair.a)}
    packets = wire.ours()
    assert {p.length for p in packets} <= {1400, 1260}
    assert found["9:"]["packets"] == found["1:"]["packets"] == len(packets)
    assert len(packets) + found["1:"]["drops"] == flow.seq
    checks.in_order(packets)
    # The first that fit, and one more for each that has left or that the parent looks at.
    left = checks.sequence(packets, flow)
    assert left[:-2] == list(range(len(left) - 2))
