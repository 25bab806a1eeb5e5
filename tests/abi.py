# SPDX-License-Identifier: GPL-2.0
"""The numbers of sch_mercury's own header, and netlink attributes as bytes."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

NLA_F_NESTED, NLA_TYPE_MASK = 0x8000, 0x3FFF


def _read_header(path: Path) -> dict[str, int]:
    """Every enumerator, and every macro that is a plain number."""
    text = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.S)
    names: dict[str, int] = {}
    for name, value in re.findall(r"^#define (\w+) (0x[0-9a-fA-F]+|\d+)U?L?L?\s*$", text, re.M):
        names[name] = int(value, 0)
    for body in re.findall(r"enum\s*\w*\s*\{(.*?)\}", text, re.S):
        for number, name in enumerate(re.findall(r"\w+", body)):
            names[name] = number
    return names


ABI = _read_header(ROOT / "kmod/uapi/mercury.h")


def u8(value: int) -> bytes:
    return struct.pack("=B", value)


def u32(value: int) -> bytes:
    return struct.pack("=I", value)


def u64(*values: int) -> bytes:
    return struct.pack(f"={len(values)}Q", *values)


def raw_attr(kind: int, size: int, payload: bytes) -> bytes:
    """An attribute that claims a size, whatever it has."""
    return struct.pack("=HH", size, kind) + payload


def attr(kind: int, payload: bytes = b"") -> bytes:
    return raw_attr(kind, 4 + len(payload), payload) + b"\0" * (-len(payload) % 4)


def attributes(payload: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(payload):
        size, kind = struct.unpack_from("=HH", payload, at)
        assert size >= 4 and at + size <= len(payload), "malformed attribute"
        yield kind & NLA_TYPE_MASK, payload[at + 4 : at + size]
        at += (size + 3) & ~3
