# SPDX-License-Identifier: MIT
"""
Hints: a training program says in which order its layers are needed, and which sockets carry them;
mercuryd(8) marks the sockets for sch_mercury.

    client = Client()
    client.job("resnet50", [Layer("conv1", 37632), Layer("fc", 8192000)], classes=4)
    for each class c below client.classes:
        client.assign(sock, first layer of c, lowat=128 << 10)      # before its first byte
    each iteration:
        client.step()
    client.close()

The protocol is that of docs/hints.md, in pure Python, and the behaviour that of libmercury: without
a daemon everything works as well, but with less: sockets get SO_PRIORITY 1 (needed first) to 6,
which needs no privilege, and no mark. `client.status()` says which it is and why. When a daemon
comes, or comes back, the client tells it everything again, with the next call.

A call that the daemon answers waits for it at most `timeout` seconds; then it returns PENDING, and a
daemon that has been slow once is not waited for until it has answered. A client is used by one
thread at a time, and by the process that made it.
"""

from __future__ import annotations

import array
import collections
import contextlib
import dataclasses
import enum
import errno
import fcntl
import json
import os
import select
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence

from mercury import __version__
from mercury.layers import CLASSES_DEFAULT, Layer, LayerClass, check_layers, check_name, group_layers

__all__ = ["Client", "Error", "Layer", "Outcome", "Problem", "Status"]

DEFAULT_SOCKET = "/run/mercury/hints.sock"
LOWAT_MAX = 1 << 30
_VERSION = 1
_MESSAGE_BYTES_MAX = 128 << 10
_PRIORITY_MAX = 6
_PATH_BYTES_MAX = 107
# A daemon that restarts is back in well under a second; one that is not there costs a program a
# system call every ten.
_BACKOFF_MIN, _BACKOFF_MAX = 0.1, 10.0
_SIOCOUTQ = 0x5411
_SO_COOKIE, _SO_MARK = 57, 36
_TCP_NOTSENT_LOWAT = 25


class Outcome(enum.IntEnum):
    """Of calls that have done what they could."""

    DONE = 0
    FALLBACK = 1  # done, without a daemon: SO_PRIORITY only
    PENDING = 2  # asked for; the daemon has not answered yet


class Problem(enum.IntEnum):
    """Why a call did nothing; the numbers are those of mercury.h."""

    ARGUMENT = -1
    ORDER = -3
    SOCKET = -4
    BUSY = -5  # the socket has data underway, which a new mark would reorder
    REFUSED = -6  # by the daemon, such as for a limit; the priority is set
    FORKED = -7


class Error(Exception):
    """Nothing has changed. `problem` is for programs."""

    def __init__(self, problem: Problem, message: str) -> None:
        super().__init__(message)
        self.problem = problem


@dataclasses.dataclass(frozen=True)
class Status:
    connected: bool  # a daemon knows the job
    job: int  # its number in the marks, if connected
    classes: int
    sockets: int  # that were assigned and are remembered
    marked: int  # of these, by the daemon
    why: str  # there is no daemon; "" if there is one


@dataclasses.dataclass
class _Socket:
    cookie: int
    layer: int
    mark: int | None = None  # that the daemon has set


@dataclasses.dataclass(frozen=True)
class _Facts:
    cookie: int
    priority: int
    idle: bool
    tcp: bool


class _Closed(Exception):
    """The connection is of no use any more."""



@contextlib.contextmanager
def borrowed(fd: int) -> Iterator[socket.socket]:
    """A socket object for a descriptor that stays its owner's; OSError if it is no socket."""
    if fd < 0:  # which would make a new one
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    sock = socket.socket(fileno=fd)
    try:
        yield sock
    finally:
        sock.detach()


def _inspect(fd: int) -> _Facts:
    try:
        with borrowed(fd) as sock:
            return _facts_of(sock)
    except OSError as problem:
        raise Error(Problem.SOCKET, f"the descriptor is not a socket: {problem.strerror}") from None


def _facts_of(sock: socket.socket) -> _Facts:
    kind = (sock.type, sock.proto)
    tcp = kind == (socket.SOCK_STREAM, socket.IPPROTO_TCP)
    udp = kind == (socket.SOCK_DGRAM, socket.IPPROTO_UDP)
    if sock.family not in (socket.AF_INET, socket.AF_INET6) or not (tcp or udp):
        raise Error(Problem.SOCKET, "the descriptor is neither a TCP nor a UDP socket")
    underway = array.array("i", [0])
    try:
        fcntl.ioctl(sock, _SIOCOUTQ, underway)
    except OSError:
        pass  # a listening socket has no such number, and nothing underway
    (cookie,) = struct.unpack("=Q", sock.getsockopt(socket.SOL_SOCKET, _SO_COOKIE, 8))
    priority = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY)
    return _Facts(cookie, priority, underway[0] == 0, tcp)


def _set(fd: int, level: int, option: int, value: int, name: str) -> None:
    try:
        with borrowed(fd) as sock:
            sock.setsockopt(level, option, value)
    except OSError as problem:
        raise Error(Problem.SOCKET, f"{name}: {problem.strerror}") from None


def priority_of_class(index: int, classes: int) -> int:
    """If there are more classes than priorities, neighbours share one."""
    return 1 + (index * _PRIORITY_MAX // classes if classes > _PRIORITY_MAX else index)


class Client:
    """
    PATH is the daemon's socket; None: what the environment variable MERCURY_SOCKET says, or else
    /run/mercury/hints.sock. Nothing is connected before there is a job.
    """

    def __init__(self, path: str | None = None, *, timeout: float = 1.0) -> None:
        self._path = path if path is not None else os.environ.get("MERCURY_SOCKET", DEFAULT_SOCKET)
        self._process = os.getpid()
        self.timeout = timeout

        self._job: dict[str, object] | None = None
        self._layers: list[Layer] = []
        self._classes: list[LayerClass] = []
        self._priorities: list[int] = []
        self._marks: list[int] = []
        self._sockets: dict[int, _Socket] = {}
        self._to_send: collections.deque[int] = collections.deque()
        self._busy: list[int] = []  # to be sent again with the next step

        self._connection: socket.socket | None = None
        # What the daemon has still to answer: the type, and the socket of an assign.
        self._asked: collections.deque[tuple[str, int, int]] = collections.deque()
        self._blocked = False  # the daemon has not read what was sent before
        self._told = False  # of the job
        self._declared = False  # the daemon knows it
        self._slow = False  # it has not answered in time
        self._number: int | None = None  # of the job, also after the connection is lost
        self._why = "no job has been declared"
        self._next_try = 0.0
        self._backoff = 0.0
        # Of the assignment that a call waits for.
        self._awaited: dict[str, object] | None = None
        self._awaited_cookie = 0

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Calls ------------------------------------------------------------------------------------

    def job(self, name: str, layers: Sequence[Layer], classes: int = CLASSES_DEFAULT) -> Outcome:
        """
        What this program trains: 1 to 1024 layers, from the input. NAME is the same for all
        processes of this job on this host. CLASSES is how many groups of layers the program can keep
        apart, with a connection each. May be called again when the layers have changed.
        """
        self._check_process()
        try:
            check_name("the name of the job", name)
            check_layers(layers)
            planned = group_layers(layers, classes)
        except ValueError as problem:
            raise Error(Problem.ARGUMENT, str(problem)) from None
        self._layers = list(layers)
        self._classes = planned
        self._priorities = [priority_of_class(i, len(planned)) for i in range(len(planned))]
        self._job = {
            "type": "job",
            "name": name,
            "classes": classes,
            "layers": [self._as_json(layer) for layer in layers],
        }
        self._sockets = {fd: s for fd, s in self._sockets.items() if s.layer < len(layers)}
        self._declared = self._told = False
        if self._connection is None:
            self._next_try = 0.0
        self._connect_if_due()
        self._await(lambda: self._declared)
        return Outcome.DONE if self._declared else self._undone()

    def assign(self, sock: socket.socket | int, layer: int, lowat: int = 0) -> Outcome:
        """
        SOCK, a TCP or UDP socket or its descriptor, will carry LAYER, and others of the same class
        if the program likes. Before its first byte; later only while it has nothing underway.
        LOWAT, unless it is 0, becomes its TCP_NOTSENT_LOWAT: 128 KiB keeps what is not sent yet
        where it can still be overtaken.
        """
        self._check_process()
        self._check_job()
        fd = sock if isinstance(sock, int) else sock.fileno()
        index = self.class_of(layer)
        if not 0 <= lowat <= LOWAT_MAX:
            raise Error(Problem.ARGUMENT, f"lowat must be at most {LOWAT_MAX}")
        facts = _inspect(fd)
        priority = self._priorities[index]
        if facts.priority != priority and not facts.idle:
            raise Error(Problem.BUSY, "the socket has data underway, which would be reordered")
        if lowat:
            if not facts.tcp:
                raise Error(Problem.SOCKET, "TCP_NOTSENT_LOWAT is for TCP sockets only")
            _set(fd, socket.IPPROTO_TCP, _TCP_NOTSENT_LOWAT, lowat, "TCP_NOTSENT_LOWAT")
        _set(fd, socket.SOL_SOCKET, socket.SO_PRIORITY, priority, "SO_PRIORITY")
        self._sockets[fd] = _Socket(facts.cookie, layer)
        self._connect_if_due()
        return self._ask_to_mark(fd, facts.cookie)

    def step(self) -> Outcome:
        """An iteration begins. Never waits."""
        self._check_process()
        self._check_job()
        self._to_send.extend(self._busy)
        self._busy.clear()
        self._connect_if_due()
        self._receive_answers()
        self._send_again()
        if not self._declared:
            return self._undone()
        # One that the daemon has no room for is lost, as if the iteration had been longer.
        self._ask({"type": "step"})
        return Outcome.DONE if self._connection is not None else Outcome.FALLBACK

    def dispatch(self, patience: float = 0.0) -> Outcome:
        """
        Does what is due: gets answers, connects again, sends what could not be sent. Waits at most
        PATIENCE seconds until everything has been answered.
        """
        self._check_process()
        self._check_job()
        self._connect_if_due()
        self._pump(patience, self._is_quiet)
        if self._connection is None:
            return Outcome.FALLBACK
        return Outcome.DONE if self._is_quiet() else Outcome.PENDING

    def close(self) -> None:
        """The daemon forgets the job; sockets keep their marks. Never waits."""
        if self._connection is None:
            return
        if os.getpid() == self._process:  # in a child after fork() it is the parent's
            self._ask({"type": "bye"})
        if self._connection is not None:
            self._disconnect("the client is closed")
        self._job = None

    @property
    def classes(self) -> int:
        """Into how many classes the layers were grouped; 0: no job."""
        return len(self._classes)

    def class_of(self, layer: int) -> int:
        """0 is needed first."""
        for index, one in enumerate(self._classes):
            if one.first <= layer <= one.last:
                return index
        raise Error(
            Problem.ARGUMENT, f"the job has {len(self._layers)} layers, and none of number {layer}"
        )

    def fileno(self) -> int:
        """For select(): the connection to the daemon, or -1 while there is none."""
        return -1 if self._connection is None else self._connection.fileno()

    def status(self) -> Status:
        """Never asks the daemon."""
        marked = sum(one.mark is not None for one in self._sockets.values())
        number = self._number if self._number is not None else 0
        return Status(
            self._declared, number, self.classes, len(self._sockets), marked, self._why
        )

    # Checks -----------------------------------------------------------------------------------

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise Error(Problem.FORKED, "this process has not made the client")

    def _check_job(self) -> None:
        if self._job is None:
            raise Error(Problem.ORDER, "no job has been declared")

    def _undone(self) -> Outcome:
        return Outcome.PENDING if self._connection is not None else Outcome.FALLBACK

    def _is_quiet(self) -> bool:
        return not self._asked and not self._to_send

    @staticmethod
    def _as_json(layer: Layer) -> dict[str, object]:
        described: dict[str, object] = {"name": layer.name, "bytes": layer.bytes}
        if layer.forward_ns:
            described["forward_ns"] = layer.forward_ns
        if layer.backward_ns:
            described["backward_ns"] = layer.backward_ns
        return described

    # Waiting ----------------------------------------------------------------------------------

    def _await(self, condition: Callable[[], bool]) -> None:
        """As long as the daemon is to be waited for."""
        self._pump(0.0 if self._slow else self.timeout, condition)
        self._slow = self._connection is not None and not condition()

    def _pump(self, patience: float, condition: Callable[[], bool]) -> None:
        """Until CONDITION, or the time is over, or the connection."""
        end = time.monotonic() + patience
        while True:
            self._receive_answers()
            self._send_again()
            left = end - time.monotonic()
            if self._connection is None or condition() or left <= 0:
                return
            poll = select.poll()
            poll.register(
                self._connection, select.POLLIN | (select.POLLOUT if self._blocked else 0)
            )
            poll.poll(max(1, int(left * 1000)))

    def _ask_to_mark(self, fd: int, cookie: int) -> Outcome:
        self._awaited = None
        self._awaited_cookie = cookie
        self._to_send.append(fd)
        self._send_again()
        self._await(lambda: self._awaited is not None)
        self._awaited_cookie = 0
        answer, self._awaited = self._awaited, None
        if answer is None:
            return self._undone()
        if answer["type"] == "error":
            self._sockets.pop(fd, None)
            busy = answer.get("code") == "busy"
            raise Error(Problem.BUSY if busy else Problem.REFUSED, str(answer.get("message", "")))
        return Outcome.DONE

    # The connection ---------------------------------------------------------------------------

    def _connect_if_due(self) -> None:
        if self._connection is not None or self._job is None or time.monotonic() < self._next_try:
            return
        size = len(os.fsencode(self._path))
        if not 1 <= size <= _PATH_BYTES_MAX:
            self._disconnect(f"the path of a socket has 1 to {_PATH_BYTES_MAX} bytes, not {size}")
            return
        made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        made.setblocking(False)
        try:
            made.connect(self._path)
        except OSError as problem:
            made.close()
            self._disconnect(f"no daemon at {self._path}: {problem.strerror}")
            return
        self._connection = made
        self._why = "the daemon has not answered yet"
        self._told = False
        self._ask({"type": "hello", "version": _VERSION, "client": f"mercury.hints {__version__}"})

    def _disconnect(self, why: str) -> None:
        self._why = why
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._asked.clear()
        self._busy.clear()
        self._blocked = self._declared = self._slow = False
        self._backoff = min(max(self._backoff * 2, _BACKOFF_MIN), _BACKOFF_MAX)
        self._next_try = time.monotonic() + self._backoff

    def _ask(self, request: dict[str, object], fd: int = -1, cookie: int = 0) -> bool:
        """Whether it was sent."""
        if self._connection is None:
            return False
        message = json.dumps(request, ensure_ascii=False, separators=(",", ":")).encode()
        try:
            if fd >= 0:
                socket.send_fds(self._connection, [message], [fd], socket.MSG_NOSIGNAL)
            else:
                self._connection.send(message, socket.MSG_NOSIGNAL)
        except OSError as problem:
            return self._not_sent(problem)
        self._blocked = False
        self._asked.append((str(request["type"]), fd, cookie))
        return True

    def _not_sent(self, problem: OSError) -> bool:
        if problem.errno in (errno.EAGAIN, errno.ENOBUFS, errno.ETOOMANYREFS):
            self._blocked = True
        elif problem.errno in (errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN):
            self._receive_answers()  # it may have said why
        else:
            self._disconnect(f"the daemon cannot be told: {problem.strerror}")
        return False

    def _receive_answers(self) -> None:
        while self._connection is not None:
            try:
                packet = self._connection.recv(_MESSAGE_BYTES_MAX + 1)
            except BlockingIOError:
                return
            except ConnectionResetError:
                continue  # said once, and before what the peer sent until then
            except OSError:
                packet = b""
            if not packet:
                self._disconnect("the daemon has hung up")
                return
            try:
                self._take(packet)
            except ValueError as problem:
                self._disconnect(f"the daemon does not keep to the protocol: {problem}")
            except _Closed as reason:
                self._disconnect(str(reason))

    def _take(self, packet: bytes) -> None:
        try:
            answer = json.loads(packet)
        except RecursionError:
            raise ValueError("arrays and objects are nested too deep") from None
        if not isinstance(answer, dict) or not isinstance(answer.get("type"), str):
            raise ValueError("an answer is an object with a type")
        if not self._asked:
            raise ValueError("an answer to nothing")
        self._slow = False
        asked, fd, cookie = self._asked.popleft()
        if answer["type"] not in (asked, "error"):
            raise ValueError("it answers something else")
        if asked == "assign":
            self._assigned(fd, cookie, answer)
        elif answer["type"] == "error":
            if asked != "step":  # a job that it does not know
                raise _Closed(f"the daemon refuses: {answer.get('message', '')}")
        elif asked == "job":
            self._adopt(answer)

    def _assigned(self, fd: int, cookie: int, answer: dict[str, object]) -> None:
        mark = answer.get("mark") if answer["type"] == "assign" else None
        if answer["type"] == "assign" and not isinstance(mark, int):
            raise ValueError("an assign without a mark")
        if cookie == self._awaited_cookie:
            self._awaited = answer
        known = self._sockets.get(fd)
        if known is None or known.cookie != cookie:
            return  # closed meanwhile, and another has its descriptor
        if isinstance(mark, int):
            known.mark = mark
        elif answer.get("code") == "busy":
            self._busy.append(fd)

    def _adopt(self, answer: dict[str, object]) -> None:
        if any(asked == "job" for asked, _, _ in self._asked):
            return  # a later declaration is underway, to which the answer counts
        number, classes = answer.get("number"), answer.get("classes")
        if not isinstance(number, int) or not isinstance(classes, list):
            raise ValueError("a job without number or classes")
        self._check_classes(classes)
        self._classes = [LayerClass(one["first"], one["last"]) for one in classes]
        self._priorities = [one["priority"] for one in classes]
        self._marks = [one["mark"] for one in classes]
        self._number = number
        self._declared = True
        self._why = ""
        self._backoff = 0.0
        self._adopt_marks()

    def _check_classes(self, classes: list[object]) -> None:
        """Each layer is in one class, in order."""
        following = 0
        for one in classes:
            fields = ("first", "last", "mark", "priority")
            if not isinstance(one, dict) or not all(isinstance(one.get(f), int) for f in fields):
                raise ValueError("a class without its numbers")
            if one["first"] != following or one["last"] < following:
                raise ValueError("its classes are not the layers")
            following = one["last"] + 1
        if following != len(self._layers):
            raise ValueError("its classes are not the layers")

    def _adopt_marks(self) -> None:
        """Sockets that have the mark that they should have are left in peace: they may be busy."""
        self._to_send.clear()
        self._busy.clear()
        for fd, known in self._sockets.items():
            if known.mark != self._marks[self.class_of(known.layer)]:
                known.mark = None
                self._to_send.append(fd)

    def _is_same_socket(self, fd: int) -> bool:
        try:
            return _inspect(fd).cookie == self._sockets[fd].cookie
        except (Error, KeyError):
            return False

    def _send_again(self) -> None:
        if self._connection is not None and not self._told and self._job is not None:
            number = {} if self._number is None else {"number": self._number}
            self._told = self._ask({**self._job, **number})
        while self._declared and self._to_send:
            fd = self._to_send[0]
            if not self._is_same_socket(fd):
                self._sockets.pop(fd, None)
            else:
                known = self._sockets[fd]
                if not self._ask({"type": "assign", "layer": known.layer}, fd, known.cookie):
                    return
            self._to_send.popleft()
