# SPDX-License-Identifier: GPL-2.0
"""Netlink messages as the kernel and tc write them, with the numbers of mercury.h."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from abi import ABI, attr, attributes

RTM_NEWQDISC, RTM_NEWTCLASS = 36, 40
TCA_KIND, TCA_OPTIONS, TCA_XSTATS, TCA_STATS2 = 1, 2, 4, 7
TCA_STATS_BASIC, TCA_STATS_QUEUE, TCA_STATS_APP = 1, 3, 4
TC_H_ROOT = 0xFFFFFFFF
LOOPBACK = 1  # the index of lo

Attribute = tuple[int, bytes]


def nest(kind: int, attributes: Iterable[Attribute]) -> bytes:
    return attr(kind, b"".join(attr(k, p) for k, p in attributes))


def message(kind: int, handle: int, parent: int, payload: bytes, info: int = 0) -> bytes:
    body = struct.pack("=BxxxiIII", 0, LOOPBACK, handle, parent, info) + payload
    return struct.pack("=IHHII", 16 + len(body), kind, 2, 0, 0) + body


def stats(app: bytes | None) -> bytes:
    """TCA_STATS2 as net/core/gen_stats.c writes it; `app` is the payload of our nest."""
    tables = [
        (TCA_STATS_BASIC, struct.pack("=QII", 123456, 789, 0)),
        (TCA_STATS_QUEUE, struct.pack("=IIIII", 3, 4500, 7, 1, 2)),
    ]
    if app is not None:
        tables.append((TCA_STATS_APP, app))
    return nest(TCA_STATS2, tables)


def qdisc(options: bytes, app: bytes | None = None, handle: int = 0x10000) -> bytes:
    payload = attr(TCA_KIND, b"mercury\0") + attr(TCA_OPTIONS, options) + stats(app)
    return message(RTM_NEWQDISC, handle, TC_H_ROOT, payload, 2)


def tclass(minor: int, options: bytes, app: bytes | None = None, leaf: int = 0) -> bytes:
    payload = attr(TCA_KIND, b"mercury\0") + attr(TCA_OPTIONS, options) + stats(app)
    return message(RTM_NEWTCLASS, 0x10000 | minor, 0x10000, payload, leaf)


def join(values: Iterable[Attribute]) -> bytes:
    return b"".join(attr(k, p) for k, p in values)


def deadline(job: int, first: int, last: int, ns: int) -> Attribute:
    return ABI["TCA_MERCURY_DEADLINE"], struct.pack("=HHHHQ", job, first, last, 0, ns)


class Request:
    """What tc sent: kind, flags, handle, parent and the attributes within TCA_OPTIONS."""

    def __init__(self, data: bytes) -> None:
        self.size, self.type, self.flags = struct.unpack_from("=IHH", data)
        self.handle, self.parent = struct.unpack_from("=II", data, 24)
        outer = dict(attributes(data[36 : self.size]))
        self.kind = outer[TCA_KIND]
        self.options = list(attributes(outer.get(TCA_OPTIONS, b"")))


def requests(data: bytes) -> list[Request]:
    found = []
    at = 0
    while at < len(data):
        found.append(Request(data[at:]))
        at += found[-1].size
    return found
