# SPDX-License-Identifier: GPL-2.0
"""
The push-pull transport between processes: what every caller sees when a peer dies,
hangs or lies, and that nobody else is disturbed.

    cmake -S userspace -B build/userspace && cmake --build build/userspace --target push_pull_driver
    /usr/bin/python3 -m pytest tests/transport
    /usr/bin/python3 -m pytest -q tests/transport --errors -      # and the table of errors
    MERCURY_DRIVER=... /usr/bin/python3 -m pytest tests/transport # one with sanitizers, say

No test asserts how long anything takes; that something comes at all does it say
within a time that is far above the configured one (wire.BOUND).
"""

from __future__ import annotations

import dataclasses
import pathlib
import re
from collections.abc import Callable, Iterator

import pytest

import peers
import wire

_table: list[tuple[str, str, str]] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--errors", metavar="FILE", help="write the table of faults and errors there, - is here"
    )


# What is in network/ needs namespaces and a clock that leaps: see there.
_in_virtual_time = "time-travel" in pathlib.Path("/proc/cmdline").read_text()
collect_ignore_glob = ["test_*.py"] if _in_virtual_time else ["network/*"]


def pytest_sessionstart() -> None:
    if not pathlib.Path(peers.DRIVER).exists():
        raise pytest.UsageError(f"there is no {peers.DRIVER}: see tests/transport/conftest.py")


def pytest_terminal_summary(terminalreporter, config: pytest.Config) -> None:
    file = config.getoption("--errors")
    if not file:
        return
    lines = ["| fault | who sees it | error |", "| --- | --- | --- |"]
    lines += ["| " + " | ".join(row) + " |" for row in _table]
    if file == "-":
        terminalreporter.write_line("\n".join(lines))
    else:
        pathlib.Path(file).write_text("\n".join(lines) + "\n")


@dataclasses.dataclass
class Scene:
    """One test's processes; all go away with it."""

    fault: str
    processes: list[peers.Process] = dataclasses.field(default_factory=list)
    servers: list[str] = dataclasses.field(default_factory=list)
    closers: list[Callable[[], None]] = dataclasses.field(default_factory=list)

    def server(self, **options: object) -> peers.Server:
        """Times that no fault of this test is to run into, unless it says others."""
        usual = {"silence_ms": 30_000, "join_ms": 120_000, "stall_ms": 120_000}
        made = peers.Server(**(usual | options))
        self.processes.append(made)
        self.servers.append(made.address)
        return made

    def worker(self, *servers: peers.Server | str, **options: object) -> peers.Worker:
        usual = {"silence_ms": 30_000, "join_ms": 30_000}
        addresses = [s if isinstance(s, str) else s.address for s in servers]
        made = peers.Worker(*addresses, **(usual | options))
        self.processes.append(made)
        return made

    def workers(self, *servers: peers.Server, count: int, **options: object) -> list[peers.Worker]:
        made = [self.worker(*servers, rank=i, workers=count, **options) for i in range(count)]
        return [worker.joined() for worker in made]

    def raw(self, server: peers.Server, /, **options: object) -> wire.RawWorker:
        made = wire.RawWorker(server.address, **options)
        self.closers.append(made.close)
        return made

    def liar(self) -> wire.LyingServer:
        made = wire.LyingServer()
        self.servers.append(made.address)
        self.closers.append(made.close)
        return made

    def plain(self, text: str) -> str:
        """With the servers at ports from 7000 on, and PORT for all others'."""
        for number, address in enumerate(self.servers):
            host = address.rsplit(":", 1)[0]
            text = re.sub(re.escape(address) + r"\b", f"{host}:{7000 + number}", text)
        return re.sub(r"((?:127|10)\.0\.0\.\d+):(?!70\d\d\b)\d+", r"\1:PORT", text)

    def saw(self, who: str, error: str, expected: str, fault: str = "") -> None:
        """WHO got this ERROR, which must be EXPECTED; one line of the table."""
        assert self.plain(error) == expected
        row = (fault or self.fault, who, self.plain(error).replace("|", "\\|"))
        if row not in _table:
            _table.append(row)


@pytest.fixture
def scene(request: pytest.FixtureRequest) -> Iterator[Scene]:
    doc = (request.function.__doc__ or request.node.name).strip().splitlines()[0].rstrip(".")
    made = Scene(doc)
    yield made
    for close in made.closers:
        close()
    for process in made.processes:
        process.clean_up()


@pytest.fixture
def server(scene: Scene) -> Iterator[peers.Server]:
    """One with another job in it, which must not be disturbed by what happens to the first."""
    yield from _undisturbed(scene, scene.server())


@pytest.fixture
def quick_to_suspect(scene: Scene) -> Iterator[peers.Server]:
    """The same; silence ends a job after 2 s."""
    yield from _undisturbed(scene, scene.server(silence_ms=2000))


@pytest.fixture
def quick_to_blame(scene: Scene) -> Iterator[peers.Server]:
    """The same; a stall ends a job after 2 s."""
    yield from _undisturbed(scene, scene.server(stall_ms=2000))


def _undisturbed(scene: Scene, server: peers.Server) -> Iterator[peers.Server]:
    other = scene.worker(server, job="other", silence_ms=20_000).joined()
    other.round(1, 1)
    yield server
    if server.is_running():
        other.round(2, 2)
        other.leave()
        server.terminate()
