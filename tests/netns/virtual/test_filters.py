# SPDX-License-Identifier: GPL-2.0
"""tc filters and their actions on mercury."""

from __future__ import annotations

import time

import pytest

from lib import checks, tc
from lib.capture import Capture
from lib.netns import Pair
from lib.traffic import Udp, mark

_FILTER = "filter add dev eth0 parent 1: protocol ip prio 1"
_PORT = 7777
_MATCHES = {
    "u32": f"u32 match ip dport {_PORT} 0xffff",
    "flower": f"flower ip_proto udp dst_port {_PORT}",
    "fw": "handle 0x77000000 fw",
    "matchall": "matchall",
}


def _matched(pair: Pair) -> Udp:
    """A flow that all the filters above match. Its mark says layer 0."""
    return Udp(pair, 0x77000000, port=_PORT)


def _sent(pair: Pair) -> dict[str, int]:
    return {n: c["packets"] for n, c in tc.classes(pair.a).items() if c["packets"]}


@pytest.mark.parametrize("match", _MATCHES)
@pytest.mark.parametrize(
    ("flowid", "expected"),
    [
        ("1:1", {tc.job(0), tc.band(0, 0)}),
        ("1:803", {tc.job(2), tc.band(2, 2)}),
        ("1:fc01", {tc.job(1), tc.band(1, 63)}),
        ("1:ffff", {tc.DEFAULT}),
        ("1:3ff", {tc.job(0), tc.band(0, 63)}),  # beyond the bands
        ("2:5", {tc.job(0), tc.band(0, 4)}),  # the minor number counts, as in prio
    ],
)
def test_flowid(
    pair: Pair, wire: Capture, match: str, flowid: str, expected: set[str]
) -> None:
    pair.add("")
    pair.a.tc(f"{_FILTER} {_MATCHES[match]} flowid {flowid}")
    _matched(pair).send(3)
    assert len(wire.ours()) == 3
    assert _sent(pair) == dict.fromkeys(expected, 3)


@pytest.mark.parametrize("match", ["u32", "flower", "fw"])
def test_what_no_filter_matches_goes_by_its_key(pair: Pair, wire: Capture, match: str) -> None:
    pair.add("")
    pair.a.tc(f"{_FILTER} {_MATCHES[match]} flowid 1:1")
    Udp(pair, mark(9, job=3)).send(3)
    assert len(wire.ours()) == 3
    assert _sent(pair) == {tc.job(3): 3, tc.band(3, 8): 3}


@pytest.mark.parametrize("match", _MATCHES)
def test_a_filter_decides_the_order(pair: Pair, wire: Capture, match: str) -> None:
    pair.add("rate 1gbit")
    bulk = Udp(pair, priority=0x10029)  # its classid is not asked for twice
    bulk.send(200)
    pair.a.tc(f"{_FILTER} {_MATCHES[match]} flowid 1:1")
    urgent = _matched(pair)
    urgent.send()
    time.sleep(0.1)
    checks.overtakes_all_queued(wire.ours(), urgent, bulk)


def test_a_job_by_filter_keeps_the_layer_of_the_mark(pair: Pair, wire: Capture) -> None:
    pair.add("")
    pair.a.tc(f"{_FILTER} {_MATCHES['u32']} flowid 1:fc02")
    Udp(pair, mark(7), port=_PORT).send(3)
    assert len(wire.ours()) == 3
    assert _sent(pair) == {tc.job(2): 3, tc.band(2, 6): 3}


@pytest.mark.parametrize("action", ["drop", "trap"])
@pytest.mark.parametrize("parent", ["", "tbf"])
def test_packets_that_an_action_takes_are_gone(
    pair: Pair, wire: Capture, action: str, parent: str
) -> None:
    if parent:
        pair.a.tc("qdisc add dev eth0 root handle 9: tbf rate 100mbit burst 2k limit 1mb")
        pair.a.tc("qdisc add dev eth0 parent 9:1 handle 1: mercury")
    else:
        pair.add("rate 100mbit")
    pair.a.tc(f"{_FILTER} {_MATCHES['u32']} action {action}")
    gone, stays = _matched(pair), Udp(pair, mark(5))
    for _ in range(50):
        gone.send()
        stays.send()
    time.sleep(0.1)
    packets = wire.ours()
    assert {p.flow for p in packets} == {stays.flow}
    checks.nothing_lost(packets, [stays])
    found = {q["handle"]: q for q in checks.wait_until_empty(pair.a)}
    assert found["1:"]["packets"] == 50
    assert found["1:"]["drop_filter"] == (50 if action == "drop" else 0)
    if parent:
        assert found["9:"]["packets"] == 50


@pytest.mark.parametrize("action", ["ok", "pipe", "continue", "reclassify"])
def test_packets_that_an_action_lets_go(pair: Pair, wire: Capture, action: str) -> None:
    """`reclassify` again and again is refused by the kernel, which drops the packet."""
    pair.add("")
    pair.a.tc(f"{_FILTER} {_MATCHES['u32']} action {action}")
    Udp(pair, mark(7), port=_PORT).send(3)
    expected = 0 if action == "reclassify" else 3
    assert len(wire.ours()) == expected
    assert _sent(pair) == (
        {tc.job(0): 3, tc.band(0, 6): 3} if expected else {}
    )
    checks.wait_until_empty(pair.a)


@pytest.mark.parametrize("kind", ["redirect", "mirror"])
def test_mirred(pair: Pair, wire: Capture, kind: str) -> None:
    pair.a.ip("link add other type dummy", "link set other up")
    other = Capture(pair.a, "other", outgoing=True)
    pair.add("rate 100mbit")
    pair.a.tc(f"{_FILTER} {_MATCHES['u32']} action mirred egress {kind} dev other")
    flow, stays = Udp(pair, mark(7), port=_PORT), Udp(pair, mark(8))
    flow.send(10)
    stays.send(10)
    time.sleep(0.1)
    assert checks.sequence(other.ours(), flow) == list(range(10))
    packets = wire.ours()
    assert checks.sequence(packets, stays) == list(range(10))
    assert len(checks.sequence(packets, flow)) == (0 if kind == "redirect" else 10)
    assert checks.wait_until_empty(pair.a)[0]["packets"] == len(packets)


@pytest.mark.parametrize(
    ("options", "edit"),
    [("", "mark 9"), ("key priority", "priority :9"), ("", "mark 0x30009")],
)
def test_skbedit_of_the_key_in_a_filter(
    pair: Pair, wire: Capture, options: str, edit: str
) -> None:
    """A filter without a flowid leaves the choice to the key as it is then."""
    pair.add(options)
    pair.a.tc(f"{_FILTER} {_MATCHES['u32']} action skbedit {edit}")
    Udp(pair, port=_PORT).send(3)
    assert len(wire.ours()) == 3
    job = 3 if edit.endswith("30009") else 0
    assert _sent(pair) == {tc.job(job): 3, tc.band(job, 8): 3}


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        ("mark 9", {tc.job(0), tc.band(0, 8)}),
        ("priority 1:403", {tc.job(1), tc.band(1, 2)}),
        ("priority 1:ffff", {tc.DEFAULT}),
    ],
)
def test_skbedit_before_the_qdisc(
    pair: Pair, wire: Capture, edit: str, expected: set[str]
) -> None:
    pair.a.tc("qdisc add dev eth0 clsact")
    pair.add("")
    pair.a.tc(f"filter add dev eth0 egress protocol ip {_MATCHES['u32']} action skbedit {edit}")
    Udp(pair, port=_PORT).send(3)
    assert len(wire.ours()) == 3
    assert _sent(pair) == dict.fromkeys(expected, 3)


def test_a_classid_in_priority_goes_before_filters(pair: Pair, wire: Capture) -> None:
    pair.add("")
    pair.a.tc(f"{_FILTER} matchall action drop")
    Udp(pair, priority=0x10005).send(3)
    assert len(wire.ours()) == 3
    assert _sent(pair) == {tc.job(0): 3, tc.band(0, 4): 3}


def test_filters_come_and_go_under_traffic(pair: Pair, wire: Capture) -> None:
    pair.add("rate 1gbit")
    flow = Udp(pair, mark(41), port=_PORT)
    for _ in range(10):
        pair.a.tc(f"{_FILTER} {_MATCHES['u32']} flowid 1:1")
        flow.send(20)
        pair.a.tc("filter del dev eth0 parent 1: prio 1")
        flow.send(20)
    time.sleep(0.1)
    checks.nothing_lost(wire.ours(), [flow])
    assert _sent(pair) == {tc.job(0): 400, tc.band(0, 0): 200, tc.band(0, 40): 200}


def test_filters_belong_to_the_qdisc_only(pair: Pair) -> None:
    pair.add("")
    for cls in ("1:1", "1:fc00", "1:ffff"):
        pair.a.refused(f"filter add dev eth0 parent {cls} protocol ip matchall flowid 1:1", 2)
    assert pair.a.tc("filter show dev eth0") == ""


def test_filters_go_with_the_qdisc(pair: Pair, wire: Capture) -> None:
    pair.add("")
    pair.a.tc(f"{_FILTER} {_MATCHES['u32']} action drop")
    pair.a.tc("qdisc del dev eth0 root")
    pair.add("")
    _matched(pair).send(3)
    assert len(wire.ours()) == 3
