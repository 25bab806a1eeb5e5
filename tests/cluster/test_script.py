# SPDX-License-Identifier: GPL-2.0
"""scripts/cluster from outside: its command line, and what a Ctrl-C leaves behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "cluster"

HEAD = """
title = "For a test"
[network]
hosts = 2
rate = "1gbit"
[job]
model = "alexnet"
strategy = "fifo"
"""
# Over at once.
SHORT = """
[[matrix.length]]
name = "short"
job.scale = 0.001
run = { repeats = 1, iterations = 1 }
"""
# Takes hours.
LONG = """
[[matrix.length]]
name = "long"
run = { repeats = 1000, iterations = 100000 }
"""


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([SCRIPT, *words], capture_output=True, text=True, timeout=600)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (
            [],
            "which experiment? There are demo models order ratio shared smoke startup window; see",
        ),
        (["nonsense"], "there is no experiment 'nonsense': there are demo models"),
        (["./no-such.toml"], "there is no file './no-such.toml'"),
        (["/tmp/.toml/"], "there is no file"),
        (["smoke", "--nonsense"], "unknown option '--nonsense'"),
        (["smoke", "--case"], "--case needs a value"),
        (["smoke", "--mem", "much"], "--mem 'much' is not a size"),
        (["smoke", "--profiles", "/no/such"], "there is no folder '/no/such'"),
    ],
)
def test_wrong_words_are_refused(words: list[str], complaint: str) -> None:
    done = run(*words)
    assert done.returncode == 2
    assert complaint in done.stderr
    assert done.stdout == ""


def test_help_names_the_experiments() -> None:
    done = run("--help")
    assert done.returncode == 0
    for file in (ROOT / "tests/bench/experiments").glob("*.toml"):
        assert f"  {file.stem} " in done.stdout


@pytest.fixture
def experiment(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """The file, with a short case and then a long one, and where its results go."""
    file = tmp_path / f"test-{os.getpid()}.toml"
    file.write_text(HEAD + SHORT + LONG)
    results = ROOT / "results" / f"{file.stem}.json"
    yield file, results
    for left in results.parent.glob(f"{file.stem}*"):
        left.unlink()


@pytest.mark.parametrize(
    ("right", "wrong", "words", "complaint"),
    [
        ('"fifo"', '"nonsense"', [], ":8: job.strategy: "),
        ("hosts = 2", "hosts = 2 3", [], ":4: "),
        ("hosts = 2", "hosts = 1", [], ":4: network.hosts: "),
        ("fifo", "fifo", ["--case", "nonsense"], ': no case has "nonsense" in its name'),
    ],
)
def test_wrong_experiment_is_told_before_anything_runs(
    experiment: tuple[Path, Path], right: str, wrong: str, words: list[str], complaint: str
) -> None:
    file, results = experiment
    file.write_text((HEAD + SHORT).replace(right, wrong))
    done = run(str(file), *words)
    assert done.returncode == 2
    assert f"{file}{complaint}" in done.stderr
    assert "tc plugin" not in done.stdout  # the next step
    assert not results.exists()


def test_qdisc_that_only_the_guest_can_refuse(experiment: tuple[Path, Path]) -> None:
    file, results = experiment
    file.write_text((HEAD + SHORT).replace("[job]", 'qdisc = "nosuchqdisc"\n[job]'))
    done = run(str(file))
    assert done.returncode == 2
    assert f'{file}: case "short": ' in done.stderr
    assert "nosuchqdisc" in done.stderr
    assert not results.exists()


def children() -> dict[int, list[int]]:
    """Of all processes, by parent."""
    found: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            # "PID (NAME) STATE PARENT ...", where NAME may have anything in it.
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # gone meanwhile
        found.setdefault(parent, []).append(int(stat.parent.name))
    return found


def descendants(pid: int) -> set[int]:
    known = children()
    found: set[int] = set()
    left = [pid]
    while left:
        for child in known.get(left.pop(), []):
            found.add(child)
            left.append(child)
    return found


def exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def is_guest(pid: int) -> bool:
    try:
        return b"root=/dev/root" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


class Running:
    """The script in a session of its own, as on a terminal of its own."""

    def __init__(self, scratch: Path, file: Path) -> None:
        self.scratch = scratch
        scratch.mkdir()
        self.script = subprocess.Popen(
            [SCRIPT, str(file)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True, env={**os.environ, "TMPDIR": str(scratch)},
        )

    def stop(self) -> None:
        if self.script.poll() is None:
            self.script.terminate()
            self.script.communicate()

    def wait_until(self, reached: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 1800  # builds may come first
        while not reached() and self.script.poll() is None and time.monotonic() < deadline:
            time.sleep(0.2)
        if self.script.poll() is not None:
            pytest.fail(f"it ended: {self.script.communicate()}")
        assert reached()

    def has_guest(self) -> bool:
        return any(map(is_guest, descendants(self.script.pid)))

    def interrupt(self, number: signal.Signals) -> str:
        """What it says then. Everything that it has started must be gone."""
        started = descendants(self.script.pid)
        assert any(map(is_guest, started))
        if number == signal.SIGINT:
            os.killpg(self.script.pid, number)  # as a terminal does
        else:
            self.script.send_signal(number)
        _, complaints = self.script.communicate(timeout=60)
        assert self.script.returncode == 128 + number
        # A process that is killed needs its time to go, and its new parent to take note of it.
        deadline = time.monotonic() + 30
        while any(map(exists, started)) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert list(filter(exists, started)) == []
        assert list(self.scratch.iterdir()) == []
        return complaints


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[Path], Running]]:
    started: list[Running] = []

    def start(file: Path) -> Running:
        started.append(Running(tmp_path / "scratch", file))
        return started[-1]

    yield start
    for running in started:
        running.stop()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_keeps_what_is_complete(
    experiment: tuple[Path, Path], start: Callable[[Path], Running], number: signal.Signals
) -> None:
    file, results = experiment
    running = start(file)
    running.wait_until(results.exists)
    assert "--resume goes on from there" in running.interrupt(number)
    found = json.loads(results.read_text())
    assert [case["name"] for case in found["cases"]] == ["short"]
    assert not found["complete"]
    assert {path.name for path in results.parent.glob(f"{results.stem}*")} <= {
        results.name, f"{results.stem}-kernel.log"
    }


def test_a_signal_before_anything_is_complete(
    experiment: tuple[Path, Path], start: Callable[[Path], Running]
) -> None:
    file, results = experiment
    file.write_text(HEAD + LONG)
    results.parent.mkdir(exist_ok=True)
    results.write_text("of an earlier day")
    running = start(file)
    running.wait_until(running.has_guest)
    assert "interrupted before a case was complete" in running.interrupt(signal.SIGINT)
    assert results.read_text() == "of an earlier day"
