# SPDX-License-Identifier: GPL-2.0
"""mercury-server as it is started by hand and by systemd: its words, signals and exit statuses."""

from __future__ import annotations

import os
import pathlib
import queue
import re
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator

import pytest

import peers
import wire
from conftest import Scene

# The driver is BUILD/tests/transport/push_pull_driver.
BUILD = pathlib.Path(peers.DRIVER).resolve().parents[2]
SERVER = BUILD / "transport/mercury-server"
MAN_PAGE = peers.TREE / "userspace/transport/mercury-server.8"
CORES = len(os.sched_getaffinity(0))


class Program:
    """Running, with its log line by line."""

    def __init__(self, *words: str, **environment: str) -> None:
        self._process = subprocess.Popen(
            [SERVER, *words], stderr=subprocess.PIPE, text=True, env=os.environ | environment
        )
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.log: list[str] = []

    def _read(self) -> None:
        for line in self._process.stderr:
            self._lines.put(line.rstrip("\n"))
        self._lines.put("")

    def logged(self, pattern: str) -> re.Match[str]:
        """The next line that PATTERN is found in."""
        while True:
            line = self._lines.get(timeout=wire.BOUND)
            assert line, (pattern, self.log)
            self.log.append(line)
            if found := re.search(pattern, line):
                return found

    def address(self) -> str:
        return self.logged(r"listening at (\S+)$")[1]

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def status(self) -> int:
        return self._process.wait(wire.BOUND)

    def clean_up(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        self._process.stderr.close()


Start = Callable[..., Program]


@pytest.fixture
def start() -> Iterator[Start]:
    programs: list[Program] = []

    def started(*words: str, **environment: str) -> Program:
        programs.append(Program(*words, **environment))
        return programs[-1]

    yield started
    for program in programs:
        program.clean_up()


@pytest.fixture
def token_file(tmp_path: pathlib.Path) -> pathlib.Path:
    file = tmp_path / "token"
    file.write_text("open sesame\n")
    file.chmod(0o600)
    return file


def run(*words: str) -> tuple[int, str]:
    """To its end: exit status, and what it says on both outputs."""
    done = subprocess.run(
        [SERVER, *words], capture_output=True, text=True, timeout=wire.BOUND, check=False
    )
    return done.returncode, done.stdout + done.stderr


def refused(*words: str) -> str:
    """Why these arguments are wrong."""
    status, said = run(*words)
    assert status == 2, said
    return said


def fate(worker: peers.Worker, value: int) -> str:
    """The error of a round that must fail, at its start or later."""
    worker.tell(f"push t {value}")
    answer = worker.line()
    return worker.error("wait t") if answer.startswith("ok") else answer.removeprefix("error ")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signal(scene: Scene, start: Start, number: int) -> None:
    """It serves until a signal, of which it tells the workers."""
    program = start("--listen", "127.0.0.1:0")
    worker = scene.worker(program.address()).joined()
    worker.round(2, 2)
    program.signal(number)
    assert program.status() == 0
    assert fate(worker, 3).endswith("the server was stopped")


@pytest.mark.skipif(CORES < 2, reason="needs two cores")
def test_threads_at_free_ports(scene: Scene, start: Start) -> None:
    """Several servers share the tensors."""
    program = start("--listen", "127.0.0.1:0", "--threads", "2")
    addresses = [program.address(), program.address()]
    assert addresses[0] != addresses[1]
    first, second = (
        scene.worker(*addresses, rank=rank, workers=2).joined() for rank in range(2)
    )
    first.do("push t 1")
    second.do("push t 2")
    for worker in (first, second):
        worker.do("wait t")
        worker.do("check t 3")
    # Each names itself in what it says.
    for address in sorted(addresses):
        pattern = f'{address}: worker [01] .* of job "j" has joined'
        assert any(re.search(pattern, line) for line in program.log) or program.logged(pattern)


def two_free_ports() -> int:
    """The first of two that follow each other, free just now."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as one:
            port = one.getsockname()[1]
            try:
                socket.create_server(("127.0.0.1", port + 1)).close()
            except OSError:
                continue
        return port


@pytest.mark.skipif(CORES < 2, reason="needs two cores")
@pytest.mark.parametrize("words", [["{0}", "--threads", "2"], ["{0}-{1}"]])
def test_successive_ports(start: Start, words: list[str]) -> None:
    """Ports are counted from the one that is named, or named."""
    port = two_free_ports()
    program = start("--listen", *("127.0.0.1:" * (i == 0) + word.format(port, port + 1)
                                  for i, word in enumerate(words)))
    assert program.address() == f"127.0.0.1:{port}"
    assert program.address() == f"127.0.0.1:{port + 1}"


def test_port_in_use() -> None:
    """It cannot listen: exit status 1."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        name = wire.name_of(taken)
        status, said = run("--listen", name)
    assert status == 1
    assert f"cannot listen at {name}: Address already in use" in said


def test_only_loopback_without_a_token(start: Start, token_file: pathlib.Path) -> None:
    """Everybody may join only where that was said in so many words."""
    assert "everybody could join at 0.0.0.0:0" in refused("--listen", "0.0.0.0:0")
    assert "excludes" in refused("--no-token", "--token-file", str(token_file))
    start("--listen", "0.0.0.0:0", "--no-token").address()
    start("--listen", "0.0.0.0:0", "--token-file", str(token_file)).address()
    start("--listen", "127.1.2.3:0").address()


def test_token(scene: Scene, start: Start, token_file: pathlib.Path) -> None:
    """The newline at the end of the file is not part of the token."""
    program = start("--listen", "127.0.0.1:0", "--token-file", str(token_file))
    address = program.address()
    for wrong in ("", "open sesam", "open sesame "):
        assert "the token is wrong" in scene.worker(address, token=wrong).refused()
    scene.worker(address, token="open sesame").joined().round(1, 1)


@pytest.mark.parametrize(
    ("content", "mode", "reason"),
    [
        (b"secret", 0o604, "everybody has access to it (mode 604); chmod o= {0}"),
        (b"secret", 0o602, "everybody has access to it (mode 602)"),
        (b"", 0o600, "a token has 1 to 1024 bytes"),
        (b"\n", 0o600, "a token has 1 to 1024 bytes"),
        (b"x" * 1025, 0o600, "a token has 1 to 1024 bytes"),
        (b"x" * 5000, 0o600, "a token has 1 to 1024 bytes"),
        (None, 0, "{0}: No such file or directory"),
    ],
)
def test_wrong_token_file(
    tmp_path: pathlib.Path, content: bytes | None, mode: int, reason: str
) -> None:
    """One that others can read, or that holds none."""
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
        file.chmod(mode)
    assert reason.format(file) in refused("--token-file", str(file))


def test_longest_token(scene: Scene, start: Start, tmp_path: pathlib.Path) -> None:
    """1024 bytes and a newline are read and taken."""
    file = tmp_path / "token"
    file.write_text("x" * 1024 + "\n")
    file.chmod(0o440)
    address = start("--listen", "127.0.0.1:0", "--token-file", str(file)).address()
    scene.worker(address, token="x" * 1024).joined()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--listen", "nowhere"], '--listen: "nowhere" is no address: HOST:PORT'),
        (["--listen", "127.0.0.1:65536"], "is no address"),
        (["--threads", "0"], "--threads must be at least 1"),
        (["--threads", "two"], "--threads"),
        (["--threads", str(CORES + 1)], f"{CORES + 1} servers were asked for"),
        (["--listen", "127.0.0.1:7700-7701", "--threads", "1"], "names 2 ports"),
        (["--max-jobs", "0"], "--max-jobs"),
        (["--max-workers", "4097"], "--max-workers"),
        (["--max-tensors", "-1"], "--max-tensors"),
        (["--max-connections", "0"], "--max-connections"),
        (["--max-memory", "0"], "--max-memory must be more than 0"),
        (["--max-memory", "lots"], '--max-memory: size "lots" is not a whole number'),
        (["--in-flight", "1.5mb"], '--in-flight: size "1.5mb" is not a whole number'),
        (["--switch-buffer", "2mb", "--rate", "10gbit"], "--rtt"),
        (["--switch-buffer", "2mb", "--rtt", "20us"], "--rate"),
        (["--rate", "10gbit"], "requires"),
        (["--in-flight", "1mb", "--switch-buffer", "2mb", "--rate", "1gbit", "--rtt", "20us"],
         "excludes"),
        (["--switch-buffer", "x", "--rate", "1gbit", "--rtt", "20us"], '--switch-buffer: size "x"'),
        (["--switch-buffer", "2mb", "--rate", "x", "--rtt", "20us"], '--rate: rate "x"'),
        (["--switch-buffer", "2mb", "--rate", "1gbit", "--rtt", "x"], '--rtt: time "x"'),
        (["--silence", "10"], "--silence must be 1ms to 3600s, with its unit, and is 10us"),
        (["--join-time", "0s"], "--join-time must be 1ms to 3600s"),
        (["--stall", "2h"], '--stall: time "2h" is not a number with a unit'),
        (["--stall", "3601s"], "out of range: 0 to 3600s"),
        (["--token", "secret"], "--token"),
        (["extra"], "extra"),
    ],
)
def test_wrong_words(words: list[str], reason: str) -> None:
    """Each is refused with its reason, and nothing is listened at."""
    said = refused(*words)
    assert reason in said
    assert "listening" not in said


@pytest.mark.parametrize(
    ("limit", "worker", "reason"),
    [
        (["--max-memory", "4000"], {}, "needs .* bytes of memory"),
        (["--max-workers", "2"], {"workers": 3}, "workers must be 1 to 2 at this server, not 3"),
        (
            ["--max-tensors", "1"],
            {"tensors": ["t:f32:1:0:sum", "u:f32:1:0:sum"]},
            "tensors must be 0 to 1 at this server, not 2",
        ),
    ],
)
def test_limits(
    scene: Scene, start: Start, limit: list[str], worker: dict[str, object], reason: str
) -> None:
    """What a job asks for beyond a limit is refused, and what is within is not."""
    address = start("--listen", "127.0.0.1:0", *limit).address()
    assert re.search(reason, scene.worker(address, **worker).refused())
    scene.worker(address, tensors=["t:f32:100:0:sum"]).joined().round(1, 1)


def test_most_jobs(scene: Scene, start: Start) -> None:
    """One more is refused as long as the others are there."""
    address = start("--listen", "127.0.0.1:0", "--max-jobs", "1").address()
    first = scene.worker(address).joined()
    assert "no more are allowed" in scene.worker(address, job="k").refused()
    first.leave()
    scene.worker(address, job="k").joined()


def test_times(scene: Scene, start: Start) -> None:
    """A job that does not come together, and one that stands still, end in the time that was set."""
    address = start(
        "--listen", "127.0.0.1:0", "--join-time", "1s", "--stall", "1500ms"
    ).address()
    alone = scene.worker(address, workers=2).joined()
    assert "has not joined within 1 s" in fate(alone, 1)
    both = [scene.worker(address, job="k", rank=rank, workers=2).joined() for rank in range(2)]
    assert "for 1.5 s" in fate(both[0], 1)


def test_names_of_strangers(start: Start) -> None:
    """Control characters of a peer's get to no terminal."""
    program = start("--listen", "127.0.0.1:0")
    raw = wire.RawWorker(
        program.address(), job="a\x1b[31m\nfake", tensors=[wire.tensor("t", 1)], attach=False
    )
    said = program.logged("has joined")
    assert 'of job "a\\x1b[31m\\x0afake" has joined' in said.string
    raw.close()


def test_service_manager(start: Start, tmp_path: pathlib.Path) -> None:
    """It is told when joins are possible, and of the end."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.settimeout(wire.BOUND)
        manager.bind(str(tmp_path / "notify"))
        program = start("--listen", "127.0.0.1:0", NOTIFY_SOCKET=str(tmp_path / "notify"))
        assert manager.recv(100) == b"READY=1"
        wire.connect(program.address()).close()
        program.signal(signal.SIGTERM)
        assert manager.recv(100) == b"STOPPING=1"
        assert program.status() == 0


def test_no_service_manager(start: Start) -> None:
    """Nobody needs to be there."""
    for nobody in ("", "/nowhere", "@nobody", "x" * 200):
        program = start("--listen", "127.0.0.1:0", NOTIFY_SOCKET=nobody)
        program.address()
        program.signal(signal.SIGTERM)
        assert program.status() == 0


def test_help_and_man_page() -> None:
    """They have the same options, and the help ends well."""
    status, said = run("--help")
    assert status == 0
    options = set(re.findall(r"--[a-z-]+", said))
    assert {"--listen", "--token-file", "--max-memory"} <= options
    page = MAN_PAGE.read_text().replace("\\-", "-")
    assert set(re.findall(r"--[a-z][a-z-]+", page)) == options
    for default in re.findall(r"--(silence|join-time|stall) TIME=(\S+)", said):
        assert f".BR {default[1]} ." in page


def test_version() -> None:
    """With the version of what it speaks."""
    assert re.fullmatch(r"mercury-server \d+\.\d+\.\d+ \(protocol \d+\)\n", run("--version")[1])
