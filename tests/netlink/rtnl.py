# SPDX-License-Identifier: GPL-2.0
"""
Rtnetlink by hand: attributes, messages, and a socket that hears the kernel's
reasons. The numbers of sch_mercury come from its own header.

Nothing here keeps a caller from building nonsense; that is what it is for.
"""

from __future__ import annotations

import dataclasses
import socket
import struct
from collections.abc import Iterable

from abi import ABI, NLA_F_NESTED, attr, attributes

NLM_F_REQUEST, NLM_F_ACK = 0x1, 0x4
NLM_F_ROOT, NLM_F_MATCH = 0x100, 0x200
NLM_F_REPLACE, NLM_F_EXCL, NLM_F_CREATE = 0x100, 0x200, 0x400
NLM_F_CAPPED, NLM_F_ACK_TLVS = 0x100, 0x200
NLMSG_ERROR, NLMSG_DONE = 2, 3
NLMSGERR_ATTR_MSG, NLMSGERR_ATTR_OFFS = 1, 2

RTM_NEWQDISC, RTM_DELQDISC, RTM_GETQDISC = 36, 37, 38
RTM_NEWTCLASS, RTM_DELTCLASS, RTM_GETTCLASS = 40, 41, 42
RTM_NEWTFILTER = 44

TCA_KIND, TCA_OPTIONS, TCA_STATS, TCA_XSTATS, TCA_RATE = 1, 2, 3, 4, 5
TCA_STATS2, TCA_STAB, TCA_PAD, TCA_DUMP_INVISIBLE = 7, 8, 9, 10
TCA_INGRESS_BLOCK, TCA_EGRESS_BLOCK = 13, 14

TC_H_ROOT, TC_H_INGRESS = 0xFFFFFFFF, 0xFFFFFFF1
RTMGRP_TC = 0x8

SOL_NETLINK, NETLINK_CAP_ACK, NETLINK_EXT_ACK = 270, 10, 11

# What is not the same in two dumps of an unchanged qdisc.
VOLATILE = {TCA_STATS, TCA_STATS2, TCA_XSTATS, TCA_PAD}


def option(name: str) -> int:
    return ABI[f"TCA_MERCURY_{name}"]


def class_option(name: str) -> int:
    return ABI[f"TCA_MERCURY_CLASS_{name}"]


# --- attributes ---------------------------------------------------------------


def nest(kind: int, *attributes: bytes) -> bytes:
    return attr(kind | NLA_F_NESTED, b"".join(attributes))


# --- the socket ----------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Request:
    """A request about a qdisc or class of some device, and what tests call it."""

    name: str
    kind: int
    flags: int
    handle: int
    parent: int
    payload: bytes


@dataclasses.dataclass(frozen=True)
class Answer:
    """What the kernel says to a request."""

    error: int  # errno; 0: done
    text: str | None
    at: int | None  # where in the request the attribute is that it means


@dataclasses.dataclass(frozen=True)
class Object:
    """A qdisc or class as a dump shows it, but for what changes by itself."""

    handle: int
    parent: int
    info: int
    attributes: tuple[tuple[int, bytes], ...]

    @property
    def kind(self) -> str:
        return dict(self.attributes)[TCA_KIND].rstrip(b"\0").decode()

    @property
    def options(self) -> bytes:
        return dict(self.attributes)[TCA_OPTIONS]


HEADER = struct.Struct("=IHHII")
TCMSG = struct.Struct("=BxxxiIII")


class Route:
    """An rtnetlink socket, which may hear what is announced to groups."""

    def __init__(self, groups: int = 0) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
        self._socket.bind((0, groups))
        self._socket.settimeout(30)
        for name in (NETLINK_EXT_ACK, NETLINK_CAP_ACK):
            self._socket.setsockopt(SOL_NETLINK, name, 1)
        self._sequence = 0

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Route:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _send(self, kind: int, flags: int, body: bytes) -> bytes:
        self._sequence += 1
        size = HEADER.size + len(body)
        message = HEADER.pack(size, kind, flags | NLM_F_REQUEST, self._sequence, 0) + body
        self._socket.sendto(message, (0, 0))
        return message

    def _receive(self) -> Iterator[tuple[int, int, bytes]]:
        """The messages of one datagram: kind, flags, body."""
        data = self._socket.recv(1 << 18)
        at = 0
        while at < len(data):
            size, kind, flags, sequence, _ = HEADER.unpack_from(data, at)
            assert sequence == self._sequence, "an answer to something else"
            yield kind, flags, data[at + HEADER.size : at + size]
            at += (size + 3) & ~3

    def request(
        self, kind: int, flags: int, device: int, handle: int, parent: int, payload: bytes
    ) -> Answer:
        body = TCMSG.pack(0, device, handle, parent, 0) + payload
        self._send(kind, flags | NLM_F_ACK, body)
        while True:
            for got, got_flags, answer in self._receive():
                if got == NLMSG_ERROR:
                    return _parse_ack(got_flags, answer)

    def dump(self, kind: int, device: int) -> list[Object]:
        """All qdiscs (RTM_GETQDISC) or classes (RTM_GETTCLASS) of a device."""
        invisible = attr(TCA_DUMP_INVISIBLE)
        self._send(kind, NLM_F_ROOT | NLM_F_MATCH, TCMSG.pack(0, device, 0, 0, 0) + invisible)
        objects: list[Object] = []
        while True:
            for got, _, body in self._receive():
                if got == NLMSG_DONE:
                    assert struct.unpack_from("=i", body)[0] == 0, "the dump broke off"
                    return objects
                assert got != NLMSG_ERROR, "the dump was refused"
                found = _parse_object(body)
                # The kernel may dump other devices as well.
                if TCMSG.unpack_from(body)[1] == device:
                    objects.append(found)

    def announced(self) -> list[int]:
        """The kinds of the messages that are announced next."""
        data = self._socket.recv(1 << 18)
        kinds = []
        while data:
            size, kind, *_ = HEADER.unpack_from(data)
            kinds.append(kind)
            data = data[(size + 3) & ~3 :]
        return kinds

    def snapshot(self, device: int) -> tuple[tuple[Object, ...], tuple[Object, ...]]:
        """All that can be seen of a device's qdiscs and classes."""
        return (
            tuple(self.dump(RTM_GETQDISC, device)),
            tuple(self.dump(RTM_GETTCLASS, device)),
        )


def _parse_ack(flags: int, answer: bytes) -> Answer:
    error = -struct.unpack_from("=i", answer)[0]
    if not flags & NLM_F_ACK_TLVS:
        return Answer(error, None, None)
    at = 4 + HEADER.size
    if not flags & NLM_F_CAPPED:
        at += struct.unpack_from("=I", answer, 4)[0] - HEADER.size
    found = dict(attributes(answer[at:]))
    text = found.get(NLMSGERR_ATTR_MSG)
    offset = found.get(NLMSGERR_ATTR_OFFS)
    return Answer(
        error,
        text.rstrip(b"\0").decode() if text else None,
        struct.unpack("=I", offset)[0] if offset else None,
    )


def _parse_object(body: bytes) -> Object:
    _, _, handle, parent, info = TCMSG.unpack_from(body)
    kept = tuple((k, v) for k, v in attributes(body[TCMSG.size :]) if k not in VOLATILE)
    return Object(handle, parent, info, kept)


# --- mercury ---------------------------------------------------------------------


def deadline(job: int, first: int, last: int, time: int, pad: int = 0) -> bytes:
    """struct mercury_deadline"""
    return struct.pack("=HHHHQ", job, first, last, pad, time)


def deadlines(*entries: bytes) -> bytes:
    return nest(option("DEADLINES"), *(attr(ABI["TCA_MERCURY_DEADLINE"], e) for e in entries))


def kind(name: str) -> bytes:
    return attr(TCA_KIND, name.encode() + b"\0")


def mercury(options: Iterable[bytes] | None) -> bytes:
    """The payload of a request for a mercury qdisc or class."""
    if options is None:
        return kind("mercury")
    return kind("mercury") + nest(TCA_OPTIONS, *options)


_SIZES = {"KEY": 1, "SPLIT_GSO": 1, "ACK_FIRST": 1, "RATE": 8, "CE_THRESHOLD": 8}
OPTIONS = {
    name: _SIZES.get(name, 4)
    for name in (
        "JOBS", "BANDS", "LIMIT", "MEMORY_LIMIT", "KEY", "MASK", "JOB_MASK", "DEFAULT_SHARE",
        "RESCUE", "RATE", "SPLIT_GSO", "ACK_FIRST", "CE_THRESHOLD",
    )
}  # fmt: skip


def number(size: int, value: int) -> bytes:
    return value.to_bytes(size, "little")


def set_option(name: str, value: int) -> bytes:
    return attr(option(name), number(OPTIONS[name], value))


def read_options(found: Object) -> dict[str, int | list[tuple[int, int, int, int]]]:
    """The options of a dumped qdisc; the deadlines as (job, first, last, time)."""
    values: dict[str, int | list[tuple[int, int, int, int]]] = {}
    names = {option(name): name for name in OPTIONS}
    for kind_, payload in attributes(found.options):
        if kind_ == option("DEADLINES"):
            entries = (struct.unpack("=HHHHQ", e) for _, e in attributes(payload))
            values["DEADLINES"] = [(j, f, l, t) for j, f, l, _, t in entries]
        elif kind_ != option("PAD"):
            assert len(payload) == OPTIONS[names[kind_]]
            values[names[kind_]] = int.from_bytes(payload, "little")
    return values


def read_class(found: Object) -> dict[str, int]:
    names = {class_option(n): n for n in ("WEIGHT", "LIMIT", "DEADLINE", "JOB", "BAND")}
    return {
        names[k]: int.from_bytes(v, "little")
        for k, v in attributes(found.options)
        if k != class_option("PAD")
    }
