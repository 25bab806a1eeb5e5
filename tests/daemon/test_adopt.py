# SPDX-License-Identifier: GPL-2.0
"""mercuryctl adopt: the connections of programs that run already."""

from __future__ import annotations

import json
import pathlib
import subprocess
from collections.abc import Callable, Iterator

import pytest

from lib import tc
from lib.netns import Pair

from daemon import BUILD, eventually
from plain import USER, Program
from trainer import PORT, Sink

DONE, USAGE, FAILED = 0, 2, 3
STRANGER = 64005


@pytest.fixture
def pair() -> Iterator[Pair]:
    pair = Pair(ipv6=True)
    pair.add("rate 100mbit")
    yield pair
    pair.delete()


@pytest.fixture
def start(tmp_path: pathlib.Path) -> Iterator[Callable[..., Program]]:
    programs: list[Program] = []

    def start(*words: object, **how: object) -> Program:
        programs.append(Program(*words, folder=tmp_path, **how))
        return programs[-1]

    yield start
    for program in programs:
        program.end()


@pytest.fixture
def sink(pair: Pair) -> Iterator[Sink]:
    sink = Sink(pair.b)
    yield sink
    sink.close()


def adopt(*words: object, user: int | None = None) -> subprocess.CompletedProcess[str]:
    """In the namespace of the machine: where the sockets are does not matter."""
    become = ["setpriv", "--reuid", str(user), "--regid", str(user), "--clear-groups"]
    command = [*(become if user else []), str(BUILD / "cli/mercuryctl"), "adopt", *(str(word) for word in words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def sockets(*words: object, status: int = DONE) -> list[dict]:
    done = adopt(*words, "--json")
    assert done.returncode == status, done.stderr
    return json.loads(done.stdout)["sockets"]


def look(program: Program) -> dict:
    program.tell()
    return program.says()


def test_a_program_of_somebody_else_is_adopted(
    pair: Pair, sink: Sink, start: Callable[..., Program]
) -> None:
    program = start(pair.a, "connect", pair.B4, PORT, 4000)
    assert program.says() == {"mark": 0, "priority": 0, "dscp": 0}
    (found,) = sockets(program.pid, "--band", 2, "--job", 3, "--dscp", "AF41")
    assert found == {
        "pid": program.pid,
        "fd": 3,
        "local": f"{pair.A4}:4000",
        "remote": f"{pair.B4}:{PORT}",
        "job": 3,
        "band": 2,
        "mark": 3 << 16 | 3,
        "marked": True,
        "error": None,
    }
    assert look(program) == {"mark": 3 << 16 | 3, "priority": 3, "dscp": 34}


def test_a_dry_run_marks_nothing(pair: Pair, sink: Sink, start: Callable[..., Program]) -> None:
    program = start(pair.a, "connect", pair.B4, PORT)
    program.says()
    done = adopt(program.pid, "--band", 2, "--dry-run")
    assert done.returncode == DONE and "would be marked" in done.stdout
    assert [one["marked"] for one in sockets(program.pid, "--band", 2, "--dry-run")] == [False]
    assert look(program)["mark"] == 0


def test_connections_are_spread_over_bands_by_age(
    pair: Pair, sink: Sink, start: Callable[..., Program]
) -> None:
    program = start(pair.a, "connect_many", pair.B4, PORT, 8)
    program.says()
    found = sockets(program.pid, "--band", "1-4", "--priority", 0)
    assert [one["band"] for one in found] == [1, 1, 2, 2, 3, 3, 4, 4]
    assert [one["mark"] for one in look(program)["all"]] == [2, 2, 3, 3, 4, 4, 5, 5]


@pytest.mark.parametrize(
    ("words", "fits"),
    [
        (["--remote-port", PORT], True),
        (["--remote-port", f"1-{PORT - 1}"], False),
        (["--local-port", "4000"], True),
        (["--local-port", "4001"], False),
        (["--remote", "10.0.0.0/24"], True),
        (["--remote", "fd00::/8"], False),
    ],
)
def test_only_what_fits_is_adopted(
    words: list[object], fits: bool, pair: Pair, sink: Sink, start: Callable[..., Program]
) -> None:
    program = start(pair.a, "connect", pair.B4, PORT, 4000)
    program.says()
    done = adopt(program.pid, "--band", 2, *words)
    assert done.returncode == (DONE if fits else FAILED)
    assert fits or "has no connection that fits" in done.stderr
    assert look(program)["mark"] == (3 if fits else 0)


def test_a_listening_socket_is_no_connection(pair: Pair, start: Callable[..., Program]) -> None:
    program = start(pair.a, "listen", pair.A4, 6000)
    program.says()
    done = adopt(program.pid, "--band", 2)
    assert done.returncode == FAILED and "has no connection that fits" in done.stderr
    start(pair.b, "connect", pair.A4, 6000).says()
    program.tell()
    program.says()


def test_without_the_privilege_nothing_is_taken(
    pair: Pair, sink: Sink, start: Callable[..., Program]
) -> None:
    program = start(pair.a, "connect", pair.B4, PORT)
    program.says()
    done = adopt(program.pid, "--band", 2, user=STRANGER)
    assert done.returncode == FAILED and "CAP_SYS_PTRACE is needed" in done.stderr
    assert look(program)["mark"] == 0


def test_ones_own_program_can_be_taken_but_not_marked(
    pair: Pair, sink: Sink, start: Callable[..., Program]
) -> None:
    program = start(pair.a, "connect", pair.B4, PORT)
    program.says()
    done = adopt(program.pid, "--band", 2, user=USER)
    assert done.returncode == FAILED
    assert "SO_MARK: Operation not permitted" in done.stdout
    assert "1 of 1 connections are not marked" in done.stderr
    assert look(program) == {"mark": 0, "priority": 0, "dscp": 0}


def test_a_busy_connection_is_left_unless_it_is_forced(pair: Pair, sink: Sink) -> None:
    client = ["ip", "netns", "exec", pair.a.name, "iperf3", "--client", pair.B4, "--time", "60"]
    server = ["ip", "netns", "exec", pair.b.name, "iperf3", "--server", "--one-off"]
    with subprocess.Popen(server, stdout=subprocess.DEVNULL) as serving:
        sending: list[subprocess.Popen] = []

        def is_busy() -> bool:
            if not sending or sending[-1].poll() is not None:
                sending.append(subprocess.Popen(client, stdout=subprocess.DEVNULL))
            return tc.qdisc(pair.a)["backlog"] > 50_000

        eventually(is_busy, "iperf3 sends")
        pid = sending[-1].pid
        words = ["--remote-port", 5201, "--band", 2, "--job", 1]
        found = sockets(pid, *words, "--wait", "10ms", status=FAILED)
        # One to say what is measured, which is idle, and one to measure.
        assert [one["error"] for one in found] == [None, "busy"]
        assert [one["marked"] for one in found] == [True, False]
        assert all(one["marked"] for one in sockets(pid, *words, "--wait", "10ms", "--force"))
        before = tc.classes(pair.a)[tc.band(1, 2)]["bytes"]
        eventually(
            lambda: tc.classes(pair.a)[tc.band(1, 2)]["bytes"] > before + 1_000_000,
            "it goes on in its band",
        )
        sending[-1].terminate()
        sending[-1].wait()
        serving.wait(30)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["1"], "--band is required"),
        (["--band", "1"], "PID is required"),
        (["1", "--band", "1024"], '"1024" is no BAND'),
        (["1", "--band", "3-2"], '"3-2" is no BAND'),
        (["1", "--band", "1", "--job", "62"], "--job"),
        (["1", "--band", "1", "--remote", "10.0.0.1/8"], "bits behind its length"),
        (["1", "--band", "1", "--remote-port", "0"], '"0" is no PORT'),
        (["1", "--band", "1", "--dscp", "AF99"], '"AF99" is no DSCP'),
        (["1", "--band", "1", "--wait", "soon"], "--wait"),
        (["0", "--band", "1"], "PID"),
    ],
)
def test_wrong_words(words: list[str], said: str) -> None:
    done = adopt(*words)
    assert done.returncode == USAGE and said in done.stderr


def test_no_such_process() -> None:
    done = adopt(4_000_000, "--band", 1)
    assert done.returncode == FAILED and "there is no process 4000000" in done.stderr
