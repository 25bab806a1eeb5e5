# SPDX-License-Identifier: GPL-2.0
"""The real tc, and what it prints."""

from __future__ import annotations

import json
import re
import subprocess
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lib.netns import Namespace

Record = dict[str, Any]


class TcError(RuntimeError):
    pass


def _start(netns: str, words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["tc", "-n", netns, *words.split()], capture_output=True, text=True)


def run(netns: str, words: str) -> str:
    done = _start(netns, words)
    if done.returncode:
        raise TcError(f"tc {words}: exit {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def refused(netns: str, words: str, status: int | None) -> str:
    done = _start(netns, words)
    expected = (1, 2) if status is None else (status,)
    assert done.returncode in expected, (
        f"tc {words}: exit {done.returncode}, not {status}: {done.stderr.strip()}"
    )
    return done.stderr


def qdiscs(ns: Namespace, dev: str = "eth0") -> list[Record]:
    """All qdiscs of a device with statistics, also those that tc hides."""
    text = ns.tc(f"-j -s -d qdisc show dev {dev} invisible")
    # Some kinds write text where their options should be: {default 1 }
    return json.loads(re.sub(r'"options":\{[^"}]*\}', '"options":{}', text))


def qdisc(ns: Namespace, handle: str = "1:", dev: str = "eth0") -> Record:
    found = [q for q in qdiscs(ns, dev) if q["handle"] == handle]
    assert len(found) == 1, f"{len(found)} qdiscs {handle} on {dev}"
    return found[0]


def qdisc_text(ns: Namespace, handle: str = "1:", dev: str = "eth0") -> str:
    """The line of a qdisc without statistics."""
    for line in ns.tc(f"qdisc show dev {dev}").splitlines():
        if line.startswith("qdisc ") and line.split()[2] == handle:
            return line
    raise TcError(f"no qdisc {handle} on {dev}")


def options_of_text(line: str) -> str:
    """What of a line of `tc qdisc show` can be typed after the qdisc's name."""
    return re.sub(r"^qdisc \S+ \S+ (root|parent \S+) (refcnt \d+ )?", "", line).strip()


_SENT = re.compile(r"Sent (\d+) bytes (\d+) pkt \(dropped (\d+), overlimits (\d+)")
_BACKLOG = re.compile(r"backlog (\S+)b (\d+)p")


def _class_of_text(lines: list[str]) -> tuple[str, Record]:
    """The words of a class in text, and its standard statistics as numbers."""
    words = lines[0].split()
    found: Record = {"kind": words[1], "handle": words[2]}
    rest = words[3:]
    while rest:
        name = rest.pop(0)
        found[name] = rest.pop(0) if name not in ("root", "default") else True
    for line in lines[1:]:
        if sent := _SENT.search(line):
            found |= zip(("bytes", "packets", "drops", "overlimits"), map(int, sent.groups()))
        elif backlog := _BACKLOG.search(line):
            found["qlen"] = int(backlog[2])
    return found["handle"], found


def classes(ns: Namespace, handle: str = "1:", dev: str = "eth0") -> dict[str, Record]:
    """
    The classes of a mercury with statistics, by their classid.

    From the text: the tc of Debian 12 has no JSON for classes. Asked for by
    handle: in a dump of all classes a netem without a child ends the list.
    """
    blocks: list[list[str]] = []
    for line in ns.tc(f"-s class show dev {dev} parent {handle}").splitlines():
        if line.startswith("class "):
            blocks.append([])
        blocks[-1].append(line)
    return dict(_class_of_text(block) for block in blocks)


def band(job: int, number: int, major: int = 1) -> str:
    return f"{major:x}:{job * 0x400 + number + 1:x}"


def job(number: int, major: int = 1) -> str:
    return f"{major:x}:{0xfc00 + number:x}"


DEFAULT = "1:ffff"
