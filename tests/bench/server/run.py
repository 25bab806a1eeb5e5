#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Compare the server's aggregation with plain loops and memcpy().

usage: run.py BENCH_SERVER RESULT.json [--repeats N] [--bytes N]

BENCH_SERVER is the program beside this file, which measures once; scripts/bench-server
builds it and starts this in a network namespace, where nothing else uses the loopback.

Every repeat measures everything once, so that what is compared was measured within
seconds; ratios are taken within a repeat, and all figures are medians over the
repeats, with the least and the greatest. GB are 10^9 bytes.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

WORKERS = (2, 4)
TYPES = ("f32", "f16", "bf16")
TARGET = 0.6  # of the receive loop

# recv() fills as much at once in the server.
BUFFER = 128 << 10
# 128 MiB in four classes: a share of a model that no second-level cache holds.
JOB = {"classes": 4, "tensors": 8, "tensor-bytes": 16 << 20, "in-flight": 1 << 20}


@dataclass(frozen=True)
class Rate:
    """GB a second: of the CPU time of the thread that receives, and of the clock."""

    cpu: float
    wall: float


def rate(figures: dict[str, float]) -> Rate:
    gigabytes = figures["bytes"] / 1e9
    return Rate(gigabytes / figures["cpu_s"], gigabytes / figures["wall_s"])


class Bench:
    """Runs the program."""

    def __init__(self, program: str, size: int) -> None:
        self.program = program
        self.bytes = size

    def run(self, mode: str, **options: object) -> dict:
        words = [self.program, "--bytes", str(self.bytes), mode]
        for name, value in options.items():
            words += ["--" + name, str(value)]
        done = subprocess.run(words, stdout=subprocess.PIPE, check=True, text=True)
        return json.loads(done.stdout)

    def copy(self, size: int) -> Rate:
        return rate(self.run("copy", buffer=size))

    def loop(self, mode: str, workers: int) -> Rate:
        return rate(self.run(mode, workers=workers, buffer=BUFFER))

    def job(self, mode: str, workers: int, element: str) -> Rate:
        return rate(self.run(mode, workers=workers, type=element, **JOB))

    def pushes(self, workers: int, element: str) -> Rate:
        return rate(self.run("phases", workers=workers, type=element, **JOB)["push"])


def cache_bytes() -> int:
    """The largest cache."""
    sizes = Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    found = (size.read_text().strip() for size in sizes)
    return max((int(text[:-1]) * units[text[-1]] for text in found), default=32 << 20)


def copy_bytes() -> int:
    """Twice the largest cache, unless that is too much of the memory."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(max(2 * cache_bytes(), 256 << 20), memory // 8)


def measure(bench: Bench, copied: int) -> Iterator[tuple[str, Rate]]:
    """Everything once."""
    yield "memcpy", bench.copy(copied)
    for workers in WORKERS:
        yield f"{workers} receive", bench.loop("receive", workers)
        yield f"{workers} exchange", bench.loop("exchange", workers)
        for element in TYPES:
            yield f"{workers} {element} pushes", bench.pushes(workers, element)
            yield f"{workers} {element} server", bench.job("server", workers, element)
        yield f"{workers} f32 workers", bench.job("workers", workers, "f32")


def ratios(once: dict[str, Rate]) -> Iterator[tuple[str, float]]:
    """By CPU time."""
    for workers in WORKERS:
        receive = once[f"{workers} receive"].cpu
        exchange = once[f"{workers} exchange"].cpu
        for element in TYPES:
            pushes = once[f"{workers} {element} pushes"].cpu
            server = once[f"{workers} {element} server"].cpu
            yield f"{workers} {element} pushes / receive", pushes / receive
            yield f"{workers} {element} server / exchange", server / exchange
            yield f"{workers} {element} server / receive", server / receive
        yield f"{workers} f32 workers / exchange", once[f"{workers} f32 workers"].cpu / exchange


@dataclass(frozen=True)
class Spread:
    """Of the repeats."""

    median: float
    least: float
    greatest: float

    @staticmethod
    def of(values: list[float]) -> Spread:
        return Spread(statistics.median(values), min(values), max(values))

    def __str__(self) -> str:
        return f"{self.median:6.2f}  ({self.least:.2f} to {self.greatest:.2f})"

    def per_cent(self) -> str:
        return f"{100 * self.median:.0f} % ({100 * self.least:.0f} to {100 * self.greatest:.0f})"


Table = dict[str, Spread]


def table_lines(cpu: Table, wall: Table, ratio: Table, copied: int) -> Iterator[str]:
    def line(name: str, text: str, compared: str = "") -> str:
        return f"{text:34}{cpu[name]!s:26}{wall[name].median:6.2f}    {compared}".rstrip()

    yield f"{'':34}{'GB per CPU second':26}GB/s"
    yield line("memcpy", f"memcpy, {copied >> 20} MiB")
    for workers in WORKERS:
        yield f"{workers} workers"
        yield line(f"{workers} receive", "  loop that receives")
        yield line(f"{workers} exchange", "  loop that receives and returns")
        for element in TYPES:
            name = f"{workers} {element}"
            of_receive = ratio[f"{name} pushes / receive"].per_cent()
            yield line(f"{name} pushes", f"  server, {element}, pushes alone",
                       f"{of_receive} of the loop that receives")
            of_exchange = ratio[f"{name} server / exchange"].per_cent()
            yield line(f"{name} server", f"  server, {element}, and results",
                       f"{of_exchange} of the loop that returns")
        of_exchange = ratio[f"{workers} f32 workers / exchange"].per_cent()
        yield line(f"{workers} f32 workers", "  the same, f32, real workers",
                   f"{of_exchange} of the loop that returns")


def machine() -> dict[str, object]:
    cpus = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":", 1)[1].strip() for line in cpus if "model name" in line), "")
    control = Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
    return {
        "processor": model or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "congestion_control": control,
        "load_average": os.getloadavg()[0],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Compares the server with plain loops.")
    parser.add_argument("program")
    parser.add_argument("result", type=Path)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--bytes", type=int, default=2 << 30)
    arguments = parser.parse_args()
    bench = Bench(arguments.program, arguments.bytes)
    copied = copy_bytes()
    before = machine()

    repeats: list[dict[str, Rate]] = []
    for number in range(arguments.repeats):
        once: dict[str, Rate] = {}
        for name, measured in measure(bench, copied):
            once[name] = measured
            print(f"\r\033[K{number + 1} of {arguments.repeats}: {name}", end="", file=sys.stderr)
        repeats.append(once)
    print("\r\033[K", end="", file=sys.stderr)

    names = list(repeats[0])
    cpu = {name: Spread.of([once[name].cpu for once in repeats]) for name in names}
    wall = {name: Spread.of([once[name].wall for once in repeats]) for name in names}
    compared = [dict(ratios(once)) for once in repeats]
    ratio = {name: Spread.of([each[name] for each in compared]) for name in compared[0]}

    print("\n".join(table_lines(cpu, wall, ratio, copied)))
    worst = min(
        (spread.median, name) for name, spread in ratio.items() if name.endswith("pushes / receive")
    )
    met = "met" if worst[0] >= TARGET else "MISSED"
    print(f"target, at least {TARGET:.0%} of the loop that receives: {met}, {worst[0]:.0%} at worst "
          f"({worst[1]})")

    tables = {"GB_per_cpu_second": cpu, "GB_per_second": wall, "ratios_by_cpu_time": ratio}
    document: dict[str, object] = {
        "machine": before | {"load_average_after": os.getloadavg()[0]},
        "bytes": arguments.bytes,
        "memcpy_bytes": copied,
        "job": JOB,
        "loop_buffer_bytes": BUFFER,
    }
    for title, table in tables.items():
        document[title] = {name: asdict(spread) for name, spread in table.items()}
    document["repeats"] = [
        {name: asdict(measured) for name, measured in once.items()} for once in repeats
    ]
    arguments.result.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
