# SPDX-License-Identifier: GPL-2.0
"""What goes first, what holds up what, and how far anybody may get ahead."""

from __future__ import annotations

import pathlib
import re
import threading

import pytest

import peers
import wire
from conftest import Scene
from test_deaths import unsent

LARGE = 16_000_000  # elements: far beyond all buffers


def memory_of(process: peers.Process) -> int:
    """Bytes in memory, at most so far."""
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) << 10


def buffers() -> int:
    """Bytes that may be underway between two who do not read: what the kernel lets buffers grow to."""
    receive, send = (
        int(pathlib.Path(f"/proc/sys/net/ipv4/tcp_{kind}").read_text().split()[2])
        for kind in ("rmem", "wmem")
    )
    most = receive + 2 * send + (1 << 20)  # a sender's, a receiver's, and what a server sends on
    assert most < 4 * LARGE
    return most


def send_until_it_waits(sock: wire.socket.socket, data: bytes) -> int:
    """How much of DATA the other end and all buffers take, once none more is taken."""
    sock.settimeout(1.0)
    sent = 0
    try:
        while sent < len(data):
            sent += sock.send(memoryview(data)[sent : sent + (1 << 20)])
    except TimeoutError:
        pass
    sock.settimeout(wire.BOUND)
    return sent


def settle(raw: wire.RawWorker, server: peers.Server) -> None:
    """Until the server has taken what was sent to it."""
    peers.wait_until(lambda: unsent(server) == 0, "all is taken")
    for _ in range(3):
        raw.control.await_pong()


def test_push_order(scene: Scene) -> None:
    """A worker sends the lower round first, and of one round the earlier tensor."""
    liar = scene.liar()
    shapes = [f"{key}:f32:{size}:0:sum" for key, size in (("a", 10), ("b", 10), ("z", LARGE))]
    worker = scene.worker(liar.address, tensors=shapes)
    _control, (push,), (pull,) = liar.welcome()
    worker.joined()

    def take(index: int, round_: int, elements: int) -> None:
        expected = wire.frame(index, round_, 4 * elements)
        assert wire.receive(push, len(expected) + 4 * elements)[: len(expected)] == expected

    # "a" has a round behind it.
    worker.do("push a 1")
    take(0, 1, 10)
    pull.sendall(wire.frame(0, 1, 40) + wire.floats(1, 10))
    worker.do("wait a")
    # While nobody reads "z", the others line up behind it.
    for key in ("z", "a", "b"):
        worker.do(f"push {key} 1")
    take(2, 1, LARGE)
    take(1, 1, 10)  # round 1 of "b" before round 2 of "a"
    take(0, 2, 10)


@pytest.mark.parametrize(
    ("begun", "sent"), [("zcab", "zabc"), ("zcb", "zcb")], ids=["complete", "incomplete"]
)
def test_push_order_within_a_round(scene: Scene, begun: str, sent: str) -> None:
    """However they were begun, once all of the class have been; before that, as they were."""
    liar = scene.liar()
    keys = "zabc"
    shapes = [f"{key}:f32:{LARGE if key == 'z' else 10}:0:sum" for key in keys]
    worker = scene.worker(liar.address, tensors=shapes)
    _control, (push,), _pull = liar.welcome()
    worker.joined()
    for key in begun:
        worker.do(f"push {key} 1")
    for key in sent:
        elements = LARGE if key == "z" else 10
        got = wire.receive(push, 32 + 4 * elements)
        assert got[:32] == wire.frame(keys.index(key), 1, 4 * elements)


def test_pull_order(scene: Scene, server: peers.Server) -> None:
    """A server answers with the earlier tensor first, also within a later one."""
    large = 8_000_000
    tensors = [wire.tensor("a", 10), wire.tensor("b", 10), wire.tensor("z", large)]
    raw = scene.raw(server, tensors=tensors, attach=False)
    raw.pull.append(raw.attach(wire.PULL, 0, receive_buffer=65536))
    raw.push.append(raw.attach(wire.PUSH, 0))
    for index, size in ((2, large), (1, 10), (0, 10)):
        raw.push_whole(index, 1, wire.floats(1, size))
    settle(raw, server)
    order, left = [], large * 4
    while left or len(set(order)) < 3:
        index, round_, _offset, payload = raw.pull_frame()
        assert round_ == 1
        order.append(index)
        left -= len(payload) if index == 2 else 0
    # "z" was on its way, and goes on when the others are through.
    assert order[0] == 2 and order[-1] == 2
    assert [index for index in order if index != 2] == [0, 1]
    # A frame is the most that an earlier tensor waits for.
    assert len(order) > large * 4 / (256 << 10)


def test_class_is_not_held_up_at_a_worker(scene: Scene) -> None:
    """A class whose push nobody reads does not hold up another one of the same worker."""
    liar = scene.liar()
    worker = scene.worker(liar.address, tensors=["a:f32:1000:0:sum", f"z:f32:{LARGE}:1:sum"])
    _control, push, pull = liar.welcome(classes=2)
    worker.joined()
    worker.do("push z 1")
    for round_ in range(1, 4):
        worker.do(f"push a {round_}")
        got = wire.receive(push[0], 32 + 4000)
        assert got == wire.frame(0, round_, 4000) + wire.floats(round_, 1000)
        pull[0].sendall(wire.frame(0, round_, 4000) + wire.floats(7, 1000))
        worker.do("wait a")
        worker.do("check a 7")


def test_class_is_not_held_up_by_a_pull(scene: Scene) -> None:
    """Nor does a class whose pull comes to a halt."""
    liar = scene.liar()
    worker = scene.worker(liar.address, tensors=["a:f32:1000:0:sum", "z:f32:1000:1:sum"])
    _control, push, pull = liar.welcome(classes=2)
    worker.joined()
    worker.do("push z 1")
    wire.receive(push[1], 32 + 4000)
    pull[1].sendall(wire.frame(1, 1, 4000) + wire.floats(3, 500))
    worker.do("push a 1")
    wire.receive(push[0], 32 + 4000)
    pull[0].sendall(wire.frame(0, 1, 4000) + wire.floats(7, 1000))
    worker.do("wait a")
    worker.do("check a 7")
    pull[1].sendall(wire.floats(3, 1000)[2000:])
    worker.do("wait z")
    worker.do("check z 3")


@pytest.mark.parametrize("stuck", ["push", "pull"])
def test_class_is_not_held_up_at_a_server(scene: Scene, server: peers.Server, stuck: str) -> None:
    """A class in which a worker sends half, or reads nothing, does not hold up another one."""
    elements = 4_000_000
    tensors = [wire.tensor("a", 1000), wire.tensor("z", elements, **{"class": 1})]
    pair = [scene.raw(server, rank=i, workers=2, tensors=tensors) for i in range(2)]
    payload = wire.floats(1, elements)
    pair[0].push_whole(1, 1, payload, priority_class=1)
    if stuck == "push":
        pair[1].push[1].sendall(wire.frame(1, 1, 4 * elements) + payload[: 2 * elements])
    else:
        pair[1].push_whole(1, 1, payload, priority_class=1)
    for round_ in range(1, 4):
        for raw in pair:
            raw.push_whole(0, round_, wire.floats(round_, 1000))
        for raw in pair:
            assert raw.pull_bytes(0, round_, 4000) == wire.floats(2 * round_, 1000)
    if stuck == "push":
        pair[1].push[1].sendall(payload[2 * elements :])
    for raw in pair:
        assert raw.pull_bytes(1, 1, 4 * elements, priority_class=1) == wire.floats(2, elements)


def test_prefix_comes_back_before_the_rest_is_pushed(scene: Scene, server: peers.Server) -> None:
    """The range that all workers have delivered is returned at once, to the element."""
    elements = 100_000
    pair = [
        scene.raw(server, rank=i, workers=2, tensors=[wire.tensor("t", elements)])
        for i in range(2)
    ]
    got = [b"", b""]
    whole = wire.floats(1, elements)
    result = wire.floats(2, elements)
    pair[0].push[0].sendall(wire.frame(0, 1, 4 * elements) + whole[:300_000])
    pair[1].push[0].sendall(wire.frame(0, 1, 4 * elements))
    at = 0
    for end in (1, 3, 4, 5, 8, 1000, 299_999, 300_000):
        pair[1].push[0].sendall(whole[at:end])
        at, ready = end, end // 4 * 4
        for i, raw in enumerate(pair):
            while len(got[i]) < ready:
                _index, _round, offset, payload = raw.pull_frame()
                assert offset == len(got[i])
                got[i] += payload
            assert got[i] == result[:ready]


def test_whole_ranges(scene: Scene) -> None:
    """With --whole-ranges nothing comes back before all of it is there."""
    server = scene.server(whole_ranges=True)
    pair = [
        scene.raw(server, rank=i, workers=2, tensors=[wire.tensor("t", 1000)]) for i in range(2)
    ]
    payload = wire.floats(1, 1000)
    for raw in pair:
        raw.push[0].sendall(wire.frame(0, 1, 4000) + payload[:3996])
    settle(pair[0], server)
    for raw in pair:
        raw.pull[0].setblocking(False)
        with pytest.raises(BlockingIOError):
            raw.pull[0].recv(1)
        raw.pull[0].settimeout(wire.BOUND)
        raw.push[0].sendall(payload[3996:])
    for raw in pair:
        assert raw.pull_frame() == (0, 1, 0, wire.floats(2, 1000))


def test_fast_worker_is_held_back(scene: Scene, server: peers.Server) -> None:
    """
    A worker that is far ahead of one that reads nothing may push again only what
    the slow one's socket has taken; the rest waits in its own socket, and the server
    needs no more memory for it.
    """
    tensors = [wire.tensor("t", LARGE)]
    slow = scene.raw(server, rank=0, workers=2, tensors=tensors, attach=False)
    slow.pull.append(slow.attach(wire.PULL, 0, receive_buffer=4096))
    slow.push.append(slow.attach(wire.PUSH, 0))
    fast = scene.raw(server, rank=1, workers=2, tensors=tensors)
    before = memory_of(server)
    payload = wire.floats(1, LARGE)

    # It sends while it receives, as the server does.
    pushing = [
        threading.Thread(target=raw.push_whole, args=(0, 1, payload)) for raw in (slow, fast)
    ]
    for thread in pushing:
        thread.start()
    assert fast.pull_bytes(0, 1, 4 * LARGE) == wire.floats(2, LARGE)
    for thread in pushing:
        thread.join()
    again = send_until_it_waits(fast.push[0], wire.frame(0, 2, 4 * LARGE) + payload)
    assert again < buffers()
    assert memory_of(server) - before < 4 * LARGE + (16 << 20)
    # When the slow one reads, all goes on.
    rest = threading.Thread(
        target=fast.push[0].sendall, args=((wire.frame(0, 2, 4 * LARGE) + payload)[again:],)
    )
    rest.start()
    assert slow.pull_bytes(0, 1, 4 * LARGE) == wire.floats(2, LARGE)
    rest.join()


def test_worker_waits_for_the_rank_before_it(scene: Scene, server: peers.Server) -> None:
    """In the order of the ranks a worker may push what the one before it has pushed."""
    tensors = [wire.tensor("t", LARGE)]
    first, second = (
        scene.raw(server, rank=i, workers=2, tensors=tensors, order="rank") for i in range(2)
    )
    before = memory_of(server)
    sent = send_until_it_waits(second.push[0], wire.frame(0, 1, 4 * LARGE) + wire.floats(1, LARGE))
    assert sent < buffers()
    assert memory_of(server) - before < 16 << 20
    del first


URGENT_AND_NOT = [wire.tensor("urgent", LARGE), wire.tensor("bulk", LARGE, **{"class": 1})]


def test_less_urgent_class_is_held(scene: Scene, server: peers.Server) -> None:
    """While a tensor comes in, a server reads nothing less urgent of the same worker."""
    raw = scene.raw(server, rank=0, workers=2, tensors=URGENT_AND_NOT)
    payload = wire.floats(1, LARGE)
    raw.push[0].sendall(wire.frame(0, 1, 4 * LARGE) + payload[: 2 * LARGE])
    settle(raw, server)
    bulk = wire.frame(1, 1, 4 * LARGE) + payload
    sent = send_until_it_waits(raw.push[1], bulk)
    assert sent < buffers()
    raw.push[0].sendall(payload[2 * LARGE :])
    raw.push[1].sendall(bulk[sent:])
    settle(raw, server)


def test_what_waits_for_room_holds_nobody(scene: Scene, server: peers.Server) -> None:
    """What it waits for might depend on the less urgent class."""
    first, second = (
        scene.raw(server, rank=i, workers=2, tensors=URGENT_AND_NOT, order="rank") for i in range(2)
    )
    payload = wire.floats(1, LARGE)
    send_until_it_waits(second.push[0], wire.frame(0, 1, 4 * LARGE) + payload)
    pushing = [
        threading.Thread(target=raw.push_whole, args=(1, 1, payload, 1)) for raw in (first, second)
    ]
    pulling = [
        threading.Thread(target=raw.pull_bytes, args=(1, 1, 4 * LARGE, 1))
        for raw in (first, second)
    ]
    for thread in pushing + pulling:
        thread.start()
    for thread in pushing + pulling:
        thread.join(wire.BOUND)
        assert not thread.is_alive()
