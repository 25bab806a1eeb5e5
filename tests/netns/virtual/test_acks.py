# SPDX-License-Identifier: GPL-2.0
"""ack_first: pure ACKs overtake, and nothing else in a flow does."""

from __future__ import annotations

import time

import pytest

from lib import checks, tc
from lib.capture import TCP_ACK, TCP_FIN, TCP_SYN, Capture, Packet
from lib.netns import Pair
from lib.traffic import Tcp, Udp, mark, transfer

MS = 10**6


def _acks(packets: list[Packet], port: int) -> list[Packet]:
    return [p for p in packets if p.sport == port and p.is_pure_ack]


def _answer_beside_bulk(pair: Pair, wire: Capture, options: str, layer: int = 41) -> int:
    """a receives 200 KB over a connection whose ACKs share a band with bulk.

    Returns how long a's first ACK took after b's first data.
    """
    pair.add(f"rate 10mbit rescue 0 {options}")
    # a connects to b, which sends: a's side is the `receiver` of the data.
    c = Tcp(pair.b, pair.a, pair.A4, 20_000, receiver_mark=mark(layer))
    wire.read()
    bulk = Udp(pair, mark(layer))
    bulk.send(250)  # 200 ms
    start = time.time_ns()
    transfer([c])
    time.sleep(1)
    packets = wire.read()
    assert c.intact
    assert sum(p.flow == bulk.flow for p in packets) >= 249
    acks = _acks(packets, c.port)
    assert acks
    return acks[0].time - start


def test_pure_acks_overtake_bulk_of_their_band(pair: Pair, wire: Capture) -> None:
    assert _answer_beside_bulk(pair, wire, "ack_first") < 2 * MS
    assert tc.qdisc(pair.a)["acks_first"] > 0


def test_acks_wait_in_their_band_with_no_ack_first(pair: Pair, wire: Capture) -> None:
    assert _answer_beside_bulk(pair, wire, "no_ack_first") > 190 * MS
    assert tc.qdisc(pair.a)["acks_first"] == 0


def test_acks_of_the_default_class_stay_there(pair: Pair, wire: Capture) -> None:
    pair.add("rate 10mbit")
    c = Tcp(pair.b, pair.a, pair.A4, 100_000)
    transfer([c])
    assert tc.qdisc(pair.a)["acks_first"] == 0
    assert c.intact


def test_change_under_traffic(pair: Pair, wire: Capture) -> None:
    pair.add("rate 10mbit rescue 0 no_ack_first")
    c = Tcp(pair.b, pair.a, pair.A4, 10_000, receiver_mark=mark(41))
    bulk = Udp(pair, mark(41))
    bulk.send(250)
    wire.read()
    pair.change("ack_first")
    start = time.time_ns()
    transfer([c])
    time.sleep(1)
    acks = _acks(wire.read(), c.port)
    assert acks[0].time - start < 2 * MS


def test_acks_go_first_in_their_own_job(pair: Pair, wire: Capture) -> None:
    """Band 0 of job 1, not of job 0."""
    pair.add("rate 10mbit rescue 0")
    c = Tcp(pair.b, pair.a, pair.A4, 20_000, receiver_mark=mark(41, job=1))
    transfer([c])
    time.sleep(1)
    sent = {name: n["packets"] for name, n in tc.classes(pair.a).items()}
    assert sent[tc.band(1, 0)] > 0
    assert tc.band(0, 0) not in sent


def _both_directions(pair: Pair, wire: Capture, options: str, size: int) -> None:
    """Both ends send over one connection: a's data, SYN and FIN stay in order.

    No segment is sent twice: that would be a sign that one was overtaken, even
    if it was not captured so.
    """
    pair.add(f"rate 100mbit {options}")
    out = Tcp(pair.a, pair.b, pair.B4, size, mark(41))
    back = out.backwards()
    bulk = Udp(pair, mark(41))
    bulk.send(100)
    transfer([out, back])
    assert out.intact and back.intact
    out.close()
    time.sleep(1)
    ours = [p for p in wire.read() if p.dport == out.port]
    data = [p for p in ours if p.tcp_payload]
    seqs = [(p.tcp_seq - data[0].tcp_seq) % (1 << 32) for p in data]
    assert seqs == sorted(set(seqs))
    assert ours[0].tcp_flags & TCP_SYN
    fin = next(i for i, p in enumerate(ours) if p.tcp_flags & TCP_FIN)
    assert fin >= max(i for i, p in enumerate(ours) if p.tcp_payload)


@pytest.mark.parametrize("size", [20_000, 2_000_000])
@pytest.mark.parametrize("options", ["ack_first", "no_ack_first"])
def test_both_directions_of_a_connection_at_once(
    pair: Pair, wire: Capture, options: str, size: int
) -> None:
    """
    2 MB are more than a window. If ACKs for so much overtook data that waits in
    the queue, the data would come with an ACK number so old that TCP takes it
    for an attack and drops it (RFC 5961, 5.2).
    """
    _both_directions(pair, wire, options, size)


def test_a_syn_does_not_overtake(pair: Pair, wire: Capture) -> None:
    pair.add("rate 10mbit rescue 0")
    bulk = Udp(pair, mark(41))
    bulk.send(100)  # 80 ms
    start = time.time_ns()
    Tcp(pair.a, pair.b, pair.B4, 0, mark(41))
    packets = wire.read()
    syn = next(p for p in packets if p.tcp_flags & TCP_SYN)
    assert syn.time - start > 75 * MS
    ack = next(p for p in packets if p.tcp_flags == TCP_ACK)
    assert ack.time - start > 75 * MS


def test_data_with_an_ack_does_not_overtake(pair: Pair, wire: Capture) -> None:
    pair.add("rate 10mbit rescue 0")
    c = Tcp(pair.a, pair.b, pair.B4, 100, mark(41))
    wire.read()
    bulk = Udp(pair, mark(41))
    bulk.send(100)
    start = time.time_ns()
    transfer([c])
    data = next(p for p in wire.read() if p.dport == c.port and p.tcp_payload)
    assert data.time - start > 75 * MS
    checks.wait_until_empty(pair.a)
