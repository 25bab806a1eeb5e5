# SPDX-License-Identifier: GPL-2.0
"""The order in which packets leave, seen at the other end of the link."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest

from lib import checks
from lib.capture import Capture
from lib.netns import Pair
from lib.traffic import Udp, mark


@pytest.mark.parametrize("bands", [41, 1024])
def test_band_0_leaves_before_queued_bulk_of_band_40(
    pair: Pair, wire: Capture, bands: int
) -> None:
    pair.add(f"bands {bands} rate 1gbit")
    bulk, urgent = Udp(pair, mark(41)), Udp(pair, mark(1))
    bulk.send(500)
    time.sleep(0.001)
    urgent.send()
    time.sleep(0.1)
    packets = wire.ours()
    checks.nothing_lost(packets, [bulk, urgent])
    checks.overtakes_all_queued(packets, urgent, bulk)
    checks.in_order(packets)
    assert 100 < checks.order(packets, {bulk.flow: 0, urgent.flow: 1}).index(1) < 200


def test_urgent_packets_overtake_again_and_again(pair: Pair, wire: Capture) -> None:
    pair.add("rate 1gbit")
    bulk = Udp(pair, mark(41))
    bulk.send(2000)
    urgent = []
    for layer in range(1, 40):
        time.sleep(0.0003)
        urgent.append(Udp(pair, mark(layer)))
        urgent[-1].send()
    time.sleep(0.1)
    packets = wire.ours()
    checks.nothing_lost(packets, [bulk, *urgent])
    for flow in urgent:
        checks.overtakes_all_queued(packets, flow, bulk)


@pytest.mark.parametrize("bands", [2, 64, 65, 1024])
def test_all_bands_in_order(pair: Pair, wire: Capture, bands: int, rng: random.Random) -> None:
    """One packet in each band, queued in any order: the bitmap's words and their edges."""
    pair.add(f"bands {bands} rate 1gbit")
    stopper = Udp(pair, mark(1))
    stopper.send()
    layers = list(range(1, bands + 1))
    rng.shuffle(layers)
    flow = Udp(pair, mark(1), size=1000)
    layer_of_seq = {}
    for layer in layers:
        flow.re_mark(mark(layer))
        layer_of_seq[flow.seq] = layer
        flow.send()
    time.sleep(0.1)
    left = [layer_of_seq[s] for s in checks.sequence(wire.ours(), flow)]
    # While the queue was filled, a few could leave: what was least by then.
    early = next((i for i in range(len(left)) if left[i:] == sorted(left[i:])), len(left))
    assert len(left) == bands
    assert early <= bands // 20, left


def test_layers_beyond_the_bands_share_the_last_one(pair: Pair, wire: Capture) -> None:
    pair.add("bands 8 rate 1gbit")
    Udp(pair, mark(1)).send()
    flow = Udp(pair, mark(1))
    layers = [8, 9, 100, 0xFFFF, 7]
    for layer in layers:
        flow.re_mark(mark(layer))
        flow.send()
    time.sleep(0.1)
    assert checks.sequence(wire.ours(), flow) == [4, 0, 1, 2, 3]


def test_a_band_is_first_in_first_out(pair: Pair, wire: Capture) -> None:
    pair.add("rate 1gbit")
    flows = [Udp(pair, mark(7), size=100 + 300 * i) for i in range(4)]
    for i in range(200):
        flows[i % 4].send()
    time.sleep(0.1)
    assert checks.order(wire.ours(), {f.flow: i for i, f in enumerate(flows)}) == [
        i % 4 for i in range(200)
    ]


def _check_order(
    pair: Pair, wire: Capture, flow_of_layer: Callable[[int], Udp], layers: list[int]
) -> None:
    """Queue two packets in each layer, the least urgent first: they leave sorted."""
    flow_of_layer(layers[0]).send(8)
    flows = {layer: flow_of_layer(layer) for layer in layers}
    for layer in sorted(layers, reverse=True):
        flows[layer].send(2)
    time.sleep(0.1)
    packets = wire.ours()
    assert checks.order(packets, {f.flow: layer for layer, f in flows.items()}) == [
        layer for layer in sorted(layers) for _ in range(2)
    ]


def test_key_priority(pair: Pair, wire: Capture) -> None:
    pair.add("key priority rate 1gbit")
    _check_order(pair, wire, lambda n: Udp(pair, priority=n), [1, 2, 6, 7, 40, 63])


def test_key_priority_ignores_the_mark(pair: Pair, wire: Capture) -> None:
    pair.add("key priority rate 1gbit")
    _check_order(pair, wire, lambda n: Udp(pair, mark(64 - n), priority=n), [1, 2, 40])


def test_key_mark_ignores_priority_and_dscp(pair: Pair, wire: Capture) -> None:
    pair.add("rate 1gbit")
    _check_order(pair, wire, lambda n: Udp(pair, mark(n), tos=(63 - n) << 2), [1, 2, 40])


@pytest.mark.parametrize("v6", [False, True], ids=["ipv4", "ipv6"])
def test_key_dscp(make_pair: Callable[..., Pair], v6: bool) -> None:
    pair = make_pair(ipv6=v6)
    wire = Capture(pair.b)
    pair.add("key dscp rate 1gbit")
    # ECN bits do not count.
    _check_order(pair, wire, lambda n: Udp(pair, tos=n << 2 | n & 1, v6=v6), [1, 2, 10, 46, 63])


@pytest.mark.parametrize("where", ["beside the packet", "in the packet"])
@pytest.mark.parametrize("v6", [False, True], ids=["ipv4", "ipv6"])
def test_key_dscp_in_a_vlan(make_pair: Callable[..., Pair], v6: bool, where: str) -> None:
    """The tag of a VLAN is in the skb's fields, or already in its data."""
    pair = make_pair(ipv6=v6)
    in_packet = where == "in the packet"
    if in_packet:
        pair.a.switch_vlan_offload_off("eth0")
    pair.a.ip(
        f"link add link eth0 name eth0.5 type vlan id 5 reorder_hdr {'off' if in_packet else 'on'}",
        "link set eth0.5 up",
        "addr add 10.5.0.1/24 dev eth0.5",
        f"neigh add 10.5.0.9 lladdr {pair.B_MAC} dev eth0.5",
        *(
            ["addr add fd05::1/64 dev eth0.5 nodad",
             f"neigh add fd05::9 lladdr {pair.B_MAC} dev eth0.5"]
            if v6 else []
        ),
    )
    wire = Capture(pair.b)
    pair.add("key dscp rate 1gbit")
    to = "fd05::9" if v6 else "10.5.0.9"
    seen: list[Udp] = []

    def flow(n: int) -> Udp:
        seen.append(Udp(pair, tos=n << 2, v6=v6, to=to))
        return seen[-1]

    _check_order(pair, wire, flow, [1, 2, 10, 46, 63])
    seen[0].send()
    time.sleep(0.1)
    assert {p.vlan for p in wire.ours()} == {5}


def test_unmarked_packets_keep_their_order(pair: Pair, wire: Capture) -> None:
    """Layer 0 is the default class, whatever else the mark says."""
    pair.add("rate 1gbit")
    pair.a.tc("qdisc add dev eth0 parent 1:ffff pfifo limit 1000")
    flow = Udp(pair)
    for i in range(100):
        flow.re_mark([0, 0x10000, 0x3F0000, 0x1000000][i % 4])
        flow.send()
    time.sleep(0.1)
    assert checks.sequence(wire.ours(), flow) == list(range(100))
