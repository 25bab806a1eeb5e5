# SPDX-License-Identifier: GPL-2.0
"""Servers that are none, or that lie to a worker."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

import wire
from conftest import Scene

SHAPE = ["t:f32:1000:0:sum", "u:f32:10:1:sum"]


def wrong(what: str) -> str:
    return f"sent a control message that is wrong: {what}"


WELCOMES: dict[str, tuple[bytes | None, str]] = {
    "nothing, and hangs up": (None, " does not answer the join: closed the connection"),
    "half an answer, and hangs up": (
        wire.message({"type": "welcome"})[:9],
        " does not answer the join: closed the connection",
    ),
    "HTTP": (
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        " announced a control message of 1213486160 bytes; 1 to 16777216 are allowed",
    ),
    "no bytes": (
        bytes(4),
        " announced a control message of 0 bytes; 1 to 16777216 are allowed",
    ),
    "a ping": (
        wire.message({"type": "ping"}),
        " answered the join with something else than a welcome",
    ),
    "a welcome without a session": (
        wire.message({"type": "welcome"}),
        " " + wrong("[json.exception.out_of_range.403] key 'session' not found"),
    ),
    "a welcome with half a session": (
        wire.message({"type": "welcome", "session": "0" * 31}),
        " " + wrong('"session" is not 32 hexadecimal digits'),
    ),
    "a welcome with a wrong session": (
        wire.message({"type": "welcome", "session": "0" * 31 + "g"}),
        " " + wrong('"session" is not 32 hexadecimal digits'),
    ),
    "a failure": (
        wire.message({"type": "failure", "message": "not today"}),
        " not today",
    ),
}


@pytest.mark.parametrize("case", WELCOMES.values(), ids=WELCOMES.keys())
def test_wrong_welcome(
    scene: Scene, case: tuple[bytes | None, str], request: pytest.FixtureRequest
) -> None:
    answer, expected = case
    liar = scene.liar()
    worker = scene.worker(liar.address)
    control = liar.accept_control()
    if answer:
        control.sock.sendall(answer)
    control.sock.close()
    scene.saw(
        "the worker",
        worker.refused(),
        f"server 127.0.0.1:7000:{expected}",
        f"a server answers a join with {request.node.callspec.id}",
    )


def payload(value: float = 1, count: int = 1000) -> bytes:
    return wire.floats(value, count)


def pull(*parts: bytes, priority_class: int = 0) -> Callable[..., None]:
    return lambda control, push, pull: pull[priority_class].sendall(b"".join(parts))


def misplaced(begin: int, end: int, round_: int, key: str = "t") -> str:
    return f' sends bytes {begin} to {end} of round {round_} of "{key}" where they do not belong'


# While "t" is in flight, whose push the server has got.
LIES: dict[str, tuple[Callable[..., object], str]] = {
    "something that is no frame": (pull(bytes(32)), " sent something that is not a frame"),
    "a tensor that does not exist": (
        pull(wire.frame(2, 1, 4000)),
        " sends a tensor number 2 that it does not have",
    ),
    "a tensor of another class": (
        pull(wire.frame(0, 1, 4000), priority_class=1),
        misplaced(0, 4000, 1),
    ),
    "a tensor that was not pushed": (
        pull(wire.frame(1, 1, 40), priority_class=1),
        misplaced(0, 40, 1, "u"),
    ),
    "another round": (pull(wire.frame(0, 2, 4000)), misplaced(0, 4000, 2)),
    "an earlier round": (pull(wire.frame(0, 0, 4000)), misplaced(0, 4000, 0)),
    "bytes from the middle on": (
        pull(wire.frame(0, 1, 4, offset=4)),
        misplaced(4, 8, 1),
    ),
    "a frame of no bytes": (pull(wire.frame(0, 1, 0)), misplaced(0, 0, 1)),
    "bytes beyond the tensor": (pull(wire.frame(0, 1, 4001)), misplaced(0, 4001, 1)),
    "2^64 - 1 bytes": (
        pull(wire.frame(0, 1, 2**64 - 1)),
        misplaced(0, 2**64 - 1, 1),
    ),
    "the first bytes twice": (
        pull(wire.frame(0, 1, 4), payload()[:4], wire.frame(0, 1, 4), payload()[:4]),
        misplaced(0, 4, 1),
    ),
    "the end of a pull connection": (
        lambda control, push, pull: pull[0].close(),
        " closed a connection for pulls",
    ),
    "the end of a pull connection within a tensor": (
        lambda control, push, pull: (
            pull[0].sendall(wire.frame(0, 1, 4000) + payload()[:100]),
            pull[0].close(),
        ),
        ' closed the connection within "t"',
    ),
    "the end of a pull connection within a header": (
        lambda control, push, pull: (pull[0].sendall(wire.frame(0, 1, 4000)[:5]), pull[0].close()),
        " closed the connection within a frame's header",
    ),
    "a reset of a push connection": (
        lambda control, push, pull: wire.reset(push[0]),
        " closed a connection for pushes",
    ),
    "the end of the control connection": (
        lambda control, push, pull: control.sock.close(),
        " closed the connection",
    ),
    "a reset of the control connection": (
        lambda control, push, pull: wire.reset(control.sock),
        " closed the connection",
    ),
    "a failure": (
        lambda control, push, pull: control.send({"type": "failure", "message": "no more"}),
        ": no more",
    ),
    "a failure, after all else is closed": (
        lambda control, push, pull: (
            [sock.close() for sock in push + pull],
            control.send({"type": "failure", "message": "no more"}),
        ),
        ": no more",
    ),
    "a second welcome": (
        lambda control, push, pull: control.send({"type": "welcome", "session": "0" * 32}),
        " sent a control message that has no place here",
    ),
    "a control message of 4 GiB": (
        lambda control, push, pull: control.sock.sendall(b"\xff" * 4),
        " announced a control message of 4294967295 bytes; 1 to 16777216 are allowed",
    ),
    "a control message without a type": (
        lambda control, push, pull: control.send({}),
        " " + wrong("[json.exception.out_of_range.403] key 'type' not found"),
    ),
}


@pytest.mark.parametrize("case", LIES.values(), ids=LIES.keys())
def test_lie(
    scene: Scene, case: tuple[Callable[..., object], str], request: pytest.FixtureRequest
) -> None:
    act, expected = case
    liar = scene.liar()
    worker = scene.worker(liar.address, tensors=SHAPE)
    control, push, pull_ends = liar.welcome(classes=2)
    worker.joined()
    worker.do("push t 1")
    assert wire.receive(push[0], 32 + 4000) == wire.frame(0, 1, 4000) + payload()
    act(control, push, pull_ends)
    scene.saw(
        "the worker",
        worker.error("wait t"),
        f"server 127.0.0.1:7000{expected}",
        f"a server sends {request.node.callspec.id}",
    )


def test_answer_before_the_push(scene: Scene) -> None:
    """A server that returns what it was not sent yet"""
    elements = 20_000_000  # more than all buffers hold
    liar = scene.liar()
    worker = scene.worker(liar.address, tensors=[f"t:f32:{elements}:0:sum"])
    _control, _push, (pull_end,) = liar.welcome()
    worker.joined()
    worker.do("push t 1")
    pull_end.sendall(wire.frame(0, 1, 4 * elements))
    scene.saw(
        "the worker",
        worker.error("wait t"),
        "server 127.0.0.1:7000" + misplaced(0, 4 * elements, 1),
    )


def test_silent_server(scene: Scene) -> None:
    """A server that welcomes and then says nothing"""
    liar = scene.liar()
    worker = scene.worker(liar.address, silence_ms=1000)
    liar.welcome()
    worker.joined()
    worker.do("push t 1")
    scene.saw(
        "the worker",
        worker.error("wait t"),
        "server 127.0.0.1:7000 has been silent for 1000 ms",
    )


def test_server_that_takes_no_data_connections(scene: Scene) -> None:
    """A server that welcomes and accepts no data connection"""
    liar = scene.liar()
    worker = scene.worker(liar.address, silence_ms=1000)
    liar.accept_control().send({"type": "welcome", "session": "00" * 16})
    worker.joined()
    worker.do("push t 1")
    scene.saw(
        "the worker",
        worker.error("wait t"),
        "server 127.0.0.1:7000 has been silent for 1000 ms",
    )


def test_server_that_never_answers(scene: Scene) -> None:
    """A server that accepts and never answers"""
    liar = scene.liar()
    scene.saw(
        "the worker",
        scene.worker(liar.address, join_ms=1000).refused(),
        "server 127.0.0.1:7000: does not answer the join: timed out",
    )


def test_half_a_welcome(scene: Scene) -> None:
    """A server that never ends its answer"""
    liar = scene.liar()
    worker = scene.worker(liar.address, join_ms=1000)
    liar.accept_control().sock.sendall(struct.pack("!I", 1000) + b"{")
    scene.saw(
        "the worker",
        worker.refused(),
        "server 127.0.0.1:7000: does not answer the join: timed out",
    )


def test_leaving_a_server_that_hangs(scene: Scene) -> None:
    """A worker may leave a server that does not answer any more"""
    liar = scene.liar()
    worker = scene.worker(liar.address, silence_ms=1000)
    control, *_ends = liar.welcome()
    worker.joined()
    worker.leave()
    assert control.receive() == {"type": "leave"}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"rank": 2, "workers": 2}, "rank 2 of 2 workers: it must be 0 to workers - 1"),
        ({"job": "j" * 257}, "the job's name must have 1 to 256 bytes"),
        ({"tensors": []}, "no tensor is given"),
        (
            {"tensors": ["t:f32:1:0:sum", "t:f32:1:0:sum"]},
            'the key "t" is given twice',
        ),
        ({"tensors": ["t:f32:0:0:sum"]}, 'tensor "t" has no elements'),
        (
            {"tensors": ["t:f32:1:16:sum"]},
            'tensor "t" has class 16: it must be 0 to 15',
        ),
        ({"silence_ms": 0}, "join_time and silence must be more than 0 ms"),
    ],
)
def test_wrong_options(scene: Scene, options: dict[str, object], expected: str) -> None:
    """The worker itself refuses these, before it connects to anybody."""
    liar = scene.liar()
    scene.saw("the caller", scene.worker(liar.address, **options).refused(), expected, "join()")


@pytest.mark.parametrize(
    "address", ["localhost", ":1", "localhost:", "localhost:65536", "::1:7000", "[::1]7000", "h:2-1"]
)
def test_wrong_address(scene: Scene, address: str) -> None:
    scene.saw(
        "the caller",
        scene.worker(address).refused(),
        f'"{address}" is no address: HOST:PORT or HOST:FIRST-LAST, at most 1024 ports, an IPv6 '
        "address in brackets",
        "join() with a wrong address",
    )
