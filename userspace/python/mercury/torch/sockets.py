# SPDX-License-Identifier: MIT
"""
Which sockets of this process lead to another rank of the job.

They were made by gloo or NCCL, which do not tell. A process has other connections, too (a data set
in the network, a logger), and threads that make more at any time. So all ranks show each other the
two addresses of their connections: one that another rank has the other way round is the job's.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable

from mercury.hints import borrowed

Address = tuple[str, int]
Ends = tuple[Address, Address]


def _address(told: tuple) -> Address:
    return told[0].removeprefix("::ffff:"), told[1]


def _ends(fd: int) -> Ends | None:
    """Of a TCP connection; anything else has none."""
    try:
        with borrowed(fd) as sock:
            internet = sock.family in (socket.AF_INET, socket.AF_INET6)
            if not internet or sock.type != socket.SOCK_STREAM or sock.proto != socket.IPPROTO_TCP:
                return None
            return _address(sock.getsockname()), _address(sock.getpeername())
    except OSError:  # no socket, or it listens, or is closed
        return None


def own_connections() -> dict[int, Ends]:
    """By their descriptor."""
    found = ((int(name), _ends(int(name))) for name in os.listdir("/proc/self/fd"))
    return {fd: ends for fd, ends in found if ends is not None}


def between_ranks(own: dict[int, Ends], others: Iterable[Iterable[Ends]]) -> dict[int, Ends]:
    """Those of OWN that are among the connections of all ranks the other way round."""
    known = {(there, here) for ends in others for here, there in ends}
    return {fd: ends for fd, ends in own.items() if ends in known}
