# SPDX-License-Identifier: GPL-2.0
"""
The protocol of userspace/transport/wire.hpp once more, for peers that lie.

What is sent is made of plain functions that put together whatever they are given.
What is received is checked strictly.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
from typing import Any

CONTROL, PUSH, PULL = b"C", b"P", b"L"

BOUND = float(os.environ.get("MERCURY_BOUND", 60))
"""Seconds after which a test gives up: far more than any time that it configures."""

_FRAME = struct.Struct("!4sIQQQ")


def preamble(kind: bytes, version: int = 1, word: bytes = b"MRCRY") -> bytes:
    return word + struct.pack("!H", version) + kind


def message(content: bytes | dict[str, Any]) -> bytes:
    text = content if isinstance(content, bytes) else json.dumps(content).encode()
    return struct.pack("!I", len(text)) + text


def attachment(session: bytes, priority_class: int) -> bytes:
    return session + struct.pack("!I", priority_class)


def frame(
    tensor: int, round_: int, payload_size: int, offset: int = 0, magic: bytes = b"MFRM"
) -> bytes:
    return _FRAME.pack(magic, tensor, round_, offset, payload_size)


def floats(value: float, count: int) -> bytes:
    """What the driver pushes for VALUE: element i is VALUE * (1 + i % 7)."""
    return b"".join(struct.pack("<f", value * (1 + i % 7)) for i in range(7)) * (
        count // 7
    ) + b"".join(struct.pack("<f", value * (1 + i % 7)) for i in range(count % 7))


def tensor(key: str, elements: int, **other: Any) -> dict[str, Any]:
    """A tensor in a join, all of it at this server."""
    fields = {
        "key": key,
        "type": "f32",
        "reduction": "sum",
        "class": 0,
        "total": elements,
        "offset": 0,
        "elements": elements,
    }
    return fields | other


def hello(job: str = "j", token: str = "") -> dict[str, Any]:
    return {"type": "hello", "job": job, "token": token}


def join(rank: int, workers: int, tensors: list[dict[str, Any]], **other: Any) -> dict[str, Any]:
    classes = 1 + max((shape["class"] for shape in tensors), default=0)
    fields = {
        "type": "join",
        "rank": rank,
        "workers": workers,
        "server": 0,
        "servers": 1,
        "order": "arrival",
        "pull_marks": [0] * classes,
        "hints": True,
        "dscp": False,
        "tensors": tensors,
    }
    return fields | other


def connect(address: str) -> socket.socket:
    host, port = address.rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=BOUND)


def name_of(sock: socket.socket) -> str:
    return "%s:%d" % sock.getsockname()[:2]


def receive(sock: socket.socket, size: int) -> bytes:
    """Exactly SIZE bytes, or fewer if the connection ends before."""
    parts = []
    while size:
        try:
            part = sock.recv(size)
        except ConnectionResetError:
            break
        if not part:
            break
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def reset(sock: socket.socket) -> None:
    """Close with RST: what is underway in both directions is lost."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


class Control:
    """One end of a control connection."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock

    def send(self, content: bytes | dict[str, Any]) -> None:
        """Whoever has hung up meanwhile has said why: that is read later."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.sock.sendall(message(content))

    def receive(self) -> dict[str, Any] | None:
        """The next message that is no ping or pong; None at the end."""
        while True:
            prefix = receive(self.sock, 4)
            if not prefix:
                return None
            (length,) = struct.unpack("!I", prefix)
            content = json.loads(receive(self.sock, length))
            if content["type"] not in ("ping", "pong"):
                return content

    def await_pong(self) -> None:
        """Until the other end has read all that was sent to it."""
        self.send({"type": "ping"})
        while True:
            (length,) = struct.unpack("!I", receive(self.sock, 4))
            if json.loads(receive(self.sock, length))["type"] == "pong":
                return

    def failure(self) -> str:
        """The failure that must come now, and be the last word."""
        content = self.receive()
        assert content is not None and content["type"] == "failure", content
        assert self.receive() is None
        return content["message"]

    def is_closed(self) -> bool:
        """Once it is, without a word."""
        return self.receive() is None


class RawWorker:
    """A worker that does by itself exactly nothing."""

    def __init__(
        self,
        address: str,
        /,
        *,
        job: str = "j",
        token: str = "",
        rank: int = 0,
        workers: int = 1,
        tensors: list[dict[str, Any]],
        attach: bool = True,
        **other: Any,
    ) -> None:
        self.address = address
        self.control = Control(connect(address))
        self.name = name_of(self.control.sock)
        self.control.sock.sendall(preamble(CONTROL))
        self.control.send(hello(job, token))
        self.control.send(join(rank, workers, tensors, **other))
        answer = self.control.receive()
        assert answer and answer["type"] == "welcome", answer
        self.session = bytes.fromhex(answer["session"])
        self.push: list[socket.socket] = []
        self.pull: list[socket.socket] = []
        if attach:
            for priority_class in range(1 + max(shape["class"] for shape in tensors)):
                self.push.append(self.attach(PUSH, priority_class))
                self.pull.append(self.attach(PULL, priority_class))

    def attach(
        self, kind: bytes, priority_class: int, *, receive_buffer: int | None = None
    ) -> socket.socket:
        host, port = self.address.rsplit(":", 1)
        sock = socket.socket()
        sock.settimeout(BOUND)
        if receive_buffer:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.connect((host, int(port)))
        sock.sendall(preamble(kind) + attachment(self.session, priority_class))
        return sock

    def push_whole(self, index: int, round_: int, payload: bytes, priority_class: int = 0) -> None:
        self.push[priority_class].sendall(frame(index, round_, len(payload)) + payload)

    def pull_frame(self, priority_class: int = 0) -> tuple[int, int, int, bytes]:
        """Of the next frame: tensor, round, offset, payload."""
        sock = self.pull[priority_class]
        magic, index, round_, offset, size = _FRAME.unpack(receive(sock, _FRAME.size))
        assert magic == b"MFRM" and size > 0
        payload = receive(sock, size)
        assert len(payload) == size
        return index, round_, offset, payload

    def pull_bytes(self, index: int, round_: int, size: int, priority_class: int = 0) -> bytes:
        """SIZE bytes of one tensor and round, whatever the frames."""
        whole = b""
        while len(whole) < size:
            got, of_round, _offset, payload = self.pull_frame(priority_class)
            assert (got, of_round) == (index, round_)
            whole += payload
        assert len(whole) == size
        return whole

    def leave(self) -> None:
        self.control.send({"type": "leave"})
        assert self.control.is_closed()
        self.close()

    def close(self) -> None:
        for sock in (self.control.sock, *self.push, *self.pull):
            sock.close()


class LyingServer:
    """A listener whose connections the test serves by hand."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(BOUND)
        self.address = name_of(self.listener)
        self._accepted: list[socket.socket] = []

    def accept(self) -> tuple[bytes, socket.socket]:
        """The next connection and its kind; of a data connection the attachment is read."""
        sock, _peer = self.listener.accept()
        self._accepted.append(sock)
        sock.settimeout(BOUND)
        kind = receive(sock, 8)[-1:]
        if kind in (PUSH, PULL):
            receive(sock, 20)
        return kind, sock

    def accept_control(self) -> Control:
        """With the hello and the join read."""
        kind, sock = self.accept()
        assert kind == CONTROL
        control = Control(sock)
        assert control.receive()["type"] == "hello"
        assert control.receive()["type"] == "join"
        return control

    def welcome(self, classes: int = 1) -> tuple[Control, list[socket.socket], list[socket.socket]]:
        """One whole worker: its control, push and pull connections, by class."""
        control = self.accept_control()
        control.send({"type": "welcome", "session": "00" * 16})
        push, pull = [], []
        for _ in range(classes):
            for kind, ends in ((PUSH, push), (PULL, pull)):
                got, sock = self.accept()
                assert got == kind
                ends.append(sock)
        return control, push, pull

    def close(self) -> None:
        for sock in (self.listener, *self._accepted):
            sock.close()
