# SPDX-License-Identifier: GPL-2.0
"""
A program that knows nothing of Mercury: it connects or listens, and tells what its socket got.

Run as a program, it is the process itself (`plain.py connect ADDRESS PORT` or `plain.py listen
ADDRESS PORT`). Imported, Program starts one as whatever user, under whatever name, in whatever
cgroup.
"""

from __future__ import annotations

import json
import os
import pathlib
import select
import socket
import struct
import subprocess
import sys
from collections.abc import Callable

USER, OTHER = 64002, 64003


class Program:
    def __init__(
        self,
        ns: object,
        *words: object,
        user: int = USER,
        name: str = "plain",
        cgroup: pathlib.Path | None = None,
        folder: pathlib.Path | None = None,
    ) -> None:
        """FOLDER is where the file of this NAME can be; the kernel knows it by that."""
        program = sys.executable
        if folder is not None:
            program = str(folder / name)
            if not os.path.islink(program):
                os.symlink(os.path.realpath(sys.executable), program)
        place = f"echo $$ >{cgroup}/cgroup.procs; " if cgroup else ""
        run = ["setpriv", "--reuid", str(user), "--regid", str(user), "--clear-groups"]
        run += [program, __file__, *(str(word) for word in words)]
        shell = ["ip", "netns", "exec", ns.name, "sh", "-c", place + 'exec "$@"', "sh"]
        self._process = subprocess.Popen(
            shell + run, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def says(self) -> dict:
        ready, _, _ = select.select([self._process.stdout], [], [], 60)
        assert ready, "the program says nothing"
        return json.loads(self._process.stdout.readline())

    def ask(self, what: dict) -> None:
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()

    def tell(self) -> None:
        """To go on, or to look again."""
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    @property
    def pid(self) -> int:
        return self._process.pid

    def end(self) -> None:
        self._process.stdin.close()
        self._process.wait(30)


def facts(sock: socket.socket) -> dict:
    ipv6 = sock.family == socket.AF_INET6
    dscp = (socket.IPPROTO_IPV6, socket.IPV6_TCLASS) if ipv6 else (socket.IPPROTO_IP, socket.IP_TOS)
    return {
        "mark": sock.getsockopt(socket.SOL_SOCKET, 36),
        "priority": sock.getsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY),
        "dscp": sock.getsockopt(*dscp) >> 2,
    }


def say(what: dict) -> None:
    print(json.dumps(what), flush=True)


def connect(address: str, port: str, local_port: str = "0") -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as sock:
        if int(local_port):
            sock.bind(("::" if family == socket.AF_INET6 else "", int(local_port)))
        sock.connect((address, int(port)))
        say(facts(sock))
        for _ in sys.stdin:
            say(facts(sock))


def send_datagram(address: str, port: str) -> None:
    """To an address, and then once more after connect()."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        sock.sendto(b"x", (address, int(port)))
        say(facts(sock))
        sock.connect((address, int(port)))
        say(facts(sock))


def connect_many(address: str, port: str, count: str) -> None:
    sockets = [socket.create_connection((address, int(port))) for _ in range(int(count))]
    say({})
    for _ in sys.stdin:
        say({"all": [facts(sock) for sock in sockets]})


def connect_often(address: str, port: str) -> None:
    """Until it is told to end; then the marks that there were."""
    marks: list[int] = []
    say({})
    while not select.select([sys.stdin], [], [], 0)[0]:
        with socket.create_connection((address, int(port))) as sock:
            marks.append(facts(sock)["mark"])
    say({"marks": marks})


def failure(act: Callable[[], object]) -> int:
    try:
        act()
    except OSError as failed:
        return failed.errno
    return 0


def layers(address: str, port: str) -> None:
    """Marks its socket itself, by the option of mercury.h."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as sock:
        sock.connect((address, int(port)))
        say({})
        for line in sys.stdin:
            asked = json.loads(line)
            if "send" in asked:
                sock.send(bytes(asked["send"]))
                say({})
            elif "others" in asked:
                say(other_options(sock))
            else:
                value = struct.pack("II", asked["job"], asked["layer"]).ljust(asked["size"], b"\0")
                value = value[: asked["size"]]
                error = failure(lambda: sock.setsockopt(0x4D43, asked["name"], value))
                say({"errno": error, **facts(sock)})


def other_options(sock: socket.socket) -> dict:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
    congestion = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
    return {
        "nodelay": sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY),
        "congestion": congestion.rstrip(b"\0").decode(),
        "long": failure(lambda: sock.setsockopt(socket.IPPROTO_TCP, 999, bytes(20_000))),
    }


def listen(address: str, port: str) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, int(port)))
        listener.listen()
        say({})
        for _ in sys.stdin:
            with listener.accept()[0] as accepted:
                say(facts(accepted))


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
