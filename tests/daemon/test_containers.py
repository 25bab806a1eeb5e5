# SPDX-License-Identifier: GPL-2.0
"""Containers: what marks their sockets have, the host's end of their veth gives back to packets."""

from __future__ import annotations

import itertools
import socket
from collections.abc import Iterator

import pytest

from lib import tc
from lib.netns import Namespace, Pair, run

from daemon import BUILD, eventually
from trainer import PORT, Sink

OBJECT = BUILD / "bpf/restore.bpf.o"
INSIDE, OUTSIDE = "10.1.0.2", "10.1.0.1"
SIZE = 100_000
REST = "1:ffff"
_serial = itertools.count()


@pytest.fixture
def pair() -> Iterator[Pair]:
    """a is the host, b is somewhere else."""
    pair = Pair()
    pair.add("rate 100mbit")
    pair.a.sysctl("ipv4/ip_forward", 1)
    pair.b.ip(f"route add 10.1.0.0/24 via {pair.A4}")
    yield pair
    pair.delete()


@pytest.fixture
def container(pair: Pair) -> Iterator[Namespace]:
    name = f"container{next(_serial)}"
    run("ip", "netns", "add", name)
    container = Namespace(name)
    pair.a.ip(f"link add veth0 type veth peer name eth0 netns {name}")
    pair.a.ip("link set veth0 up", f"addr add {OUTSIDE}/24 dev veth0")
    container.ip("link set lo up", "link set eth0 up", f"addr add {INSIDE}/24 dev eth0")
    container.ip(f"route add default via {OUTSIDE}")
    yield container
    run("ip", "netns", "del", name)


@pytest.fixture
def sink(pair: Pair) -> Iterator[Sink]:
    sink = Sink(pair.b)
    yield sink
    sink.close()


def send(container: Namespace, pair: Pair, sink: Sink, mark: int) -> None:
    with container.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, 36, mark)
        before = sink.received
        sock.connect((pair.B4, PORT))
        sock.sendall(bytes(SIZE))
        eventually(lambda: sink.received == before + SIZE, "all has arrived")


def sent(pair: Pair) -> tuple[int, int]:
    """By the band, and by the class of what is not marked."""
    counted = tc.classes(pair.a)
    return tuple(counted.get(one, {"bytes": 0})["bytes"] for one in (tc.band(2, 3), REST))


def test_a_mark_does_not_leave_a_container_by_itself(
    pair: Pair, container: Namespace, sink: Sink
) -> None:
    send(container, pair, sink, 2 << 16 | 4)
    in_band, rest = sent(pair)
    assert in_band == 0 and rest > SIZE


def test_it_is_restored_at_the_hosts_end(
    pair: Pair, container: Namespace, sink: Sink
) -> None:
    pair.a.tc("qdisc add dev veth0 clsact")
    pair.a.tc(f"filter add dev veth0 ingress bpf direct-action object-file {OBJECT} section tc")
    send(container, pair, sink, 2 << 16 | 4)
    in_band, rest = sent(pair)
    # All but what is sent for sockets that are not whole: at most the last ACKs.
    assert in_band > SIZE and rest < SIZE / 10
    send(container, pair, sink, 0)
    # The first connection may still have been ending.
    assert sent(pair)[0] < in_band + SIZE / 10
    assert sent(pair)[1] > rest + SIZE
