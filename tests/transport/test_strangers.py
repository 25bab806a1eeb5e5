# SPDX-License-Identifier: GPL-2.0
"""Whoever reaches the port: those who say nothing, too little, something wrong or too much."""

from __future__ import annotations

import random
import resource
import socket
import struct
import threading

import pytest

import peers
import wire
from conftest import Scene

LIMIT = 4096  # bytes of a hello


def stranger(server: peers.Server, *sent: bytes) -> socket.socket:
    sock = wire.connect(server.address)
    sock.sendall(b"".join(sent))
    return sock


def control(server: peers.Server, *sent: bytes) -> wire.Control:
    return wire.Control(stranger(server, wire.preamble(wire.CONTROL), *sent))


# Half open: each says the beginning of something, and no more.
HALVES = {
    "connects and says nothing": b"",
    "half a preamble": wire.preamble(wire.CONTROL)[:5],
    "a push connection that attaches to nothing": wire.preamble(wire.PUSH),
    "half an attachment": wire.preamble(wire.PULL) + bytes(19),
    "a control connection that says nothing": wire.preamble(wire.CONTROL),
    "half the length of a hello": wire.preamble(wire.CONTROL) + b"\0\0",
    "half a hello": wire.preamble(wire.CONTROL) + wire.message(wire.hello())[:20],
    "a hello and no join": wire.preamble(wire.CONTROL) + wire.message(wire.hello()),
    "half a join": wire.preamble(wire.CONTROL)
    + wire.message(wire.hello())
    + wire.message(wire.join(0, 1, [wire.tensor("t", 1000)]))[:50],
}


@pytest.mark.parametrize("sent", HALVES.values(), ids=HALVES.keys())
def test_half_open(
    scene: Scene, quick_to_suspect: peers.Server, sent: bytes, request: pytest.FixtureRequest
) -> None:
    """A connection that does not go on is closed after the time of silence."""
    sock = stranger(quick_to_suspect, sent)
    name = wire.name_of(sock)
    assert wire.receive(sock, 1) == b""
    said = quick_to_suspect.logged(f"^{name} did not .*")
    named = request.node.callspec.id
    scene.saw(
        "the server's log",
        said[0],
        "127.0.0.1:PORT did not go on in time"
        if sent.startswith(wire.preamble(wire.CONTROL))
        else "127.0.0.1:PORT did not say what it is",
        f"half open: {named}",
    )


# What has no place in a preamble. The answer is a failure, as a worker would want one.
PREAMBLES = {
    "another protocol": (
        b"GET / HTTP/1.1\r\n\r\n",
        "127.0.0.1:PORT does not speak Mercury's push-pull protocol",
    ),
    "a version from the future": (
        wire.preamble(wire.CONTROL, version=2),
        "127.0.0.1:PORT speaks version 2 of the protocol, and this is version 1",
    ),
    "version 0": (
        wire.preamble(wire.PUSH, version=0),
        "127.0.0.1:PORT speaks version 0 of the protocol, and this is version 1",
    ),
    "an unknown kind of connection": (
        wire.preamble(b"X"),
        "127.0.0.1:PORT asks for an unknown kind of connection",
    ),
}


@pytest.mark.parametrize("case", PREAMBLES.values(), ids=PREAMBLES.keys())
def test_wrong_preamble(
    scene: Scene,
    server: peers.Server,
    case: tuple[bytes, str],
    request: pytest.FixtureRequest,
) -> None:
    sent, expected = case
    # What follows the preamble is never looked at.
    peer = wire.Control(stranger(server, sent, wire.message(wire.hello()), bytes(100_000)))
    scene.saw("the peer", peer.failure(), expected, f"preamble: {request.node.callspec.id}")


def json_error(what: str) -> str:
    return f"127.0.0.1:PORT sent a control message that is wrong: {what}"


# First words that are wrong. The peer is told, and the connection closed.
WORDS = {
    "a hello with the wrong token": (
        wire.message(wire.hello(token="guess")),
        "the token is wrong",
    ),
    "a join before the hello": (
        wire.message(wire.join(0, 1, [wire.tensor("t", 1)])),
        "expected a hello and then a join",
    ),
    "two hellos": (
        wire.message(wire.hello()) * 2,
        "expected a hello and then a join",
    ),
    "a leave": (wire.message({"type": "leave"}), "expected a hello and then a join"),
    "a failure": (
        wire.message({"type": "failure", "message": "x"}),
        "expected a hello and then a join",
    ),
    "a job without a name": (
        wire.message(wire.hello(job="")),
        "the name of a job has 1 to 256 bytes, not 0",
    ),
    "a job's name of 257 bytes": (
        wire.message(wire.hello(job="j" * 257)),
        "the name of a job has 1 to 256 bytes, not 257",
    ),
    "a message of no bytes": (
        struct.pack("!I", 0),
        "127.0.0.1:PORT announced a control message of 0 bytes; 1 to 4096 are allowed",
    ),
    "a hello of 4097 bytes": (
        struct.pack("!I", 4097),
        "127.0.0.1:PORT announced a control message of 4097 bytes; 1 to 4096 are allowed",
    ),
    "a hello of 4 GiB": (
        b"\xff\xff\xff\xff",
        "127.0.0.1:PORT announced a control message of 4294967295 bytes; 1 to 4096 are allowed",
    ),
    "a join of 4 GiB": (
        wire.message(wire.hello()) + b"\xff\xff\xff\xff",
        "127.0.0.1:PORT announced a control message of 4294967295 bytes; "
        "1 to 16777216 are allowed",
    ),
    "nesting": (
        wire.message(b"[" * 4000),
        json_error("it is nested too deeply"),
    ),
    "an unknown type": (
        wire.message({"type": "welcom"}),
        json_error('unknown type "welcom"'),
    ),
}


@pytest.mark.parametrize("case", WORDS.values(), ids=WORDS.keys())
def test_wrong_words(
    scene: Scene, server: peers.Server, case: tuple[bytes, str], request: pytest.FixtureRequest
) -> None:
    sent, expected = case
    scene.saw(
        "the peer",
        control(server, sent).failure(),
        expected,
        f"first words: {request.node.callspec.id}",
    )


@pytest.mark.parametrize(
    "text",
    [b"\0" * 100, b"\xff\xfe", b"{", b'{"type": "hello", "job": "\xff", "token": ""}', b"null",
     b"[1]", b'{"type": 1}', b'{"type": "hello", "job": 1, "token": ""}', b'{"type": "hello"}',
     b"1e999", b'"' + b"\\ud800" * 100 + b'"', b"-" * 4000],
)
def test_no_json(server: peers.Server, text: bytes) -> None:
    """Each is refused with what the parser says, and disturbs nobody."""
    peer = control(server, wire.message(text))
    said = peer.failure()
    assert said.startswith(f"{wire.name_of(peer.sock)} sent a control message that is wrong: ")


def test_random_bytes(server: peers.Server) -> None:
    """Noise on each kind of connection, and after each right beginning."""
    rng = random.Random(7)
    beginnings = [b"", *(wire.preamble(kind) for kind in (wire.CONTROL, wire.PUSH, wire.PULL)),
                  wire.preamble(wire.CONTROL) + wire.message(wire.hello())]
    for beginning in beginnings * 20:
        with stranger(server, beginning) as sock:
            try:
                sock.sendall(rng.randbytes(rng.randrange(1, 70_000)))
                sock.shutdown(socket.SHUT_WR)
            except OSError:
                continue  # it was refused before it had said everything
            while wire.receive(sock, 4096):
                pass


@pytest.mark.parametrize("token", ["", "secre", "secret1", "Secret", "secretsecret"])
def test_wrong_token(scene: Scene, token: str) -> None:
    """A stranger without the token"""
    server = scene.server(token="secret")
    scene.saw(
        "the stranger",
        scene.worker(server, token=token).refused() if token else scene.worker(server).refused(),
        "server 127.0.0.1:7000: the token is wrong",
    )
    server.logged(r"refused 127.0.0.1:\d+: the token is wrong")
    scene.worker(server, token="secret").joined().round(1, 1)


def test_token_where_none_is_needed(scene: Scene, server: peers.Server) -> None:
    """A token for a server that has none"""
    scene.saw(
        "the worker",
        scene.worker(server, token="secret").refused(),
        "server 127.0.0.1:7000: the token is wrong",
    )


@pytest.mark.parametrize("kind", [wire.PUSH, wire.PULL])
def test_wrong_session(scene: Scene, server: peers.Server, kind: bytes) -> None:
    """A data connection with the session of nobody"""
    raw = scene.raw(server, tensors=[wire.tensor("t", 10)])
    near = bytes([*raw.session[:-1], raw.session[-1] ^ 1])
    with stranger(server, wire.preamble(kind), wire.attachment(near, 0)) as sock:
        assert wire.receive(sock, 1) == b""
        scene.saw(
            "the server's log",
            server.logged("^.* attaches .*")[0],
            "127.0.0.1:PORT attaches a connection to no session of this server",
        )
    raw.push_whole(0, 1, wire.floats(1, 10))
    assert raw.pull_bytes(0, 1, 40) == wire.floats(1, 10)


def test_names_do_not_write_the_log(scene: Scene, server: peers.Server) -> None:
    """A job whose name is meant to forge the server's log"""
    scene.raw(server, job="x\nlog worker 9 has left\x1b[2J", tensors=[wire.tensor("t", 1)])
    scene.saw(
        "the server's log",
        server.logged("of job \"x.*")[0],
        'of job "x\\x0alog worker 9 has left\\x1b[2J" has joined, 1 of 1',
    )


def test_idle_strangers(scene: Scene) -> None:
    """A thousand idle strangers, more than the server has room for, keep nobody out"""
    server = scene.server(max_connections=500, silence_ms=30_000)
    strangers = [stranger(server, wire.preamble(wire.CONTROL)[: i % 9]) for i in range(1000)]
    workers = scene.workers(server, count=2)
    for worker in workers:
        worker.do("push t 1")
    for worker in workers:
        worker.do("wait t")
        worker.do("check t 2")
    # The oldest ones had to make room, and the newest are still welcome.
    assert wire.receive(strangers[0], 1) == b""
    strangers[-1].sendall(wire.preamble(wire.CONTROL)[999 % 9 :])
    scene.saw(
        "the server's log",
        server.logged("^dropped.*")[0],
        "dropped 127.0.0.1:PORT for another connection",
    )
    for sock in strangers:
        sock.close()


def test_no_descriptors_left(scene: Scene) -> None:
    """Strangers who use up the server's descriptors (EMFILE)"""
    server = scene.server()
    other = scene.worker(server, job="other").joined()
    resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (64, 64))
    strangers = [stranger(server) for _ in range(100)]
    scene.saw(
        "the server's log",
        server.logged("^cannot accept.*")[0],
        "cannot accept a connection: Too many open files",
    )
    other.round(1, 1)
    worker = scene.worker(server).joined()
    worker.round(2, 2)
    for sock in strangers:
        sock.close()


def test_no_descriptors_but_for_jobs(scene: Scene) -> None:
    """No descriptor left for one more worker (EMFILE): it waits until one is free"""
    server = scene.server(silence_ms=1000)
    raws = [scene.raw(server, job=f"j{i}", tensors=[wire.tensor("t", 10)]) for i in range(4)]
    soft = 6 + 3 * len(raws) + 1  # its own, theirs, and one of three that a worker needs
    resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (soft, 1024))
    worker = scene.worker(server)
    server.logged("cannot accept a connection: Too many open files")
    for raw in raws:
        raw.leave()
    worker.joined().round(1, 1)


@pytest.mark.parametrize("words", ["ping", "refused"])
def test_flood_of_a_stranger(scene: Scene, server: peers.Server, words: str) -> None:
    """A stranger who sends messages without end does not keep others from being served"""
    flood = control(server, *([] if words == "ping" else [wire.message(wire.hello(token="no"))]))
    flood.sock.setblocking(False)
    content = wire.message({"type": "ping"}) * 3000
    worker = scene.worker(server).joined()
    stop = []

    def run() -> None:
        while not stop:
            try:
                flood.sock.send(content)
            except BlockingIOError:
                pass
            except OSError:
                return

    thread = threading.Thread(target=run)
    thread.start()
    try:
        for value in range(1, 20):
            worker.round(value, value)
    finally:
        stop.append(True)
        thread.join()
