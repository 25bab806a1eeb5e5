# SPDX-License-Identifier: GPL-2.0
"""Rules: the sockets of programs that cannot be changed, marked by a program in the kernel."""

from __future__ import annotations

import json
import pathlib
import socket
import subprocess
from collections.abc import Callable, Iterator

import pytest

from lib import tc
from lib.netns import Namespace, Pair

from daemon import BUILD, Daemon, eventually
from plain import OTHER, USER, Program
from trainer import PORT, Sink, Trainer

NO_MARK = 0
DEVICE = '[[device]]\nname = "eth0"\nrate = "100mbit"\n'
REST = "1:ffff"


def rule(conditions: str, name: str = "one", job: int = 3, band: int = 4, more: str = "") -> str:
    lines = f'[[rule]]\nname = "{name}"\njob = {job}\nband = {band}\n'
    return lines + "\n".join([*conditions.split("; "), more, ""])


def mark(job: int = 3, band: int = 4) -> int:
    return job << 16 | band + 1


@pytest.fixture
def pair() -> Iterator[Pair]:
    pair = Pair(ipv6=True)
    yield pair
    pair.delete()


@pytest.fixture
def cgroups(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Where "ip netns exec", which hides what is below /sys, has them in sight, too."""
    place = tmp_path / "cgroups"
    place.mkdir()
    subprocess.run(["mount", "-t", "cgroup2", "none", str(place)], check=True)
    yield place
    for folder in sorted(place.glob("mercury-*/**/"), reverse=True):
        folder.rmdir()
    subprocess.run(["umount", str(place)], check=True)


@pytest.fixture
def ruled(pair: Pair, tmp_path: pathlib.Path, cgroups: pathlib.Path) -> Iterator[Daemon]:
    """Can have rules."""
    daemon = Daemon(pair.a, tmp_path)
    daemon.capabilities += ["bpf", "perfmon"]
    yield daemon
    daemon.stop()


@pytest.fixture
def start(tmp_path: pathlib.Path) -> Iterator[Callable[..., Program]]:
    programs: list[Program] = []

    def start(ns: Namespace, *words: object, **how: object) -> Program:
        programs.append(Program(ns, *words, folder=tmp_path, **how))
        return programs[-1]

    yield start
    for program in programs:
        program.end()


@pytest.fixture
def sink(pair: Pair) -> Iterator[Sink]:
    sink = Sink(pair.b, family=socket.AF_INET6)  # and of IPv4
    yield sink
    sink.close()


def begin(daemon: Daemon, *rules: str) -> None:
    daemon.configure(DEVICE + "".join(rules))
    daemon.start()
    assert "not in the kernel" not in daemon.log()


def rules_of(daemon: Daemon) -> dict[str, dict]:
    return {one["name"]: one for one in daemon.status()["rules"]}


# The must -----------------------------------------------------------------------------------------


def iperf3(pair: Pair, port: int, user: int) -> int:
    """Bytes that have arrived."""
    server = ["iperf3", "--server", "--one-off", "--port", str(port)]
    with subprocess.Popen(
        ["ip", "netns", "exec", pair.b.name, *server], stdout=subprocess.DEVNULL
    ) as serving:
        client = f"setpriv --reuid {user} --clear-groups iperf3 --client {pair.B4} --port {port}"
        words = ["ip", "netns", "exec", pair.a.name, *client.split(), "--bytes", "3M", "--json"]
        reports: list[dict] = []

        def done() -> bool:
            ran = subprocess.run(words, capture_output=True, check=False)
            reports.append(json.loads(ran.stdout))
            return ran.returncode == 0

        eventually(done, "iperf3's server listens")
        serving.wait(30)
    eventually(lambda: tc.qdisc(pair.a)["qlen"] == 0, "nothing waits")
    return reports[-1]["end"]["sum_received"]["bytes"]


def test_an_unmodified_program_is_put_in_a_band_and_its_neighbour_is_not(
    pair: Pair, ruled: Daemon
) -> None:
    begin(ruled, rule(f"user = {USER}; command = \"iperf3\"", job=1, band=2))

    def sent() -> tuple[int, int]:
        """By the band, and by the class of what is not marked."""
        counted = tc.classes(pair.a)
        return tuple(counted.get(one, {"bytes": 0})["bytes"] for one in (tc.band(1, 2), REST))

    before = sent()
    arrived = iperf3(pair, 5201, USER)
    of_rule = sent()
    assert of_rule[0] > arrived > 2_000_000
    assert of_rule[1] - before[1] < arrived / 10
    arrived = iperf3(pair, 5202, OTHER)
    of_neighbour = sent()
    assert of_neighbour[0] == of_rule[0]
    assert of_neighbour[1] - of_rule[1] > arrived > 2_000_000
    # One connection to say what is measured, and one to measure.
    assert rules_of(ruled)["one"]["sockets"] >= 2


# Conditions ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("conditions", "fits"),
    [
        (f"user = {USER}", True),
        (f"user = {OTHER}", False),
        ('user = "root"', False),
        ('command = "plain"', True),
        ('command = "plai"', False),
        ('command = "plainer"', False),
        ('cgroup = "/mercury-jobs"', True),
        ('cgroup = "/mercury-jobs/inner"', True),
        ('cgroup = "/mercury-jobs/outer"', False),
        ('cgroup = "/mercury-nowhere"', False),
        (f"remote_port = {PORT}", True),
        (f'remote_port = "{PORT - 1}-{PORT}"', True),
        (f'remote_port = "{PORT + 1}-65535"', False),
        ("local_port = 4000", True),
        ("local_port = 4001", False),
        ('remote = "10.0.0.0/24"', True),
        ('remote = "10.0.0.2"', True),
        ('remote = "10.0.0.0/31"', False),
        ('remote = "fd00::/8"', False),
        ('remote = "::/0"', True),
        (f'user = {USER}; remote = "10.0.0.2"; remote_port = {PORT}; command = "plain"', True),
        (f'user = {USER}; remote = "10.0.0.3"; remote_port = {PORT}; command = "plain"', False),
    ],
)
def test_a_socket_is_marked_if_all_conditions_hold(
    conditions: str,
    fits: bool,
    pair: Pair,
    ruled: Daemon,
    sink: Sink,
    start: Callable[..., Program],
    cgroups: pathlib.Path,
) -> None:
    inner = cgroups / "mercury-jobs/inner"
    inner.mkdir(parents=True)
    (cgroups / "mercury-jobs/outer").mkdir()
    begin(ruled, rule(conditions))
    found = start(pair.a, "connect", pair.B4, PORT, 4000, cgroup=inner).says()
    assert found == {"mark": mark() if fits else 0, "priority": 5 if fits else 0, "dscp": 0}


def test_the_first_rule_that_fits_counts(
    pair: Pair, ruled: Daemon, sink: Sink, start: Callable[..., Program]
) -> None:
    begin(
        ruled,
        rule(f"user = {OTHER}", "other", 1, 1),
        rule(f"user = {USER}", "mine", 2, 2),
        rule(f"remote_port = {PORT}", "port", 3, 3),
    )
    assert start(pair.a, "connect", pair.B4, PORT).says()["mark"] == mark(2, 2)
    assert start(pair.a, "connect", pair.B4, PORT, user=OTHER).says()["mark"] == mark(1, 1)
    assert start(pair.a, "connect", pair.B4, PORT, user=64009).says()["mark"] == mark(3, 3)
    assert {n: r["sockets"] for n, r in rules_of(ruled).items()} == {"other": 1, "mine": 1, "port": 1}


@pytest.mark.parametrize("address", [Pair.B4, Pair.B6, f"::ffff:{Pair.B4}"])
def test_dscp_and_priority(
    address: str, pair: Pair, ruled: Daemon, sink: Sink, start: Callable[..., Program]
) -> None:
    begin(ruled, rule(f"remote_port = {PORT}", more='dscp = "AF41"\npriority = 2'))
    found = start(pair.a, "connect", address, PORT).says()
    assert found == {"mark": mark(), "priority": 2, "dscp": 34}
    assert rules_of(ruled)["one"]["failed"] == 0


def test_ipv6_has_prefixes_of_its_own(
    pair: Pair, ruled: Daemon, sink: Sink, start: Callable[..., Program]
) -> None:
    begin(ruled, rule('remote = "10.0.0.0/8"', "v4", 1, 1), rule('remote = "fd00::/64"', "v6", 2, 2))
    assert start(pair.a, "connect", pair.B6, PORT).says()["mark"] == mark(2, 2)
    # An address of IPv4 is one, whatever the socket.
    assert start(pair.a, "connect", f"::ffff:{pair.B4}", PORT).says()["mark"] == mark(1, 1)


# Accepted -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("address", [Pair.A4, Pair.A6, "::"])
@pytest.mark.parametrize(
    ("conditions", "fits"),
    [
        (f"user = {USER}", True),
        (f"user = {OTHER}", False),
        ('command = "plain"', True),
        ('cgroup = "/mercury-jobs"', True),
        ("local_port = 6000", True),
        ("local_port = 6001", False),
        ("remote_port = 4000", True),
        ('remote = "10.0.0.2"; user = ' + str(USER), True),
        ('remote = "10.0.0.3"', False),
    ],
)
def test_what_is_accepted_is_marked_too(
    conditions: str,
    fits: bool,
    address: str,
    pair: Pair,
    ruled: Daemon,
    start: Callable[..., Program],
    cgroups: pathlib.Path,
) -> None:
    (cgroups / "mercury-jobs").mkdir()
    begin(ruled, rule(conditions))
    server = start(pair.a, "listen", address, 6000, cgroup=cgroups / "mercury-jobs")
    assert server.says() == {}
    to = pair.A6 if address == pair.A6 else pair.A4
    fits = fits and (to == pair.A4 or "remote =" not in conditions)
    # Somebody else, in the other namespace, where no rule looks for programs of this one.
    client = start(pair.b, "connect", to, 6000, 4000, user=64009, name="client")
    client.says()
    server.tell()
    found = server.says()
    assert (found["mark"], found["priority"]) == ((mark(), 5) if fits else (0, 0))


def test_what_is_accepted_after_a_reload_still_belongs_to_who_listens(
    pair: Pair, ruled: Daemon, start: Callable[..., Program]
) -> None:
    begin(ruled, rule(f"user = {USER}", job=1))
    server = start(pair.a, "listen", pair.A4, 6000)
    assert server.says() == {}
    ruled.configure(DEVICE + rule(f"user = {USER}", job=2))
    ruled.reload()
    start(pair.b, "connect", pair.A4, 6000, user=64009).says()
    server.tell()
    assert server.says()["mark"] == mark(2)


# Life ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("address", [Pair.B4, Pair.B6])
def test_udp_is_marked_when_it_connects_and_not_before(
    address: str, pair: Pair, ruled: Daemon, start: Callable[..., Program]
) -> None:
    begin(ruled, rule(f"remote_port = {PORT}"))
    program = start(pair.a, "send_datagram", address, PORT)
    assert [program.says()["mark"], program.says()["mark"]] == [NO_MARK, mark()]


def test_who_has_a_mark_keeps_it(
    pair: Pair, ruled: Daemon, sink: Sink, make_trainer: Callable[..., Trainer]
) -> None:
    begin(ruled, rule(f"user = {USER}", job=1))
    trainer = make_trainer(ruled.socket, user=USER)
    trainer.job("vgg16", 4)
    # And the job of a rule is not given to anybody else.
    assert trainer.status()["job"] == 2
    assert trainer.open(0, PORT, pair.B4)["mark"] == mark(2, 0)
    assert rules_of(ruled)["one"]["sockets"] == 0


def test_rules_are_replaced_without_a_gap_and_counts_go_on(
    pair: Pair, ruled: Daemon, sink: Sink, start: Callable[..., Program]
) -> None:
    begin(ruled, rule(f"user = {USER}", job=1))
    client = start(pair.a, "connect_often", pair.B4, PORT)
    client.says()

    def marked() -> int:
        return rules_of(ruled)["one"]["sockets"]

    for turn in range(6):
        before = marked()
        eventually(lambda: marked() > before, "it goes on connecting")
        ruled.configure(DEVICE + rule(f"user = {USER}", job=2 + turn % 2))
        assert "has been read again" in ruled.reload()
    before = marked()
    eventually(lambda: marked() > before, "it goes on connecting")
    client.tell()
    marks = client.says()["marks"]
    assert set(marks) == {mark(1), mark(2), mark(3)}
    assert rules_of(ruled)["one"]["sockets"] == len(marks)


def test_a_broken_file_keeps_the_old_rules(
    pair: Pair, ruled: Daemon, sink: Sink, start: Callable[..., Program]
) -> None:
    begin(ruled, rule(f"user = {USER}"))
    ruled.configure(DEVICE + rule("remote_port = 70000"))
    said = ruled.reload()
    assert "the old configuration stays" in said and "rule.remote_port" in said
    assert start(pair.a, "connect", pair.B4, PORT).says()["mark"] == mark()


def test_a_cgroup_may_come_later_and_go(
    pair: Pair, ruled: Daemon, sink: Sink, start: Callable[..., Program], cgroups: pathlib.Path
) -> None:
    begin(ruled, rule('cgroup = "/mercury-late"'))
    assert rules_of(ruled)["one"]["problem"] == "there is no cgroup /mercury-late"
    for turn in range(2):
        (cgroups / "mercury-late").mkdir()
        eventually(lambda: not rules_of(ruled)["one"]["problem"], "the cgroup is seen")
        client = start(pair.a, "connect", pair.B4, PORT, cgroup=cgroups / "mercury-late")
        assert client.says()["mark"] == mark(), turn
        client.end()
        (cgroups / "mercury-late").rmdir()
        eventually(lambda: bool(rules_of(ruled)["one"]["problem"]), "it is gone")


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_rules_go_with_the_daemon_and_marks_stay(
    end: str, pair: Pair, ruled: Daemon, sink: Sink, start: Callable[..., Program]
) -> None:
    begin(ruled, rule(f"user = {USER}"))
    before = start(pair.a, "connect", pair.B4, PORT)
    assert before.says()["mark"] == mark()
    getattr(ruled, end)()
    assert start(pair.a, "connect", pair.B4, PORT).says()["mark"] == NO_MARK
    before.tell()
    assert before.says()["mark"] == mark()
    ruled.start()
    assert start(pair.a, "connect", pair.B4, PORT).says()["mark"] == mark()


# What is missing ----------------------------------------------------------------------------------


def test_without_cap_bpf_it_says_so_and_does_the_rest(
    pair: Pair, ruled: Daemon, sink: Sink, make_trainer: Callable[..., Trainer]
) -> None:
    ruled.capabilities.remove("bpf")
    ruled.configure(DEVICE + rule(f"user = {USER}"))
    ruled.start()
    assert "the rules are not in the kernel: CAP_BPF and CAP_NET_ADMIN are needed" in ruled.log()
    assert "CAP_BPF" in rules_of(ruled)["one"]["problem"]
    trainer = make_trainer(ruled.socket)
    trainer.job("vgg16", 4)
    assert trainer.open(0, PORT, pair.B4)["mark"] != NO_MARK


def test_only_a_command_needs_cap_perfmon(
    pair: Pair, ruled: Daemon, sink: Sink, start: Callable[..., Program]
) -> None:
    ruled.capabilities.remove("perfmon")
    begin(ruled, rule(f"user = {USER}"))
    assert start(pair.a, "connect", pair.B4, PORT).says()["mark"] == mark()
    ruled.configure(DEVICE + rule('command = "plain"', job=5))
    said = ruled.reload()
    assert "the new rules are not in the kernel, the old ones stay" in said
    assert "CAP_PERFMON" in said
    assert start(pair.a, "connect", pair.B4, PORT).says()["mark"] == mark()


def test_without_cgroups_it_says_so(pair: Pair, tmp_path: pathlib.Path) -> None:
    daemon = Daemon(pair.a, tmp_path)
    daemon.capabilities += ["bpf"]
    daemon.configure(DEVICE + rule(f"user = {USER}"))
    daemon.start()
    assert "no cgroup2 file system is mounted" in daemon.log()
    daemon.stop()


# Who sees what ------------------------------------------------------------------------------------


def test_mercuryctl_shows_rules_to_root_alone(pair: Pair, ruled: Daemon) -> None:
    begin(ruled, rule(f"user = {USER}", "backups"))

    def status(*words: str, user: int = 0) -> str:
        run = ["ip", "netns", "exec", pair.a.name, "setpriv", "--reuid", str(user)]
        run += ["--clear-groups", "env", f"MERCURY_SOCKET={ruled.socket}"]
        run += [str(BUILD / "cli/mercuryctl"), "status", *words]
        return subprocess.run(run, capture_output=True, text=True, check=True).stdout

    assert "  rule backups: 0 sockets marked\n" in status()
    assert json.loads(status("--json"))["daemon"]["rules"] == [
        {"name": "backups", "sockets": 0, "failed": 0, "problem": ""}
    ]
    assert "backups" not in status(user=USER)
