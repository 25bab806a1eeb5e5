# SPDX-License-Identifier: GPL-2.0
"""
A training program without privileges: what it does is told line by line, as JSON.

Run as a program, it is the process itself (`trainer.py LIBRARY SOCKET`), which uses libmercury
through ctypes, as a framework's plugin would. Imported, Trainer starts one and talks to it.
"""

from __future__ import annotations

import ctypes
import json
import pathlib
import socket
import subprocess
import sys
import threading

USER = 64002

# VGG-16, fp32: bytes of each layer's gradient, and its forward pass in tenths of a millisecond.
VGG16 = [
    ("conv1_1", 7168, 2), ("conv1_2", 147712, 9), ("conv2_1", 295424, 4), ("conv2_2", 590336, 8),
    ("conv3_1", 1180672, 4), ("conv3_2", 2360320, 7), ("conv3_3", 2360320, 7),
    ("conv4_1", 4720640, 4), ("conv4_2", 9439232, 7), ("conv4_3", 9439232, 7),
    ("conv5_1", 9439232, 2), ("conv5_2", 9439232, 2), ("conv5_3", 9439232, 2),
    ("fc6", 411058176, 1), ("fc7", 67125248, 1), ("fc8", 16388000, 1),
]
PORT = 7000

# What libmercury's calls return (mercury.h).
DONE, FALLBACK = 0, 1


class _Layer(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("bytes", ctypes.c_uint64),
        ("forward_ns", ctypes.c_uint64),
        ("backward_ns", ctypes.c_uint64),
    ]


class _Status(ctypes.Structure):
    _fields_ = [
        ("state", ctypes.c_int),
        ("job", ctypes.c_uint),
        ("classes", ctypes.c_size_t),
        ("sockets", ctypes.c_size_t),
        ("marked", ctypes.c_size_t),
        ("why", ctypes.c_char_p),
    ]


class _Program:
    def __init__(self, library: str, path: str) -> None:
        self._lib = ctypes.CDLL(library)
        self._lib.mercury_client_new.restype = ctypes.c_void_p
        self._lib.mercury_client_error.restype = ctypes.c_char_p
        self._client = ctypes.c_void_p(self._lib.mercury_client_new(path.encode()))
        self._sockets: list[socket.socket] = []
        self._sending: list[threading.Thread] = []

    def job(self, name: str, classes: int) -> int:
        layers = (_Layer * len(VGG16))(
            *(_Layer(n.encode(), size, t * 10**5, 2 * t * 10**5) for n, size, t in VGG16)
        )
        return self._lib.mercury_client_job(
            self._client, name.encode(), layers, ctypes.c_size_t(len(VGG16)), ctypes.c_size_t(classes)
        )

    def open(self, layer: int, port: int, address: str) -> dict:
        """A socket for a layer: assigned before its first packet."""
        sock = socket.socket()
        outcome = self._lib.mercury_client_assign(
            self._client, sock.fileno(), ctypes.c_size_t(layer), ctypes.c_uint32(128 << 10)
        )
        sock.connect((address, port))
        self._sockets.append(sock)
        return {"outcome": outcome, "port": sock.getsockname()[1], **self.look(len(self._sockets) - 1)}

    def look(self, index: int) -> dict:
        sock = self._sockets[index]
        return {
            "mark": sock.getsockopt(socket.SOL_SOCKET, 36),
            "priority": sock.getsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY),
            "tos": sock.getsockopt(socket.IPPROTO_IP, socket.IP_TOS),
        }

    def mark_it_yourself(self, index: int) -> str:
        try:
            self._sockets[index].setsockopt(socket.SOL_SOCKET, 36, 1)
        except PermissionError as refused:
            return type(refused).__name__
        return "nobody minds"

    def send(self, index: int, size: int) -> None:
        """In a thread: other sockets may send meanwhile."""
        thread = threading.Thread(target=self._sockets[index].sendall, args=(bytes(size),))
        thread.start()
        self._sending.append(thread)

    def sent(self) -> None:
        for thread in self._sending:
            thread.join()
        self._sending.clear()

    def step(self) -> int:
        return self._lib.mercury_client_step(self._client)

    def dispatch(self, milliseconds: int) -> int:
        return self._lib.mercury_client_dispatch(self._client, milliseconds)

    def status(self) -> dict:
        status = _Status()
        size = ctypes.c_size_t(ctypes.sizeof(status))
        self._lib.mercury_client_status(self._client, ctypes.byref(status), size)
        return {"state": status.state, "job": status.job, "classes": status.classes,
                "sockets": status.sockets, "marked": status.marked, "why": status.why.decode()}


class Trainer:
    """The other end of it."""

    def __init__(self, pair: object, path: str, user: int = USER) -> None:
        from daemon import BUILD  # not for the program, which needs no test's modules

        words = ["ip", "netns", "exec", pair.a.name, "setpriv", "--reuid", str(user)]
        words += ["--regid", str(user), "--clear-groups", "--inh-caps", "-all"]
        words += [sys.executable, __file__, str(BUILD / "hints/libmercury.so"), path]
        self._process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __getattr__(self, name: str) -> object:
        def call(*arguments: object) -> object:
            self._process.stdin.write(json.dumps([name, *arguments]) + "\n")
            self._process.stdin.flush()
            return json.loads(self._process.stdout.readline())

        return call

    def die(self) -> None:
        self._process.kill()
        self._process.wait()

    def end(self) -> None:
        self._process.stdin.close()
        self._process.wait(30)


class Sink:
    """Reads and forgets whatever is sent to a port."""

    def __init__(
        self, ns: object, port: int = PORT, family: int = socket.AF_INET
    ) -> None:
        self._listener = ns.socket(family, socket.SOCK_STREAM)
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.bind(("", port))
        self._listener.listen(64)
        self.received = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._read, args=(connection,), daemon=True).start()

    def _read(self, connection: socket.socket) -> None:
        while data := connection.recv(1 << 18):
            self.received += len(data)

    def close(self) -> None:
        self._listener.close()


def main() -> None:
    program = _Program(*sys.argv[1:])
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        print(json.dumps(getattr(program, name)(*arguments)), flush=True)


if __name__ == "__main__":
    main()
