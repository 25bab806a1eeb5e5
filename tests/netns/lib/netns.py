# SPDX-License-Identifier: GPL-2.0
"""Network namespaces, and pairs of them joined by a link."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import itertools
import os
import pathlib
import socket
import struct
import subprocess
from collections.abc import Iterator

from lib import tc

_CLONE_NEWNET = 0x40000000
_SIOCETHTOOL = 0x8946
_ETHTOOL_GFLAGS, _ETHTOOL_SFLAGS = 0x25, 0x26
_libc = ctypes.CDLL(None, use_errno=True)
_serial = itertools.count(1)


def run(*words: str, feed: str | None = None) -> str:
    """Run a program; what it printed. Its complaint is part of the exception."""
    done = subprocess.run(words, input=feed, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: exit {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def _batch(*commands: str, options: tuple[str, ...] = ()) -> str:
    """One `ip` for several commands: to start one takes longer than what it does."""
    return run("ip", *options, "-batch", "-", feed="\n".join(commands) + "\n")


def _setns(fd: int) -> None:
    if _libc.setns(fd, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


class Namespace:
    """A network namespace. Sockets are made in it without any other process."""

    def __init__(self, name: str) -> None:
        """One that `ip netns add` has made."""
        self.name = name
        self._fd = os.open(f"/run/netns/{name}", os.O_RDONLY)

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        try:
            _setns(self._fd)
            yield
        finally:
            _setns(home)
            os.close(home)

    def socket(self, family: int, kind: int, protocol: int = 0) -> socket.socket:
        with self.inside():
            return socket.socket(family, kind, protocol)

    def sysctl(self, name: str, value: str | int) -> None:
        with self.inside():
            pathlib.Path("/proc/sys/net", name).write_text(f"{value}\n")

    def ip(self, *commands: str) -> str:
        """Each command is a line of `ip -batch`."""
        return _batch(*commands, options=("-n", self.name))

    def tc(self, words: str) -> str:
        return tc.run(self.name, words)

    def refused(self, words: str, status: int | None = 1) -> str:
        """
        Run a tc that must fail; its complaint. Exit status 1: tc refuses, 2: the
        kernel does, None: be it who it may.
        """
        return tc.refused(self.name, words, status)

    def _ethtool(self, dev: str, command: int) -> int:
        value = ctypes.create_string_buffer(struct.pack("II", command, 0), 8)
        request = struct.pack("16sP", dev.encode(), ctypes.addressof(value))
        with self.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            fcntl.ioctl(sock, _SIOCETHTOOL, request)
        return struct.unpack("II", value)[1]

    def switch_vlan_offload_off(self, dev: str) -> None:
        """As `ethtool -K dev txvlan off rxvlan off`, which are all flags of veth."""
        assert self._ethtool(dev, _ETHTOOL_GFLAGS)
        self._ethtool(dev, _ETHTOOL_SFLAGS)
        assert not self._ethtool(dev, _ETHTOOL_GFLAGS)

    def close(self) -> None:
        """Let go of it; to be called before `ip netns del`."""
        os.close(self._fd)


class Pair:
    """Two namespaces joined by veth devices that are called eth0 in both.

    `a` sends: the qdisc under test goes to its eth0. `b` receives. Addresses of
    neighbours are known and IPv6 is off unless it is asked for, so that nothing
    but the traffic of the test is on the link.
    """

    A4, B4 = "10.0.0.1", "10.0.0.2"
    A6, B6 = "fd00::1", "fd00::2"
    # Nobody has these: b drops what is sent there without an answer.
    SINK4, SINK6 = "10.0.0.9", "fd00::9"
    A_MAC, B_MAC = "02:00:00:00:00:0a", "02:00:00:00:00:0b"

    def __init__(self, *, ipv6: bool = False, queues: int = 1) -> None:
        a, b = (f"{name}{next(_serial)}" for name in "ab")
        of_queues = f"numtxqueues {queues} numrxqueues {queues}"
        _batch(
            f"netns add {a}",
            f"netns add {b}",
            f"link add eth0 netns {a} address {self.A_MAC} {of_queues} type veth"
            f" peer name eth0 netns {b} address {self.B_MAC} {of_queues}",
        )
        self.a, self.b = Namespace(a), Namespace(b)
        self._deleted = False
        for ns in (self.a, self.b):
            ns.sysctl("ipv6/conf/all/disable_ipv6", int(not ipv6))
            for dev in ("default", "eth0"):
                ns.sysctl(f"ipv6/conf/{dev}/addr_gen_mode", 1)
        if (os.cpu_count() or 1) > 1:
            self._receive_on_one_cpu()
        self._configure(self.a, (self.A4, self.A6), self.B_MAC, ipv6)
        self._configure(self.b, (self.B4, self.B6), self.A_MAC, ipv6)

    def _receive_on_one_cpu(self) -> None:
        """
        The qdisc may send on another processor from one packet to the next, and
        each has a backlog of its own of what was received. One for all, or the
        capture would show an order that was not on the link.
        """
        every = "for queue in /sys/class/net/eth0/queues/rx-*; do echo 1 >$queue/rps_cpus; done"
        run("ip", "netns", "exec", self.b.name, "sh", "-c", every)

    def _configure(self, ns: Namespace, own: tuple[str, str], mac: str, ipv6: bool) -> None:
        """Everybody but itself is behind the link's other end."""
        everybody = [self.A4, self.B4, self.SINK4]
        commands = ["link set lo up", "link set eth0 up", f"addr add {own[0]}/24 dev eth0"]
        if ipv6:
            everybody += [self.A6, self.B6, self.SINK6]
            commands.append(f"addr add {own[1]}/64 dev eth0 nodad")
        for other in everybody:
            if other not in own:
                commands.append(f"neigh add {other} lladdr {mac} dev eth0")
        ns.ip(*commands)

    def add(self, words: str, *, dev: str = "eth0") -> None:
        """Put a mercury with the handle 1: at the root of a's device."""
        self.a.tc(f"qdisc add dev {dev} root handle 1: mercury {words}")

    def change(self, words: str) -> None:
        self.a.tc(f"qdisc change dev eth0 handle 1: root mercury {words}")

    def delete(self) -> None:
        if not self._deleted:
            self._deleted = True
            self.a.close()
            self.b.close()
            _batch(f"netns del {self.a.name}", f"netns del {self.b.name}")
