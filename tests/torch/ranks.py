# SPDX-License-Identifier: GPL-2.0
"""A job: a process for each rank, which runs a function of scenarios.py."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection

from daemon import NOWHERE
from server import LIBRARY

# torch is loaded once, by a process that does nothing with it; each rank is a fork of that.
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["torch", "mercury.torch", "models", "scenarios"])
_ports = itertools.count(29500)
# Far above what anything takes: who is not there by then hangs.
LIMIT = 240.0


class Failed(Exception):
    """What a rank's exception was."""


def _main(
    rank: int, ranks: int, port: int, environment: dict[str, str], result: Connection,
    function: Callable[..., object], arguments: tuple[object, ...],
) -> None:  # fmt: skip
    global _test
    _test = result
    os.environ.update(
        RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_RANK=str(rank), MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo", **environment,
    )  # fmt: skip
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    torch.manual_seed(rank)
    try:
        dist.init_process_group("gloo")
        result.send(("done", function(rank, *arguments)))
    except BaseException as problem:
        result.send(("failed", f"{type(problem).__name__}: {problem}\n{traceback.format_exc()}"))
    # Not through the end of the interpreter: a test's rank may have threads that wait for a peer.
    os._exit(0)


_test: Connection | None = None  # of a rank


def say(what: object) -> None:
    """To the test."""
    _test.send(what)


def hear() -> object:
    return _test.recv()


class Job:
    def __init__(
        self, ranks: int, function: Callable[..., object], *arguments: object, daemon: str = ""
    ) -> None:
        port = next(_ports)
        environment = {"MERCURY_SOCKET": daemon or NOWHERE, "MERCURY_TRANSPORT_LIBRARY": str(LIBRARY)}
        self._results: list[Connection] = []
        self._processes = []
        for rank in range(ranks):
            mine, theirs = _context.Pipe()
            process = _context.Process(
                target=_main, args=(rank, ranks, port, environment, theirs, function, arguments)
            )
            process.start()
            theirs.close()
            self._results.append(mine)
            self._processes.append(process)

    def hear(self, rank: int) -> object:
        """What the scenario of that rank says meanwhile, or its result."""
        assert self._results[rank].poll(LIMIT), f"rank {rank} hangs"
        return self._results[rank].recv()

    def go_on(self) -> None:
        """For those that wait in hear()."""
        for result in self._results:
            result.send(None)

    def kill(self, rank: int) -> None:
        os.kill(self._processes[rank].pid, signal.SIGKILL)

    def outcome(self, rank: int) -> tuple[str, object]:
        """("done", result), ("failed", why) or ("gone", None)."""
        try:
            return self.hear(rank)
        except EOFError:
            return "gone", None

    def results(self) -> list[object]:
        outcomes = [self.outcome(rank) for rank in range(len(self._processes))]
        self.end()
        for rank, (what, value) in enumerate(outcomes):
            if what != "done":
                raise Failed(f"rank {rank}: {value}")
        return [value for _, value in outcomes]

    def end(self) -> None:
        for process in self._processes:
            process.kill()
            process.join()


def run(ranks: int, function: Callable[..., object], *arguments: object, daemon: str = "") -> list:
    """The results of all ranks; Failed with the first one's exception."""
    return Job(ranks, function, *arguments, daemon=daemon).results()
