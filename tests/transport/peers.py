# SPDX-License-Identifier: GPL-2.0
"""Real servers and workers, each a process that tests/transport/driver.cpp runs."""

from __future__ import annotations

import os
import pathlib
import queue
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from wire import BOUND

TREE = pathlib.Path(__file__).resolve().parents[2]
DRIVER = os.environ.get(
    "MERCURY_DRIVER", str(TREE / "build/userspace/tests/transport/push_pull_driver")
)


def wait_until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + BOUND
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {BOUND:.0f} s"
        time.sleep(0.01)


class Process:
    """Its standard output comes line by line; it is killed with the test."""

    def __init__(self, *words: str, prefix: Sequence[str] = ()) -> None:
        self._process = subprocess.Popen(
            [*prefix, DRIVER, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="surrogateescape",
            bufsize=1,
        )
        self.pid = self._process.pid
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self._process.stdout:
            self._lines.put(line.rstrip("\n"))
        self._lines.put("")

    def line(self) -> str:
        """The next one; empty at the end."""
        return self._lines.get(timeout=BOUND)

    def tell(self, line: str) -> None:
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        """SIGSTOP, and wait until it has."""
        self.signal(signal.SIGSTOP)
        stat = pathlib.Path(f"/proc/{self.pid}/stat")
        wait_until(lambda: stat.read_text().rsplit(")", 1)[1].split()[0] == "T", "SIGSTOP")

    def resume(self) -> None:
        self.signal(signal.SIGCONT)

    def is_running(self) -> bool:
        return self._process.poll() is None

    def end(self) -> tuple[int, str]:
        """Wait for its end: exit status and standard error."""
        status = self._process.wait(BOUND)
        return status, self._process.stderr.read()

    def clean_up(self) -> None:
        """Whatever it was told, it must not have crashed, nor a sanitizer complained."""
        if self.is_running():
            self.signal(signal.SIGCONT)
            self._process.kill()
        status, complaint = self.end()
        self._reader.join()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            try:
                stream.close()
            except BrokenPipeError:
                pass
        assert status in (0, 1, -signal.SIGKILL), (status, complaint)
        # One that is killed while it looks for leaks says so; a real complaint ends it before.
        assert complaint == "" or status == -signal.SIGKILL, complaint


def _words(options: Mapping[str, object]) -> list[str]:
    """max_jobs=3 is --max-jobs 3; what is True is an option without a value."""
    words = []
    for name, value in options.items():
        words.append("--" + name.replace("_", "-"))
        if value is not True:
            words.append(str(value))
    return words


class Server(Process):
    """See the driver for its options; each is a keyword, max_memory for --max-memory."""

    def __init__(self, *, prefix: Sequence[str] = (), **options: object) -> None:
        super().__init__("server", *_words(options), prefix=prefix)
        first = self.line()
        assert first.startswith("listening "), first
        self.address = first.removeprefix("listening ")
        self.log: list[str] = []

    def logged(self, pattern: str) -> re.Match[str]:
        """The first line of the log, old or new, that PATTERN is found in."""
        deadline = time.monotonic() + BOUND
        seen = 0
        while True:
            for line in self.log[seen:]:
                if found := re.search(pattern, line):
                    return found
            seen = len(self.log)
            assert time.monotonic() < deadline, (pattern, self.log)
            line = self.line()
            assert line, f"the server has ended: {pattern} not in {self.log}"
            self.log.append(line.removeprefix("log "))

    def terminate(self) -> None:
        """As an administrator does; it must end in good order."""
        self.signal(signal.SIGTERM)
        status, complaint = self.end()
        assert (status, complaint) == (0, "")


class Worker(Process):
    """It joins meanwhile: wait for that with joined() or refused()."""

    def __init__(
        self,
        *servers: str,
        job: str = "j",
        rank: int = 0,
        workers: int = 1,
        tensors: Sequence[str] = ("t:f32:1000:0:sum",),
        prefix: Sequence[str] = (),
        **options: object,
    ) -> None:
        words = ["--job", job, "--rank", str(rank), "--workers", str(workers)]
        for option, values in (("--server", servers), ("--tensor", tensors)):
            for value in values:
                words += [option, value]
        words += _words(options)
        super().__init__("worker", *words, prefix=prefix)

    def joined(self) -> Worker:
        line = self.line()
        assert line == "joined", line
        return self

    def refused(self) -> str:
        """The error of its join."""
        line = self.line()
        assert line.startswith("error "), line
        return line.removeprefix("error ")

    def do(self, line: str) -> str:
        """Tell, and what it answers; it must be ok."""
        self.tell(line)
        answer = self.line()
        assert answer.split(" ")[0] == "ok", answer
        return answer.removeprefix("ok").strip()

    def error(self, line: str | None = None) -> str:
        """What it answers to LINE, or to what it was told before; it must be an error."""
        if line is not None:
            self.tell(line)
        answer = self.line()
        assert answer.startswith("error "), answer
        return answer.removeprefix("error ")

    def round(self, value: float, total: float, key: str = "t") -> None:
        """A whole round, with the right sum."""
        self.do(f"push {key} {value}")
        self.do(f"wait {key}")
        self.do(f"check {key} {total}")

    def leave(self) -> None:
        self.do("leave")
        assert self.end() == (0, "")
