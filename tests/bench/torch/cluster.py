# SPDX-License-Identifier: GPL-2.0
"""
Hosts in network namespaces of a guest, each with a rank of a torch.distributed job.

Every host has a link to a switch that is not limited; what limits is a host's own tbf, with the
qdisc under test below it. An all-reduce goes round a ring, so that each link carries what its host
sends and what one other host sends to it.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import socket
import subprocess
import threading
import time
import traceback
from collections.abc import Callable

_CLONE_NEWNET = 0x40000000
_BURST = 70_000  # tbf must be able to send one whole GSO packet
_PORT_OF_BULK = 9000
_context = multiprocessing.get_context("fork")
_libc = ctypes.CDLL(None, use_errno=True)


def run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")


def enter(name: str) -> None:
    with open(f"/run/netns/{name}") as file:
        if _libc.setns(file.fileno(), _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"setns to {name}")


def address(host: int) -> str:
    return f"10.0.0.{host + 1}"


class Cluster:
    def __init__(self, hosts: int, rate: int) -> None:
        self.hosts, self._rate = hosts, rate
        run("ip", "netns", "add", "switch")
        run("ip", "-n", "switch", "link", "add", "bridge", "type", "bridge")
        run("ip", "-n", "switch", "link", "set", "bridge", "up")
        for host in range(hosts):
            name = f"h{host}"
            run("ip", "netns", "add", name)
            run("ip", "link", "add", "eth0", "netns", name, "type", "veth", "peer", "name", name,
                "netns", "switch")  # fmt: skip
            run("ip", "-n", "switch", "link", "set", name, "master", "bridge", "up")
            run("ip", "-n", name, "link", "set", "lo", "up")
            run("ip", "-n", name, "link", "set", "eth0", "up")
            run("ip", "-n", name, "addr", "add", f"{address(host)}/24", "dev", "eth0")

    def shape(self, qdisc: str) -> None:
        """Anew: no queue and no memory of an earlier run."""
        for host in range(self.hosts):
            words = ("tc", "-n", f"h{host}", "qdisc")
            subprocess.run([*words, "del", "dev", "eth0", "root"], capture_output=True)
            run(*words, "add", "dev", "eth0", "root", "handle", "1:", "tbf", "rate", f"{self._rate}bit",
                "burst", f"{_BURST}b", "limit", "100mb")  # fmt: skip
            run(*words, "add", "dev", "eth0", "parent", "1:1", "handle", "2:", *qdisc.split())

    def ranks(self, function: Callable[[int], object], limit: float) -> list[object]:
        """The results of FUNCTION in a process on each host."""
        jobs = []
        for host in range(self.hosts):
            mine, theirs = _context.Pipe()
            process = _context.Process(target=_rank, args=(host, self.hosts, theirs, function))
            process.start()
            theirs.close()
            jobs.append((process, mine))
        try:
            return [_result(host, mine, limit) for host, (_, mine) in enumerate(jobs)]
        finally:
            # Stopped first: a rank may look for a peer that is gone without a pause, and in virtual
            # time nobody else would ever run then.
            for number in (signal.SIGSTOP, signal.SIGKILL):
                for process, _ in jobs:
                    os.kill(process.pid, number)
            for process, _ in jobs:
                process.join()


def _rank(host: int, hosts: int, result: object, function: Callable[[int], object]) -> None:
    enter(f"h{host}")
    if host:
        # Rank 0 listens by then. PyTorch's store is looked for without a pause: see above.
        time.sleep(1)
    os.environ.update(RANK=str(host), WORLD_SIZE=str(hosts), MASTER_ADDR=address(0),
                      MASTER_PORT="29500", GLOO_SOCKET_IFNAME="eth0")  # fmt: skip
    try:
        result.send(("done", function(host)))
    except BaseException:
        result.send(("failed", traceback.format_exc()))
    signal.pause()


def _result(host: int, pipe: object, limit: float) -> object:
    if not pipe.poll(limit):
        raise RuntimeError(f"the rank on host {host} hangs")
    what, value = pipe.recv()
    if what != "done":
        raise RuntimeError(f"the rank on host {host}:\n{value}")
    return value


class Bulk:
    """FLOWS connections without marks from each host to the next, which send as fast as they may."""

    def __init__(self, cluster: Cluster, flows: int) -> None:
        self._received = [_context.Value("Q", 0) for _ in range(cluster.hosts)]
        self._processes = []
        for target in (self._receive, self._send):
            for host in range(cluster.hosts):
                ready = _context.Event()
                process = _context.Process(target=target, args=(host, cluster.hosts, flows, ready))
                process.start()
                ready.wait()
                self._processes.append(process)

    def _receive(self, host: int, hosts: int, flows: int, ready: object) -> None:
        enter(f"h{host}")
        listener = socket.create_server((address(host), _PORT_OF_BULK), backlog=flows)
        ready.set()

        def read(connection: socket.socket) -> None:
            buffer = bytearray(1 << 20)
            while size := connection.recv_into(buffer):
                with self._received[host].get_lock():
                    self._received[host].value += size

        while True:
            threading.Thread(target=read, args=(listener.accept()[0],)).start()

    def _send(self, host: int, hosts: int, flows: int, ready: object) -> None:
        enter(f"h{host}")

        def write() -> None:
            with socket.create_connection((address((host + 1) % hosts), _PORT_OF_BULK)) as connection:
                while True:
                    connection.sendall(bytes(1 << 20))

        threads = [threading.Thread(target=write) for _ in range(flows)]
        for thread in threads:
            thread.start()
        ready.set()
        threads[0].join()

    def received(self) -> int:
        """Bytes, at all hosts together."""
        return sum(value.value for value in self._received)

    def end(self) -> None:
        for process in self._processes:
            process.kill()
            process.join()


class Servers:
    """mercury-server on each host."""

    def __init__(self, cluster: Cluster, program: str, port: int) -> None:
        self.addresses = [f"{address(host)}:{port}" for host in range(cluster.hosts)]
        self._processes = [
            subprocess.Popen(
                ["ip", "netns", "exec", f"h{host}", program, "--listen", where, "--no-token"],
                stderr=subprocess.PIPE, text=True,
            )
            for host, where in enumerate(self.addresses)
        ]  # fmt: skip
        for process in self._processes:
            if not any("listening at" in line for line in process.stderr):
                raise RuntimeError(f"mercury-server ended with {process.wait()}")

    def end(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()


