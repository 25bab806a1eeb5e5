# SPDX-License-Identifier: GPL-2.0
"""Workers that push something wrong, too little, or take nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

import peers
import wire
from conftest import Scene

RAW = [wire.tensor("t", 1000), wire.tensor("u", 10, **{"class": 1})]
REAL = ["t:f32:1000:0:sum", "u:f32:10:1:sum"]
ONES = wire.floats(1, 1000)


def sends(*parts: bytes, priority_class: int = 0) -> Callable[[wire.RawWorker], None]:
    return lambda raw: raw.push[priority_class].sendall(b"".join(parts))


def closes(kind: str, *parts: bytes, with_reset: bool = False) -> Callable[[wire.RawWorker], None]:
    """Sends PARTS in class 0, and then there is no connection of KIND any more."""

    def act(raw: wire.RawWorker) -> None:
        raw.push[0].sendall(b"".join(parts))
        sock = getattr(raw, kind)[0]
        # Not before all has arrived, of which a reset would leave nothing.
        raw.control.await_pong()
        wire.reset(sock) if with_reset else sock.close()

    return act


WRONG: dict[str, tuple[Callable[[wire.RawWorker], object], str]] = {
    "something that is no frame": (sends(bytes(32)), "sent something that is not a frame"),
    "a frame with another magic number": (
        sends(wire.frame(0, 1, 4000, magic=b"mfrm")),
        "sent something that is not a frame",
    ),
    "a tensor that does not exist": (
        sends(wire.frame(2, 1, 4000)),
        "pushes tensor number 2, which class 0 does not have",
    ),
    "tensor 2^32 - 1": (
        sends(wire.frame(2**32 - 1, 1, 4000)),
        "pushes tensor number 4294967295, which class 0 does not have",
    ),
    "a tensor of another class": (
        sends(wire.frame(1, 1, 40)),
        "pushes tensor number 1, which class 0 does not have",
    ),
    "a byte too few": (
        sends(wire.frame(0, 1, 3999)),
        'pushes 3999 bytes from byte 0 of "t", whose range has 4000',
    ),
    "an element too many": (
        sends(wire.frame(0, 1, 4004)),
        'pushes 4004 bytes from byte 0 of "t", whose range has 4000',
    ),
    "no bytes": (
        sends(wire.frame(0, 1, 0)),
        'pushes 0 bytes from byte 0 of "t", whose range has 4000',
    ),
    "2^64 - 1 bytes": (
        sends(wire.frame(0, 1, 2**64 - 1)),
        'pushes 18446744073709551615 bytes from byte 0 of "t", whose range has 4000',
    ),
    "bytes from the middle on": (
        sends(wire.frame(0, 1, 2000, offset=2000)),
        'pushes 2000 bytes from byte 2000 of "t", whose range has 4000',
    ),
    "round 0": (sends(wire.frame(0, 0, 4000)), 'pushes round 0 of "t" where round 1 is next'),
    "round 2 at first": (
        sends(wire.frame(0, 2, 4000)),
        'pushes round 2 of "t" where round 1 is next',
    ),
    "round 2^64 - 1": (
        sends(wire.frame(0, 2**64 - 1, 4000)),
        'pushes round 18446744073709551615 of "t" where round 1 is next',
    ),
    "round 1 again": (
        sends(wire.frame(0, 1, 4000)),
        'pushes round 1 of "t" where round 2 is next',
    ),
    "round 3 after 1": (
        sends(wire.frame(0, 3, 4000)),
        'pushes round 3 of "t" where round 2 is next',
    ),
    "round 2 before it has round 1": (
        sends(wire.frame(1, 1, 40), wire.floats(1, 10), wire.frame(1, 2, 40), priority_class=1),
        'pushes round 2 of "u" before round 1 has come back',
    ),
    "bytes where it should receive": (
        lambda raw: raw.pull[0].sendall(b"x"),
        "sends where it should receive",
    ),
    "class 2 of 2, attached": (
        lambda raw: raw.attach(wire.PUSH, 2),
        "attaches class 2 of 2",
    ),
    "class 2^32 - 1, attached": (
        lambda raw: raw.attach(wire.PULL, 2**32 - 1),
        "attaches class 4294967295 of 2",
    ),
    "a second push connection": (
        lambda raw: raw.attach(wire.PUSH, 0),
        "attaches class 0 twice",
    ),
    "a second pull connection": (
        lambda raw: raw.attach(wire.PULL, 1),
        "attaches class 1 twice",
    ),
    "the end within a header": (
        closes("push", wire.frame(0, 1, 4000)[:31]),
        "closed the connection within a frame's header",
    ),
    "the end within a tensor": (
        closes("push", wire.frame(0, 1, 4000), ONES[:3999]),
        'closed the connection within "t"',
    ),
    "a reset within a tensor": (
        closes("push", wire.frame(0, 1, 4000), ONES[:1001], with_reset=True),
        "closed the connection",
    ),
    "the end of its pull connection": (
        closes("pull", wire.frame(0, 1, 4000), ONES),
        "closed the connection",
    ),
    "a reset of its pull connection": (
        closes("pull", wire.frame(0, 1, 4000), ONES, with_reset=True),
        "closed the connection",
    ),
}


@pytest.mark.parametrize("case", WRONG.values(), ids=WRONG.keys())
def test_wrong_push(
    scene: Scene,
    server: peers.Server,
    case: tuple[Callable[[wire.RawWorker], object], str],
    request: pytest.FixtureRequest,
) -> None:
    act, expected = case
    raw = scene.raw(server, rank=0, workers=2, tensors=RAW)
    worker = scene.worker(server, rank=1, workers=2, tensors=REAL).joined()
    name = request.node.callspec.id
    if name in ("round 1 again", "round 3 after 1"):
        worker.do("push t 10")
        raw.push_whole(0, 1, ONES)
        raw.pull_bytes(0, 1, 4000)
        worker.do("wait t")
        worker.do("check t 11")
    noticed_later = name == "the end of its pull connection"  # when there is something for it
    if not noticed_later:
        worker.do("push t 10")
    act(raw)
    if noticed_later:
        worker.do("push t 10")
    # Another tensor, since "t" may have come back and must be right then.
    worker.tell("push u 1")
    answer = worker.line()
    error = worker.error("wait u") if answer.startswith("ok") else answer.removeprefix("error ")
    full = f'worker 0 (127.0.0.1:PORT) of job "j" {expected}'
    scene.saw("another worker", error, f"server 127.0.0.1:7000: {full}", f"a worker pushes: {name}")
    assert scene.plain(raw.control.failure()) == full


def attaches_nothing(raw: wire.RawWorker) -> None:
    raw.control.await_pong()


BEHIND = 'has pushed nothing of "t" (round 1) for 2 s, and others wait for it'
STALLS: dict[str, tuple[dict[str, object], Callable[[wire.RawWorker], object], str]] = {
    "attaches nothing": ({"attach": False}, attaches_nothing, BEHIND),
    "attaches and says nothing": ({}, lambda raw: None, BEHIND),
    "sends half a header": ({}, sends(wire.frame(0, 1, 4000)[:16]), BEHIND),
    "sends a header only": ({}, sends(wire.frame(0, 1, 4000)), BEHIND),
    "sends half a tensor": ({}, sends(wire.frame(0, 1, 4000), ONES[:2000]), BEHIND),
    "sends all but a byte": ({}, sends(wire.frame(0, 1, 4000), ONES[:3999]), BEHIND),
    "says nothing, in the order of the ranks": ({"order": "rank"}, lambda raw: None, BEHIND),
    "attaches no pull connection": (
        {"attach": False},
        lambda raw: raw.attach(wire.PUSH, 0).sendall(wire.frame(0, 1, 4000) + ONES),
        'has taken nothing of "t" for 2 s',
    ),
}


@pytest.mark.parametrize("case", STALLS.values(), ids=STALLS.keys())
def test_stall(
    scene: Scene,
    quick_to_blame: peers.Server,
    case: tuple[dict[str, object], Callable[[wire.RawWorker], object], str],
    request: pytest.FixtureRequest,
) -> None:
    options, act, expected = case
    raw = scene.raw(quick_to_blame, rank=0, workers=2, tensors=RAW, **options)
    order = options.get("order", "arrival")
    worker = scene.worker(quick_to_blame, rank=1, workers=2, tensors=REAL, order=order).joined()
    act(raw)
    worker.do("push t 10")
    full = f'worker 0 (127.0.0.1:PORT) of job "j" {expected}'
    if "pull connection" in request.node.callspec.id:
        worker.do("wait t")
        worker.do("check t 11")
        worker.tell("push t 1")  # may come back with its error at once
        answer = worker.line()
        error = worker.error("wait t") if answer.startswith("ok") else answer[len("error ") :]
    else:
        error = worker.error("wait t")
    scene.saw(
        "another worker",
        error,
        f"server 127.0.0.1:7000: {full}",
        f"a worker {request.node.callspec.id}",
    )


def test_worker_that_takes_nothing(scene: Scene, quick_to_blame: peers.Server) -> None:
    """A worker that does not read what it is sent"""
    elements = 8_000_000  # far beyond all buffers
    raw = scene.raw(
        quick_to_blame, rank=0, workers=2, tensors=[wire.tensor("t", elements)], attach=False
    )
    raw.pull.append(raw.attach(wire.PULL, 0, receive_buffer=4096))
    raw.push.append(raw.attach(wire.PUSH, 0))
    worker = scene.worker(
        quick_to_blame, rank=1, workers=2, tensors=[f"t:f32:{elements}:0:sum"]
    ).joined()
    worker.do("push t 10")
    raw.push_whole(0, 1, wire.floats(1, elements))
    # The other one is not held up: its round is complete, and the next one waits.
    worker.do("wait t")
    worker.do("check t 11")
    worker.tell("push t 1")
    answer = worker.line()
    error = worker.error("wait t") if answer.startswith("ok") else answer[len("error ") :]
    scene.saw(
        "another worker",
        error,
        'server 127.0.0.1:7000: worker 0 (127.0.0.1:PORT) of job "j" has taken nothing of "t" '
        "for 2 s",
    )


def test_reset_of_a_push_that_waits(scene: Scene, server: peers.Server) -> None:
    """A push connection that is reset while the server has no room for it"""
    tensors = [wire.tensor("t", 1_000_000)]
    first = scene.raw(server, rank=0, workers=2, tensors=tensors, order="rank")
    second = scene.raw(server, rank=1, workers=2, tensors=tensors, order="rank")
    # Worker 1 waits for worker 0: what it sends fills its socket.
    second.push[0].setblocking(False)
    payload = wire.frame(0, 1, 4_000_000) + wire.floats(1, 1_000_000)
    sent = 0
    while sent < 50_000:
        sent += second.push[0].send(payload[sent:])
    second.control.await_pong()
    second.push[0].settimeout(wire.BOUND)
    wire.reset(second.push[0])
    scene.saw(
        "another worker",
        first.control.failure(),
        'worker 1 (127.0.0.1:PORT) of job "j" closed the connection within "t"',
    )


def test_pull_connection_after_the_push(scene: Scene, server: peers.Server) -> None:
    """A pull connection that comes later than the sum: no error"""
    raw = scene.raw(server, tensors=[wire.tensor("t", 1000)], attach=False)
    raw.push.append(raw.attach(wire.PUSH, 0))
    raw.push_whole(0, 1, ONES)
    server.stop()  # so that it finds what follows after the push
    raw.pull.append(raw.attach(wire.PULL, 0))
    server.resume()
    assert raw.pull_bytes(0, 1, 4000) == ONES
    raw.leave()
    server.logged('job "j" is done')


VAIN = (
    'worker 1 (127.0.0.1:PORT) of job "j" pushes "t" again, but '
    'worker 0 (127.0.0.1:PORT) of job "j" has left'
)


def test_leaves_before_its_round_is_back(scene: Scene, server: peers.Server) -> None:
    """A worker that leaves while its push is in flight"""
    leaving = scene.worker(server, rank=0, workers=2).joined()
    raw = scene.raw(server, rank=1, workers=2, tensors=RAW[:1])
    leaving.do("call t 1")
    leaving.do("leave")
    scene.saw(
        "another worker",
        raw.control.failure(),
        'worker 0 (127.0.0.1:PORT) of job "j" left before what it pushed had come back',
    )


@pytest.mark.parametrize("order", ["arrival", "rank"])
@pytest.mark.parametrize("pushes", ["before", "after"])
def test_leaves_too_early(scene: Scene, server: peers.Server, pushes: str, order: str) -> None:
    """A worker that leaves when the others go on"""
    raw = scene.raw(server, rank=0, workers=2, tensors=RAW[:1], order=order)
    worker = scene.worker(server, rank=1, workers=2, order=order).joined()
    raw.push_whole(0, 1, ONES)
    worker.round(10, 11)
    assert raw.pull_bytes(0, 1, 4000) == wire.floats(11, 1000)
    if pushes == "before":
        worker.do("push t 1")
        # Both are served in turn: with the second answer the server has seen the push.
        for _ in range(3):
            raw.control.await_pong()
    raw.leave()
    if pushes == "after":
        server.logged("worker 0 .* has left")
        worker.do("push t 1")
    scene.saw("another worker", worker.error("wait t"), f"server 127.0.0.1:7000: {VAIN}")


def test_leaves_within_the_others_push(scene: Scene, server: peers.Server) -> None:
    """A worker that leaves when another one has pushed part of a further round"""
    pair = [scene.raw(server, rank=i, workers=2, tensors=RAW[:1]) for i in range(2)]
    for raw in pair:
        raw.push_whole(0, 1, ONES)
    for raw in pair:
        raw.pull_bytes(0, 1, 4000)
    pair[1].push[0].sendall(wire.frame(0, 2, 4000) + ONES[:7])
    for _ in range(3):
        pair[1].control.await_pong()
    pair[0].leave()
    scene.saw("the other one", pair[1].control.failure(), VAIN)


def test_all_leave(scene: Scene, server: peers.Server) -> None:
    """All workers leave, one after the other: no error, and the job can come again"""
    for _ in range(2):
        workers = scene.workers(server, count=3)
        for worker in workers:
            worker.do("push t 1")
        for worker in workers:
            worker.do("wait t")
            worker.do("check t 3")
        for worker in workers:
            worker.leave()
        server.logged('^job "j" is done$')
        server.log.clear()


def test_flood_of_a_worker(scene: Scene, server: peers.Server) -> None:
    """A worker of one job that sends messages without end does not hold up another job"""
    raw = scene.raw(server, tensors=RAW[:1])
    raw.control.sock.setblocking(False)
    content = wire.message({"type": "ping"}) * 3000
    stop: list[bool] = []

    def flood() -> None:
        while not stop:
            try:
                raw.control.sock.send(content)
            except BlockingIOError:
                pass

    thread = threading.Thread(target=flood)
    thread.start()
    try:
        worker = scene.worker(server, job="k").joined()
        for value in range(1, 20):
            worker.round(value, value)
        worker.leave()
    finally:
        stop.append(True)
        thread.join()
