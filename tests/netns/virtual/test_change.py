# SPDX-License-Identifier: GPL-2.0
"""Jobs and bands that grow and shrink, keys and masks that change, with a backlog."""

from __future__ import annotations

import random
import time

import pytest

from lib import checks, stopped, tc
from lib.capture import Capture
from lib.netns import Pair
from lib.traffic import Udp, mark

@pytest.mark.parametrize(
    ("old", "new"),
    [("bands 64", "bands 1024"), ("bands 64", "bands 2"), ("bands 1024", "bands 64"),
     ("bands 2", "bands 65"), ("jobs 16", "jobs 1"), ("jobs 1", "jobs 62"), ("jobs 62", "jobs 3"),
     ("jobs 62 bands 64", "jobs 1 bands 2"), ("jobs 1 bands 2", "jobs 62 bands 1024")],
)  # fmt: skip
def test_nothing_is_lost_and_flows_keep_their_order(
    pair: Pair, wire: Capture, rng: random.Random, old: str, new: str
) -> None:
    pair.add(f"{stopped.OPTIONS} {old}")
    pair.a.tc("qdisc add dev eth0 parent 1:ffff pfifo limit 1000")
    stopped.stop(pair)
    flows = [Udp(pair, mark(rng.randrange(1, 1200), rng.randrange(64))) for _ in range(60)]
    flows.append(Udp(pair))
    for _ in range(600):
        rng.choice(flows).send()
    pair.change(new)
    for _ in range(300):
        rng.choice(flows).send()
    q = tc.qdisc(pair.a)
    assert q["qlen"] == 900
    assert q["backlog"] == 900_000
    packets = stopped.drain(pair, wire)
    checks.nothing_lost(packets, flows)
    checks.in_order(packets)
    assert tc.qdisc(pair.a)["drops"] == 0


@pytest.mark.parametrize(("old", "new"), [(2, 64), (64, 2)])
def test_what_is_queued_goes_in_order_of_urgency(
    pair: Pair, wire: Capture, old: int, new: int
) -> None:
    """
    Layers that had to share the last band get their own; what shares the last band
    now was sorted before, and stays so.
    """
    pair.add(f"{stopped.OPTIONS} bands {old}")
    stopped.stop(pair)
    flows = {n: Udp(pair, mark(n)) for n in (40, 9, 2, 64, 1)}
    for flow in flows.values():
        flow.send(3)
    pair.change(f"bands {new}")
    packets = stopped.drain(pair, wire)
    order = checks.order(packets, {f.flow: n for n, f in flows.items()})
    assert order == [n for n in sorted(flows) for _ in range(3)]


def test_settings_of_what_stays_are_kept(pair: Pair) -> None:
    pair.add("jobs 4 bands 64 deadline 5 7ms deadline 2:9 9ms")
    pair.a.tc("class change dev eth0 classid 1:fc02 mercury weight 5 limit 77")
    pair.a.tc("class change dev eth0 classid 1:3 mercury limit 9")
    pair.change("bands 100")
    pair.change("jobs 3")
    pair.change("bands 32")
    for job in (0, 2):
        for band in (5, 9):
            Udp(pair, mark(band + 1, job)).send()
    classes = tc.classes(pair.a)
    assert (classes["1:fc02"]["weight"], classes["1:fc02"]["limit"]) == ("5", "77")
    assert classes["1:3"]["limit"] == "9"
    assert classes["1:6"]["deadline"] == classes[tc.band(2, 5)]["deadline"] == "7ms"
    assert classes[tc.band(2, 9)]["deadline"] == "9ms"
    assert classes[tc.band(0, 9)]["deadline"] == "100ms"
    assert "1:fc03" not in classes


def test_counters_of_what_goes_are_kept(pair: Pair, wire: Capture) -> None:
    pair.add("jobs 4")
    for job in range(4):
        Udp(pair, mark(60, job)).send(10)
    total = {k: tc.qdisc(pair.a)[k] for k in ("deadline_met", "packets", "bytes")}
    pair.change("jobs 2 bands 8")
    assert {k: tc.qdisc(pair.a)[k] for k in total} == total
    classes = tc.classes(pair.a)
    assert classes[tc.job(0)]["packets"] == 10
    assert classes[tc.job(1)]["packets"] == 30


@pytest.mark.parametrize("parent", ["tbf", "hfsc"])
def test_under_a_parent(pair: Pair, wire: Capture, rng: random.Random, parent: str) -> None:
    if parent == "tbf":
        pair.a.tc("qdisc add dev eth0 root handle 9: tbf rate 1mbit burst 1600 limit 10mb")
    else:
        pair.a.tc("qdisc add dev eth0 root handle 9: hfsc default 1")
        pair.a.tc("class add dev eth0 parent 9: classid 9:1 hfsc sc rate 1mbit ul rate 1mbit")
    pair.a.tc("qdisc add dev eth0 parent 9:1 handle 1: mercury")
    flows = [Udp(pair, mark(rng.randrange(1, 80), rng.randrange(20))) for _ in range(30)]
    sent = 0
    for options in ("bands 2", "jobs 1", "bands 1024", "jobs 62", "jobs 5 bands 5"):
        for _ in range(50):
            rng.choice(flows).send()
            sent += 1
        pair.a.tc(f"qdisc change dev eth0 parent 9:1 handle 1: mercury {options}")
        found = {q["handle"]: q for q in tc.qdiscs(pair.a)}
        assert found["9:"]["qlen"] == found["1:"]["qlen"] > 40
        assert found["9:"]["backlog"] == found["1:"]["backlog"]
        time.sleep(0.01)
    time.sleep(10)
    checks.wait_until_empty(pair.a)
    packets = wire.ours()
    checks.nothing_lost(packets, flows)
    checks.in_order(packets)


def test_change_of_the_key_under_traffic(pair: Pair, wire: Capture) -> None:
    """What is queued stays where it is; what comes goes by the new key."""
    pair.add(f"{stopped.OPTIONS} bands 64")
    stopped.stop(pair)
    queued = Udp(pair, mark(40), tos=1 << 2, priority=20)
    queued.send(5)
    pair.change("key dscp")
    by_dscp = Udp(pair, mark(50), tos=2 << 2, priority=60)
    by_dscp.send(5)
    pair.change("key priority")
    by_priority = Udp(pair, mark(60), tos=60 << 2, priority=5)
    by_priority.send(5)
    names = {queued.flow: "mark 40", by_dscp.flow: "dscp 2", by_priority.flow: "priority 5"}
    order = checks.order(stopped.drain(pair, wire), names)
    assert order == [n for n in ("dscp 2", "priority 5", "mark 40") for _ in range(5)]


def test_change_of_masks_under_traffic(pair: Pair, wire: Capture) -> None:
    pair.add(f"{stopped.OPTIONS} jobs 1")
    stopped.stop(pair)
    flow = Udp(pair, 0x0203)
    flow.send(3)  # 0xffff: layer 515, the last band
    pair.change("mask 0xff00 job_mask 0xff")
    flow.send(3)  # layer 2
    pair.change("mask 0xff job_mask 0")
    flow.send(3)  # layer 3
    assert checks.sequence(stopped.drain(pair, wire), flow) == [3, 4, 5, 6, 7, 8, 0, 1, 2]


def test_change_of_job_mask_under_traffic(pair: Pair, wire: Capture) -> None:
    pair.add("")
    Udp(pair, mark(5, job=3)).send(2)
    pair.change("job_mask 0")
    Udp(pair, mark(5, job=3)).send(3)
    pair.change("job_mask 0xff0000")
    Udp(pair, mark(5, job=2)).send(4)
    classes = tc.classes(pair.a)
    assert [classes[tc.job(j)]["packets"] for j in (3, 0, 2)] == [2, 3, 4]


def test_a_refused_change_changes_nothing(pair: Pair, wire: Capture) -> None:
    """One wrong option among right ones, with a backlog."""
    pair.add(f"{stopped.OPTIONS}")
    stopped.stop(pair)
    flow = Udp(pair, mark(30))
    flow.send(50)
    before = tc.qdiscs(pair.a), pair.a.tc("-s class show dev eth0")
    pair.a.refused("qdisc change dev eth0 root handle 1: mercury bands 2 limit 10 rescue 101")
    # This one is for the kernel to refuse: each mask alone is right.
    pair.a.refused("qdisc change dev eth0 root handle 1: mercury limit 10 mask 0xff0000", 2)
    assert (tc.qdiscs(pair.a), pair.a.tc("-s class show dev eth0")) == before
    checks.nothing_lost(stopped.drain(pair, wire), [flow])
