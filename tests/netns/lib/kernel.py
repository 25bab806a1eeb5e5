# SPDX-License-Identifier: GPL-2.0
"""The kernel that the tests run in: its clock, its log, its modules."""

from __future__ import annotations

import os
import pathlib
import re
import time

_BAD = re.compile(
    r"WARNING:|BUG:|Oops|Call Trace|KASAN|UBSAN|INFO: (task|rcu)|possible (circular|recursive)"
    r"|suspicious RCU|refcount_t|unregister_netdevice: waiting|non-work-conserving"
    r"|general protection|unable to handle"
)


def has_virtual_time() -> bool:
    return "time-travel" in pathlib.Path("/proc/cmdline").read_text()


def is_loaded(module: str = "sch_mercury") -> bool:
    lines = pathlib.Path("/proc/modules").read_text().splitlines()
    return module in [line.split()[0] for line in lines]


class Log:
    """The kernel log from now on."""

    def __init__(self) -> None:
        self.expected: str | None = None  # a pattern
        self._fd = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
        os.lseek(self._fd, 0, os.SEEK_END)

    def read(self) -> list[str]:
        lines = []
        while True:
            try:
                record = os.read(self._fd, 8192).decode(errors="replace")
            except BlockingIOError:
                return lines
            except BrokenPipeError:  # messages were overwritten
                continue
            lines.append(record.split(";", 1)[1].rstrip("\n"))

    def complaints(self) -> list[str]:
        """What is a sign of a bug among the messages since the last call."""
        bad = [line for line in self.read() if _BAD.search(line)]
        return [line for line in bad if not (self.expected and re.search(self.expected, line))]

    def close(self) -> None:
        os.close(self._fd)


def users(module: str = "sch_mercury") -> int:
    """How many qdiscs hold the module; -1: it is not loaded."""
    for line in pathlib.Path("/proc/modules").read_text().splitlines():
        words = line.split()
        if words[0] == module:
            return int(words[2])
    return -1


def wait_until_unused(*, but_for: int = 0, limit: float = 10) -> None:
    """Namespaces are cleaned up some time after they were deleted.

    but_for: users that may stay, such as the system's default_qdisc.
    """
    end = time.monotonic() + limit
    while users() > but_for:
        assert time.monotonic() < end, f"{users()} users of the module are left"
        time.sleep(0.02)
