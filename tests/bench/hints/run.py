#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Compare an assignment by mercuryd with what it cannot do without.

usage: run.py BUILD RESULT.json [--sockets N] [--clients N] [--repeats N]

BUILD is the folder of the user space, with mercuryd and bench_hints, which measures once;
scripts/bench-hints builds both and starts this in a network namespace.

Each repeat has a daemon of its own, and measures everything once, so that what is compared was
measured within seconds. Then the clients are killed, and nothing may be left of them.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import socket
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

NAMES = {
    "setsockopt": "setsockopt(SO_MARK)",
    "round_trip": "round trip over a socketpair",
    "one_job": "assign, one client",
    "many_clients": "assign, {clients} clients at once",
}
PATIENCE = 60  # seconds, for what takes milliseconds


class Daemon:
    def __init__(self, build: Path, folder: Path) -> None:
        self._path = str(folder / "hints.sock")
        config = folder / "mercuryd.toml"
        config.write_text(f'[hints]\nsocket = "{self._path}"\n')
        words = [build / "daemon/mercuryd", "--config", config]
        self._process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
        for line in self._process.stderr:
            if "ready" in line:
                return
        raise SystemExit(f"mercuryd does not start: exit {self._process.wait()}")

    @property
    def path(self) -> str:
        return self._path

    def memory(self) -> int:
        """Resident, in bytes."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        (line,) = [line for line in status.splitlines() if line.startswith("VmRSS:")]
        return int(line.split()[1]) * 1024

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self._process.pid}/fd"))

    def status(self) -> dict[str, Any]:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
            client.connect(self._path)
            for request in ({"type": "hello", "version": 1, "client": "bench"}, {"type": "status"}):
                client.send(json.dumps(request).encode())
                answer = json.loads(client.recv(1 << 17))
            return answer

    def __enter__(self) -> Daemon:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.communicate()


def footprint(daemon: Daemon) -> dict[str, int]:
    status = daemon.status()
    return {
        "memory_bytes": daemon.memory(),
        "clients": status["clients"] - 1,  # who asks
        "jobs": len(status["jobs"]),
        "sockets": sum(one["sockets"] for job in status["jobs"] for one in job["classes"]),
        "descriptors": daemon.descriptors(),
    }


def after_death(daemon: Daemon, before: dict[str, int]) -> dict[str, int]:
    """When nothing is left but memory; or what is left after a long time."""
    end = time.monotonic() + PATIENCE
    while True:
        now = footprint(daemon)
        counts = {name: value for name, value in now.items() if name != "memory_bytes"}
        if counts.items() <= before.items() or time.monotonic() > end:
            return now
        time.sleep(0.05)


def measure(build: Path, sockets: int, clients: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder, Daemon(build, Path(folder)) as daemon:
        before = footprint(daemon)
        words = [build / "tests/bench/hints/bench_hints", daemon.path, str(sockets), str(clients)]
        program = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        line = program.stdout.readline()
        if not line:
            raise SystemExit(f"bench_hints: exit {program.wait()}")
        during = footprint(daemon)
        program.kill()
        program.communicate()
        after = after_death(daemon, before)
    return {"times_ns": json.loads(line), "before": before, "during": during, "after": after}


def left(repeat: dict[str, Any]) -> dict[str, int]:
    """What the dead clients have left, but memory."""
    pairs = ((n, repeat["after"][n] - repeat["before"][n]) for n in repeat["before"])
    return {name: more for name, more in pairs if more > 0 and name != "memory_bytes"}


def p99(times: list[int]) -> float:
    return statistics.quantiles(times, n=100)[98]


def main() -> None:
    parser = argparse.ArgumentParser(description="Compares assignments with what they are made of.")
    parser.add_argument("build", type=Path)
    parser.add_argument("result", type=Path)
    parser.add_argument("--sockets", type=int, default=10000)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    repeats = [
        measure(arguments.build, arguments.sockets, arguments.clients)
        for _ in range(arguments.repeats)
    ]

    print(f"{'microseconds, of ' + str(arguments.sockets) + ' times':34}{'median':>9}{'p99':>9}")
    figures: dict[str, dict[str, float]] = {}
    for key, name in NAMES.items():
        times = [repeat["times_ns"].pop(key) for repeat in repeats]
        figures[key] = {
            "median_us": statistics.median(map(statistics.median, times)) / 1000,
            "p99_us": statistics.median(map(p99, times)) / 1000,
        }
        median, late = figures[key].values()
        print(f"{name.format(clients=arguments.clients):34}{median:9.2f}{late:9.2f}")
    for repeat in repeats:
        repeat["left"] = left(repeat)
        del repeat["times_ns"]
    memory = {
        when: statistics.median(repeat[when]["memory_bytes"] for repeat in repeats)
        for when in ("before", "during", "after")
    }
    print("memory of the daemon: " + ", ".join(f"{v / 2**20:.1f} MiB {k}" for k, v in memory.items()))
    leavings = [repeat["left"] for repeat in repeats if repeat["left"]]
    print(f"left by clients that were killed: {leavings or 'nothing'}")

    document = {
        "machine": {
            "processor": platform.machine(),
            "cores": len(os.sched_getaffinity(0)),
            "kernel": platform.release(),
            "load_average": load,
        },
        "sockets": arguments.sockets,
        "clients": arguments.clients,
        "figures": figures,
        "memory_bytes": memory,
        "repeats": repeats,
    }
    arguments.result.write_text(json.dumps(document, indent=1) + "\n")
    if leavings:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
