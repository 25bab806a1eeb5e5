# SPDX-License-Identifier: MIT
"""
Push-pull through mercury-server(8), over the C interface of libmercury_transport: see
mercury_transport.h, which says what each of these does and promises.

    worker = Worker("resnet", rank, workers)
    worker.add_server("10.0.0.1:7700-7701")
    fc = worker.add_tensor("fc.weight", Element.F32, elements, priority_class=0)
    worker.join()
    round = worker.push_pull(fc, address, size)
    worker.wait(fc, round)
    worker.close()

The library is what MERCURY_TRANSPORT_LIBRARY names, or the one that is installed.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import dataclasses
import enum
import functools
import os
from collections.abc import Callable

_FAILED, _IN_FLIGHT = -1, 1
_Callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p)


class Element(enum.IntEnum):
    F32 = 0
    F16 = 1
    BF16 = 2


class Reduction(enum.IntEnum):
    SUM = 0
    MEAN = 1


class Order(enum.IntEnum):
    """In which the workers' elements are added up."""

    ARRIVAL = 0
    RANK = 1  # the same bits in every run


class Error(Exception):
    """A call changed nothing, or the job has failed: the message says why."""


class MarkedBy(enum.IntEnum):
    """Of enum mercury_marking."""

    NOBODY = 0
    MARKS = 1
    DAEMON = 2
    PRIORITY = 3


class _MarkingStatus(ctypes.Structure):
    _fields_ = [
        ("by", ctypes.c_int),
        ("job", ctypes.c_uint),
        ("connections", ctypes.c_size_t),
        ("marked", ctypes.c_size_t),
        ("why", ctypes.c_char_p),
    ]


@dataclasses.dataclass(frozen=True)
class Marking:
    """Who marks a worker's connections; see struct mercury_marking_status."""

    by: MarkedBy
    job: int
    connections: int
    marked: int
    why: str


_NAME = "mercury_transport"
_Handle, _Size, _Text, _Uint = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_uint
# The arguments after the worker.
_FUNCTIONS = {
    "add_server": [_Text],
    "add_tensor": [_Text, ctypes.c_int, _Size, _Uint, ctypes.c_int],
    "set_token": [_Text],
    "set_order": [ctypes.c_int],
    "set_hints": [ctypes.c_int, _Text],
    "set_marks": [_Uint],
    "set_in_flight": [_Size],
    "set_join_time": [_Uint],
    "set_silence": [_Uint],
    "join": [],
    "push_pull": [_Size, ctypes.c_void_p, _Size, ctypes.POINTER(ctypes.c_uint64)],
    "push_pull_then": [_Size, ctypes.c_void_p, _Size, _Callback, ctypes.c_void_p],
    "wait": [_Size, ctypes.c_uint64, ctypes.c_int],
    "marking": [ctypes.POINTER(_MarkingStatus), _Size],
}


@functools.cache
def _library() -> ctypes.CDLL:
    path = os.environ.get("MERCURY_TRANSPORT_LIBRARY") or ctypes.util.find_library(_NAME)
    if path is None:
        raise Error(f"lib{_NAME} is not installed; MERCURY_TRANSPORT_LIBRARY may name it")
    try:
        library = ctypes.CDLL(path)
    except OSError as problem:
        raise Error(f"lib{_NAME} cannot be loaded: {problem}") from None
    library.mercury_transport_error.restype = _Text
    library.mercury_worker_new.restype = _Handle
    library.mercury_worker_new.argtypes = [_Text, _Uint, _Uint]
    library.mercury_worker_free.restype = None
    library.mercury_worker_free.argtypes = [_Handle]
    for name, arguments in _FUNCTIONS.items():
        getattr(library, f"mercury_worker_{name}").argtypes = [_Handle, *arguments]
    return library


class Worker:
    """One of WORKERS workers of JOB; see mercury_worker_new()."""

    def __init__(self, job: str, rank: int, workers: int) -> None:
        self._library = _library()
        self._worker = self._library.mercury_worker_new(job.encode(), rank, workers)
        if not self._worker:
            raise MemoryError("mercury_worker_new")
        self._tensors = 0
        # By tensor, which has one round in flight at most. One function of C for all of them, since
        # none may go away while it is running.
        self._waiting: dict[int, Callable[[str | None], None]] = {}
        self._thunk = _Callback(self._called)

    def _call(self, name: str, *arguments: object) -> int:
        if not self._worker:
            raise Error("the worker is closed")
        outcome = getattr(self._library, f"mercury_worker_{name}")(self._worker, *arguments)
        if outcome == _FAILED:
            raise Error(self._library.mercury_transport_error().decode())
        return outcome

    # Before joining.

    def add_server(self, address: str) -> None:
        self._call("add_server", address.encode())

    def add_tensor(
        self,
        key: str,
        element: Element,
        elements: int,
        priority_class: int,
        reduction: Reduction = Reduction.MEAN,
    ) -> int:
        """Its index."""
        self._call("add_tensor", key.encode(), element, elements, priority_class, reduction)
        self._tensors += 1
        return self._tensors - 1

    def set_token(self, token: str) -> None:
        self._call("set_token", token.encode())

    def set_order(self, order: Order) -> None:
        self._call("set_order", order)

    def set_hints(self, on: bool, path: str | None = None) -> None:
        """PATH is mercuryd's socket; None: the usual place. On unless this says otherwise."""
        self._call("set_hints", on, None if path is None else path.encode())

    def set_marks(self, job: int) -> None:
        self._call("set_marks", job)

    def set_in_flight(self, size: int) -> None:
        self._call("set_in_flight", size)

    def set_join_time(self, seconds: float) -> None:
        self._call("set_join_time", round(seconds * 1000))

    def set_silence(self, seconds: float) -> None:
        self._call("set_silence", round(seconds * 1000))

    def join(self) -> None:
        self._call("join")

    # After joining.

    def push_pull(self, index: int, address: int, size: int) -> int:
        """The round. What is at ADDRESS is the library's until wait() says that it is complete."""
        number = ctypes.c_uint64()
        self._call("push_pull", index, address, size, ctypes.byref(number))
        return number.value

    def push_pull_then(
        self, index: int, address: int, size: int, callback: Callable[[str | None], None]
    ) -> None:
        """CALLBACK gets None or an error, in another thread: it should be short, and not raise."""

        self._waiting[index] = callback
        try:
            # NULL would be None.
            self._call("push_pull_then", index, address, size, self._thunk, index + 1)
        except Error:
            del self._waiting[index]
            raise

    def _called(self, context: int, error: bytes | None) -> None:
        callback = self._waiting.pop(context - 1)
        callback(None if error is None else error.decode(errors="replace"))

    def wait(self, index: int, number: int, seconds: float | None = None) -> bool:
        """Whether the round is complete: it always is, unless SECONDS were not enough."""
        milliseconds = -1 if seconds is None else round(seconds * 1000)
        return self._call("wait", index, number, milliseconds) != _IN_FLIGHT

    def marking(self) -> Marking:
        now = _MarkingStatus()
        self._call("marking", ctypes.byref(now), ctypes.sizeof(now))
        return Marking(MarkedBy(now.by), now.job, now.connections, now.marked, now.why.decode())

    def close(self) -> None:
        """Leaves the job. Rounds in flight are abandoned, which ends the job for all workers."""
        if self._worker:
            worker, self._worker = self._worker, None
            self._library.mercury_worker_free(worker)
