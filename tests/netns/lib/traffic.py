# SPDX-License-Identifier: GPL-2.0
"""Senders: datagrams with sequence numbers, and TCP connections."""

from __future__ import annotations

import copy
import random
import select
import socket
import struct
import time
from collections.abc import Callable

from lib.netns import Namespace, Pair

_SO_SNDBUFFORCE = 32
_SO_RCVBUFFORCE = 33
_SO_MARK = 36
_SO_TXTIME = 61
_SCM_TXTIME = _SO_TXTIME
_IP_RECVERR = 11
_SOL_UDP = 17
_UDP_SEGMENT = 103
_TCP_NOTSENT_LOWAT = 25
_TXTIME_DEADLINE_MODE = 1

# Every datagram begins with it: a magic word, flow, sequence number, time sent.
_HEADER = struct.Struct("!4sIIq")
_MAGIC = b"MERC"
HEADERS = 14 + 20 + 8  # bytes of Ethernet, IPv4 and UDP


def read_header(data: bytes, at: int) -> tuple[int, int, int] | None:
    if len(data) < at + _HEADER.size or data[at : at + 4] != _MAGIC:
        return None
    return _HEADER.unpack_from(data, at)[1:]


# The two bits of TOS for ECN.
NOT_ECT, ECT_1, ECT_0, CE = range(4)


def mark(layer: int, job: int = 0) -> int:
    """The SO_MARK of a layer (from 1; 0: unmarked) of a job."""
    return job << 16 | layer


def set_mark(sock: socket.socket, so_mark: int) -> None:
    sock.setsockopt(socket.SOL_SOCKET, _SO_MARK, struct.pack("I", so_mark))


def _prepare(sock: socket.socket, so_mark: int, priority: int | None, tos: int | None) -> None:
    v6 = sock.family == socket.AF_INET6
    if tos is not None:  # before the priority, which it sets as well
        if v6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, tos)
        else:
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, tos)
    if priority is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, priority)
    if so_mark:
        set_mark(sock, so_mark)


class Udp:
    """One flow of datagrams from a to b. Sizes are those of whole frames."""

    _next_flow = 0

    def __init__(
        self,
        pair: Pair,
        so_mark: int = 0,
        *,
        priority: int | None = None,
        tos: int | None = None,
        v6: bool = False,
        to: str | None = None,
        port: int = 9,
        size: int = 1000,
        segment: int = 0,
    ) -> None:
        """segment: frames of this size are sent as one GSO packet a call."""
        Udp._next_flow += 1
        self.flow = Udp._next_flow
        self.seq = 0
        self.ignore_errors = False  # of devices that are down or gone
        self._headers = HEADERS + (20 if v6 else 0)
        self._size = size - self._headers
        self._clock = time.CLOCK_MONOTONIC
        self._target = (to or (pair.SINK6 if v6 else pair.SINK4), port)
        self.sock = pair.a.socket(socket.AF_INET6 if v6 else socket.AF_INET, socket.SOCK_DGRAM)
        self.sock.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, 1 << 30)
        if segment:
            self.sock.setsockopt(_SOL_UDP, _UDP_SEGMENT, segment - self._headers)
            self._segment = segment - self._headers
        else:
            self._segment = 0
        _prepare(self.sock, so_mark, priority, tos)
        self.sock.connect(self._target)

    def _payload(self) -> bytes:
        pieces = []
        left = self._size
        now = time.time_ns()  # costs 256 ns in virtual time
        while left > 0:
            size = min(left, self._segment or left)
            pieces.append(_HEADER.pack(_MAGIC, self.flow, self.seq, now).ljust(size, b"\0"))
            self.seq += 1
            left -= size
        return b"".join(pieces)

    def segments_in(self, length: int) -> int:
        """How many datagrams a captured frame of this length holds."""
        return -(-(length - self._headers) // self._segment) if self._segment else 1

    def send(self, count: int = 1) -> None:
        for _ in range(count):
            try:
                self.sock.send(self._payload())
            except OSError:
                if not self.ignore_errors:
                    raise

    def use_txtime(self, clock: int = time.CLOCK_MONOTONIC, *, deadline: bool = True) -> None:
        flags = _TXTIME_DEADLINE_MODE if deadline else 0
        self._clock = clock
        self.sock.setsockopt(socket.SOL_SOCKET, _SO_TXTIME, struct.pack("iI", clock, flags))

    def send_by(self, seconds: float) -> None:
        """Send one with its own time: so many seconds from now."""
        due = time.clock_gettime_ns(self._clock) + round(seconds * 10**9)
        control = [(socket.SOL_SOCKET, _SCM_TXTIME, struct.pack("Q", due))]
        self.sock.sendmsg([self._payload()], control)

    def report_drops(self) -> None:
        """send() raises OSError for what the qdisc says it has dropped."""
        self.sock.setsockopt(socket.IPPROTO_IP, _IP_RECVERR, 1)

    def re_mark(self, so_mark: int) -> None:
        set_mark(self.sock, so_mark)

    def close(self) -> None:
        self.sock.close()


class Tcp:
    """A connection. `sender` has so many bytes to send, `receiver` checks them."""

    def __init__(
        self,
        sender_ns: Namespace,
        receiver_ns: Namespace,
        address: str,
        size: int,
        so_mark: int = 0,
        *,
        priority: int | None = None,
        tos: int | None = None,
        receiver_mark: int = 0,
        late_binding: int = 0,
        seed: int = 0,
    ) -> None:
        """The sender connects. late_binding: TCP_NOTSENT_LOWAT in bytes."""
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with receiver_ns.socket(family, socket.SOCK_STREAM) as listener:
            _prepare(listener, receiver_mark, None, None)
            listener.bind((address, 0))
            listener.listen(1)
            self.port = listener.getsockname()[1]
            self.sender = sender_ns.socket(family, socket.SOCK_STREAM)
            _prepare(self.sender, so_mark, priority, tos)
            if late_binding:
                self.sender.setsockopt(socket.IPPROTO_TCP, _TCP_NOTSENT_LOWAT, late_binding)
            self.sender.connect((address, self.port))
            self.receiver = listener.accept()[0]
        for sock in (self.sender, self.receiver):
            sock.setblocking(False)
        # A block of noise again and again: cheap, and a shift in it is noticed.
        self._block = random.Random(seed).randbytes(65521)
        self.size = size
        self.written = 0
        self.read = 0
        self.intact = True
        self.finished: int | None = None  # ns, CLOCK_REALTIME

    def write_some(self) -> bool:
        """Write what there is room for. True: all is written."""
        while self.written < self.size:
            at = self.written % len(self._block)
            piece = self._block[at : at + self.size - self.written]
            try:
                self.written += self.sender.send(piece)
            except BlockingIOError:
                return False
        return True

    def read_some(self) -> bool:
        """Read what there is. True: all is read."""
        while self.read < self.size:
            try:
                piece = self.receiver.recv(262144)
            except BlockingIOError:
                return False
            if not piece:
                raise ConnectionError("the sender hung up")
            self._check(piece)
        self.finished = time.time_ns()
        return True

    def backwards(self, seed: int = 1) -> Tcp:
        """As many bytes the other way over the same connection."""
        back = copy.copy(self)
        back.sender, back.receiver = self.receiver, self.sender
        back._block = random.Random(seed).randbytes(65521)
        return back

    def _check(self, piece: bytes) -> None:
        at = self.read % len(self._block)
        blocks = -(-(at + len(piece)) // len(self._block))
        self.intact &= (self._block * blocks)[at : at + len(piece)] == piece
        self.read += len(piece)

    @property
    def done(self) -> bool:
        return self.read == self.size

    def close(self) -> None:
        self.sender.close()
        self.receiver.close()


class _Poller:
    """epoll with one handler for each direction of a socket."""

    def __init__(self) -> None:
        self._poll = select.epoll()
        self._handlers: dict[int, dict[int, Callable[[], bool]]] = {}

    def add(self, sock: socket.socket, event: int, handler: Callable[[], bool]) -> None:
        """Call the handler when this is possible, until it says that it is done."""
        handlers = self._handlers.setdefault(sock.fileno(), {})
        if handlers:
            self._poll.modify(sock, sum(handlers) | event)
        else:
            self._poll.register(sock, event)
        handlers[event] = handler

    def wait(self, seconds: float) -> None:
        for fd, events in self._poll.poll(seconds):
            if events & (select.EPOLLERR | select.EPOLLHUP):
                events |= select.EPOLLIN | select.EPOLLOUT
            handlers = self._handlers[fd]
            for event in [e for e in handlers if e & events]:
                if handlers[event]():
                    del handlers[event]
                    self._poll.modify(fd, sum(handlers))

    def close(self) -> None:
        self._poll.close()


def transfer(connections: list[Tcp], *, limit: float = 60, until: float | None = None) -> None:
    """Let connections send until all are done, or for `until` seconds.

    It must not take more than `limit` seconds of the guest's clock.
    """
    end = time.monotonic() + (until if until is not None else limit)
    poller = _Poller()
    for c in connections:
        if not c.done:
            poller.add(c.receiver, select.EPOLLIN, c.read_some)
        if c.written < c.size:
            poller.add(c.sender, select.EPOLLOUT, c.write_some)
    while not all(c.done for c in connections) and (left := end - time.monotonic()) > 0:
        poller.wait(left)
    poller.close()
    if until is None:
        late = [c.read for c in connections if not c.done]
        assert not late, f"{len(late)} connections not done in {limit} s: {late[:10]} bytes"
