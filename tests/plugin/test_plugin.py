# SPDX-License-Identifier: GPL-2.0
"""The tc plugin, loaded by the real tc, against a kernel that is played by fake_kernel.c.

Needs gcc, make and iproute2; neither root nor the module. Tools that are not installed
(clang, mandoc, man, bash-completion) make their tests skip. MERCURY_TC names the tc binaries
to test with, separated by colons; by default the installed one, and the newer one that
tests/plugin/newer-tc finds, because iproute2 6.1 cannot print classes as JSON.
"""

from __future__ import annotations

import json
import os
import random
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

import wire
from abi import ABI, NLA_F_NESTED, ROOT, attr, attributes, u8, u32, u64
from wire import deadline, join, nest

HERE = Path(__file__).resolve().parent
PLUGIN = ROOT / "tc-plugin"
NONE = ABI["MERCURY_TIME_NONE"] if "MERCURY_TIME_NONE" in ABI else 2**64 - 1
MS = 1_000_000
PATH = os.environ["PATH"] + ":/usr/sbin:/sbin"


def q(name: str) -> int:
    return ABI[f"TCA_MERCURY_{name}"]


def c(name: str) -> int:
    return ABI[f"TCA_MERCURY_CLASS_{name}"]


def s(name: str) -> int:
    return ABI[f"TCA_MERCURY_STATS_{name}"]


def run(*command: object, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in command], text=True, capture_output=True, timeout=120, **options
    )


def build(folder: Path, **variables: str) -> Path:
    arguments = [f"{name}={value}" for name, value in variables.items()]
    made = run("make", "-C", PLUGIN, f"O={folder}", *arguments)
    assert made.returncode == 0, made.stderr
    return folder


@dataclass
class Answer:
    """How one tc command ended, and what it had sent."""

    status: int
    out: str
    err: str
    sent: list[wire.Request]

    def json(self) -> list[dict]:
        return json.loads(self.out, object_pairs_hook=without_duplicates)


def without_duplicates(pairs: list[tuple[str, object]]) -> dict:
    names = [name for name, _ in pairs]
    assert len(names) == len(set(names)), f"a name twice in {names}"
    return dict(pairs)


@dataclass
class Tc:
    """A tc binary with a plugin, in front of the fake kernel."""

    binary: str
    plugin: Path
    preload: list[str]
    work: Path

    def __call__(self, command: str, dump: bytes = b"") -> Answer:
        sent, answer = self.work / "sent", self.work / "dump"
        sent.unlink(missing_ok=True)
        answer.write_bytes(dump)
        environment = {
            "PATH": PATH,
            "TC_LIB_DIR": str(self.plugin),
            "LD_PRELOAD": " ".join(self.preload),
            "FAKE_SENT": str(sent),
            "FAKE_DUMP": str(answer),
            "ASAN_OPTIONS": "detect_leaks=0",
            "UBSAN_OPTIONS": "halt_on_error=1",
        }
        done = run(self.binary, *shlex.split(command), env=environment)
        data = sent.read_bytes() if sent.exists() else b""
        return Answer(done.returncode, done.stdout, done.stderr, wire.requests(data))

    def add(self, options: str) -> Answer:
        return self(f"qdisc add dev lo root handle 1: mercury {options}")

    def change_class(self, minor: str, options: str) -> Answer:
        return self(f"class change dev lo classid 1:{minor} mercury {options}")


def tc_binaries() -> list[str]:
    if "MERCURY_TC" in os.environ:
        return os.environ["MERCURY_TC"].split(":")
    installed = shutil.which("tc", path=PATH)
    newer = run(HERE / "newer-tc").stdout.strip()
    found = sorted({name for name in (installed, newer) if name})
    assert found, "there is no tc: install iproute2"
    return found


def version(binary: str) -> str:
    found = re.search(r"iproute2-(\S+?),", run(binary, "-V").stdout)
    return found.group(1) if found else "?"


BINARIES = tc_binaries()


@pytest.fixture(scope="session")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("plugin"))


@pytest.fixture(scope="session")
def fake_kernel(tmp_path_factory: pytest.TempPathFactory) -> str:
    library = tmp_path_factory.mktemp("fake") / "fake_kernel.so"
    source = HERE / "fake_kernel.c"
    made = run("gcc", "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC", "-o", library,
               source, "-ldl")
    assert made.returncode == 0, made.stderr
    return str(library)


@pytest.fixture(scope="session", params=BINARIES, ids=version)
def tc(request: pytest.FixtureRequest, plugin: Path, fake_kernel: str,
       tmp_path_factory: pytest.TempPathFactory) -> Tc:
    return Tc(request.param, plugin, [fake_kernel], tmp_path_factory.mktemp("tc"))


@pytest.fixture(scope="session")
def class_tc(tc: Tc) -> Tc:
    """A tc that prints classes as JSON."""
    if not tc("-j class show dev lo").out.startswith("["):
        pytest.skip("this tc prints classes as text even with -j")
    return tc


# ---- Loading ----------------------------------------------------------------------------------


@pytest.mark.parametrize("binary", BINARIES, ids=version)
def test_loads_with_every_symbol_resolved(binary: str, plugin: Path) -> None:
    # tc says nothing about a plugin that does not load: this is the only way to know.
    environment = {"TC_LIB_DIR": str(plugin), "LD_BIND_NOW": "1"}
    done = run(binary, *"qdisc add dev lo root mercury help".split(), env=environment)
    assert "Unknown qdisc" not in done.stderr
    assert done.stderr.startswith("Usage: tc qdisc")
    assert done.returncode == 1


def test_exports_only_its_entry_point(plugin: Path) -> None:
    names = run("nm", "-D", "--defined-only", plugin / "q_mercury.so").stdout.split()[2::3]
    assert names == ["mercury_qdisc_util"]


# ---- What is sent -----------------------------------------------------------------------------

SENT = [
    ("", []),
    ("jobs 1", [(q("JOBS"), u32(1))]),
    ("jobs 62", [(q("JOBS"), u32(62))]),
    ("bands 2", [(q("BANDS"), u32(2))]),
    ("bands 1024", [(q("BANDS"), u32(1024))]),
    ("bands 0041", [(q("BANDS"), u32(41))]),
    ("limit 1", [(q("LIMIT"), u32(1))]),
    ("limit 2147483647", [(q("LIMIT"), u32(0x7FFFFFFF))]),
    ("memory_limit 1mb", [(q("MEMORY_LIMIT"), u32(1 << 20))]),
    ("memory_limit 1.5mb", [(q("MEMORY_LIMIT"), u32(3 << 19))]),
    ("memory_limit 4294967295", [(q("MEMORY_LIMIT"), u32(0xFFFFFFFF))]),
    ("memory_limit 2g", [(q("MEMORY_LIMIT"), u32(2 << 30))]),
    ("key mark", [(q("KEY"), u8(0))]),
    ("key priority", [(q("KEY"), u8(1))]),
    ("key dscp", [(q("KEY"), u8(2))]),
    ("mask 0xff00", [(q("MASK"), u32(0xFF00))]),
    ("mask 7", [(q("MASK"), u32(7))]),
    ("mask 0xffff0000 job_mask 0xff", [(q("MASK"), u32(0xFFFF0000)), (q("JOB_MASK"), u32(0xFF))]),
    ("mask 0x80000000", [(q("MASK"), u32(0x80000000))]),
    ("job_mask 0", [(q("JOB_MASK"), u32(0))]),
    ("job_mask 0x38 mask 0x7", [(q("MASK"), u32(7)), (q("JOB_MASK"), u32(0x38))]),
    ("default_share 1", [(q("DEFAULT_SHARE"), u32(1))]),
    ("default_share 99%", [(q("DEFAULT_SHARE"), u32(99))]),
    ("rescue 0", [(q("RESCUE"), u32(0))]),
    ("rescue 100%", [(q("RESCUE"), u32(100))]),
    ("rate 1kbit", [(q("RATE"), u64(125))]),
    ("rate 10tbit", [(q("RATE"), u64(1_250_000_000_000))]),
    ("rate 9.7gbit", [(q("RATE"), u64(1_212_500_000))]),
    ("rate 2.01mbit", [(q("RATE"), u64(251_250))]),
    ("rate 100MBps", [(q("RATE"), u64(100_000_000))]),
    ("rate 100000000", [(q("RATE"), u64(12_500_000))]),
    ("rate none", [(q("RATE"), u64(0))]),
    ("no_split_gso", [(q("SPLIT_GSO"), u8(0))]),
    ("split_gso", [(q("SPLIT_GSO"), u8(1))]),
    ("auto_split_gso", [(q("SPLIT_GSO"), u8(2))]),
    ("no_ack_first", [(q("ACK_FIRST"), u8(0))]),
    ("ack_first", [(q("ACK_FIRST"), u8(1))]),
    ("ce_threshold 1us", [(q("CE_THRESHOLD"), u64(1000))]),
    ("ce_threshold 3600s", [(q("CE_THRESHOLD"), u64(3_600_000_000_000))]),
    ("ce_threshold 2.01ms", [(q("CE_THRESHOLD"), u64(2_010_000))]),
    ("ce_threshold 4.35msecs", [(q("CE_THRESHOLD"), u64(4_350_000))]),
    ("ce_threshold none", [(q("CE_THRESHOLD"), u64(NONE))]),
    # in the order of the table, whatever the order of the words
    ("ack_first bands 41 jobs 3",
     [(q("JOBS"), u32(3)), (q("BANDS"), u32(41)), (q("ACK_FIRST"), u8(1))]),
]


@pytest.mark.parametrize("options, expected", SENT, ids=[name or "nothing" for name, _ in SENT])
def test_sends_exactly_what_was_named(tc: Tc, options: str, expected: list) -> None:
    answer = tc.add(options)
    assert (answer.status, answer.err) == (0, "")
    (request,) = answer.sent
    assert (request.type, request.kind) == (wire.RTM_NEWQDISC, b"mercury\0")
    assert request.options == expected


@pytest.mark.parametrize("command", ["add", "replace", "change"])
def test_every_command_takes_options(tc: Tc, command: str) -> None:
    (request,) = tc(f"qdisc {command} dev lo root mercury limit 5").sent
    assert request.options == [(q("LIMIT"), u32(5))]


def test_deadlines_are_sent_in_order(tc: Tc) -> None:
    answer = tc.add("deadline 5 3ms limit 7 deadline 0:3-5 none deadline 61:1023 2us "
                    "deadline 0-1023 1s")
    (request,) = answer.sent
    assert request.options == [
        (q("LIMIT"), u32(7)),
        (q("DEADLINES"), join([
            deadline(ABI["MERCURY_EVERY_JOB"], 5, 5, 3 * MS),
            deadline(0, 3, 5, NONE),
            deadline(61, 1023, 1023, 2000),
            deadline(ABI["MERCURY_EVERY_JOB"], 0, 1023, 1000 * MS),
        ])),
    ]


def test_as_many_deadlines_as_fit(tc: Tc) -> None:
    most = ABI["MERCURY_DEADLINES_MAX"]
    words = [f"deadline {i % 62}:{i % 1024} {i + 1}us" for i in range(most + 1)]
    (request,) = tc.add(" ".join(words[:most])).sent
    ((kind, payload),) = request.options
    assert kind == q("DEADLINES")
    assert len(list(attributes(payload))) == most
    answer = tc.add(" ".join(words))
    assert (answer.status, answer.sent) == (1, [])
    assert f"only {most} fit one request" in answer.err


CLASS_SENT = [
    ("1", "deadline 3ms limit 100", [(c("DEADLINE"), u64(3 * MS)), (c("LIMIT"), u32(100))]),
    ("f800", "deadline none", [(c("DEADLINE"), u64(NONE))]),
    ("1", "limit none", [(c("LIMIT"), u32(0))]),
    ("fc01", "weight 2 limit 5000", [(c("WEIGHT"), u32(2)), (c("LIMIT"), u32(5000))]),
    ("fc3d", "limit 1 weight 1000", [(c("WEIGHT"), u32(1000)), (c("LIMIT"), u32(1))]),
]


@pytest.mark.parametrize("minor, options, expected", CLASS_SENT)
def test_class_sends_exactly_what_was_named(
    tc: Tc, minor: str, options: str, expected: list
) -> None:
    answer = tc.change_class(minor, options)
    assert (answer.status, answer.err) == (0, "")
    (request,) = answer.sent
    assert (request.type, request.handle) == (wire.RTM_NEWTCLASS, 0x10000 | int(minor, 16))
    assert request.options == expected


# ---- What is refused --------------------------------------------------------------------------

JOBS = "must be 1 to 62"
BANDS = "must be 2 to 1024"
LIMIT = "must be 1 to 2147483647"
MEMORY = "must be 1Mb to 4294967295b"
SHARE = "must be 1% to 99%"
RESCUE = "must be 0% to 100%"
RATE = "must be 1Kbit to 10Tbit, or none"
TIME = "must be 1us to 3600s with its unit (ns, us, ms or s), or none"
RUN = "must be one run of 1 to 16 bits, such as 0xff00"
JOB_RUN = "must be one run of 1 to 8 bits, such as 0xff00, or 0"
KEY = "must be mark, priority or dscp"
BAND = "must be [JOB:]BAND[-BAND] TIME, such as 0:3-5 2ms"

REFUSED = [
    ("jobs 0", "jobs 0", JOBS),
    ("jobs 63", "jobs 63", JOBS),
    ("jobs", "jobs: its value is missing", JOBS),
    ("bands 0", "bands 0", BANDS),
    ("bands 1", "bands 1", BANDS),
    ("bands 1025", "bands 1025", BANDS),
    ("bands -1", "bands -1", BANDS),
    ("bands +5", "bands +5", BANDS),
    ("bands 10x", "bands 10x", BANDS),
    ("bands 1e2", "bands 1e2", BANDS),
    ("bands 0x10", "bands 0x10", BANDS),
    ("bands 10.5", "bands 10.5", BANDS),
    ("bands ' 10'", "bands  10", BANDS),
    ("bands ''", "bands ", BANDS),
    ("bands many", "bands many", BANDS),
    ("bands 18446744073709551618", "bands 18446744073709551618", BANDS),
    ("bands -18446744073709551606", "bands -1", BANDS),
    ("limit 0", "limit 0", LIMIT),
    ("limit 2147483648", "limit 2147483648", LIMIT),
    ("limit 4294967297", "limit 4294967297", LIMIT),
    ("limit none", "limit none", LIMIT),
    ("limit", "limit: its value is missing", LIMIT),
    ("memory_limit 0", "memory_limit 0", MEMORY),
    ("memory_limit 1023kb", "memory_limit 1023kb", MEMORY),
    ("memory_limit 4294967296", "memory_limit 4294967296", MEMORY),
    ("memory_limit 4g", "memory_limit 4g", MEMORY),
    ("memory_limit -1mb", "memory_limit -1mb", MEMORY),
    ("memory_limit 5xb", "memory_limit 5xb", MEMORY),
    ("memory_limit inf", "memory_limit inf", MEMORY),
    ("memory_limit .5g", "memory_limit .5g", MEMORY),
    ("key", "key: its value is missing", KEY),
    ("key marks", "key marks", KEY),
    ("key 0", "key 0", KEY),
    ("mask 0", "mask 0", RUN),
    ("mask 0x0", "mask 0x0", RUN),
    ("mask 0x5", "mask 0x5", RUN),
    ("mask 0xff00ff", "mask 0xff00ff", RUN),
    ("mask 0x100000000", "mask 0x100000000", RUN),
    ("mask 0xffg", "mask 0xffg", RUN),
    ("mask ff", "mask ff", RUN),
    ("mask -1", "mask -1", RUN),
    ("mask 0x", "mask 0x", RUN),
    ("mask 0x-1", "mask 0x-1", RUN),
    ("mask 0x1ffff", "mask 0x1ffff", RUN),
    ("job_mask 0x1ff", "job_mask 0x1ff", JOB_RUN),
    ("job_mask 0x101", "job_mask 0x101", JOB_RUN),
    ("job_mask none", "job_mask none", JOB_RUN),
    ("mask 0xff job_mask 0x180", "job_mask 0x180", "must not overlap mask 0xff"),
    ("job_mask 0xff mask 0x3", "job_mask 0xff", "must not overlap mask 0x3"),
    ("default_share 0", "default_share 0", SHARE),
    ("default_share 100", "default_share 100", SHARE),
    ("default_share 10.5", "default_share 10.5", SHARE),
    ("default_share 10%%", "default_share 10%%", SHARE),
    ("default_share %", "default_share %", SHARE),
    ("rescue 101", "rescue 101", RESCUE),
    ("rescue -5%", "rescue -5%", RESCUE),
    ("rate 0", "rate 0", RATE),
    ("rate 990bit", "rate 990bit", RATE),
    ("rate 11tbit", "rate 11tbit", RATE),
    ("rate -1gbit", "rate -1gbit", RATE),
    ("rate 1gbits", "rate 1gbits", RATE),
    ("rate 1e3mbit", "rate 1e3mbit", RATE),
    ("rate 0x10mbit", "rate 0x10mbit", RATE),
    ("rate inf", "rate inf", RATE),
    ("rate nan", "rate nan", RATE),
    ("rate 50%", "rate 50%", RATE),
    ("rate 99999999999999999999999tbit", "rate 9999", RATE),
    ("rate", "rate: its value is missing", RATE),
    ("ce_threshold 0", "ce_threshold 0", TIME),
    ("ce_threshold 5", "ce_threshold 5", TIME),
    ("ce_threshold 5000", "ce_threshold 5000", TIME),
    ("ce_threshold 999ns", "ce_threshold 999ns", TIME),
    ("ce_threshold 3601s", "ce_threshold 3601s", TIME),
    ("ce_threshold 1h", "ce_threshold 1h", TIME),
    ("ce_threshold -1ms", "ce_threshold -1ms", TIME),
    ("ce_threshold 1..5ms", "ce_threshold 1..5ms", TIME),
    ("ce_threshold 9999999999999999999999s", "ce_threshold 9999", TIME),
    ("deadline", "deadline (nothing)", BAND),
    ("deadline 5", "deadline 5: its time is missing", TIME),
    ("deadline 5 0", "deadline 5 0", TIME),
    ("deadline 5 3", "deadline 5 3", TIME),
    ("deadline 5 3000000", "deadline 5 3000000", TIME),
    ("deadline 5 0ms", "deadline 5 0ms", TIME),
    ("deadline 5 -3ms", "deadline 5 -3ms", TIME),
    ("deadline 5 never", "deadline 5 never", TIME),
    ("deadline 9-5 1ms", "deadline 9-5: last band 5", "must be 9 to 1023"),
    ("deadline 1024 1ms", "deadline 1024: band 1024", "must be 0 to 1023"),
    ("deadline 0-1024 1ms", "deadline 0-1024: band 1024", "must be 0 to 1023"),
    ("deadline 65541 1ms", "deadline 65541: band", "must be 0 to 1023"),
    ("deadline 62:0 1ms", "deadline 62:0: job 62", "must be 0 to 61"),
    ("deadline 65535:0 1ms", "deadline 65535:0: job", "must be 0 to 61"),
    ("deadline 99999999999999999999:0 1ms", "deadline 9999", "must be 0 to 61"),
    ("deadline -5 1ms", "deadline -5", BAND),
    ("deadline 5- 1ms", "deadline 5-", BAND),
    ("deadline :5 1ms", "deadline :5", BAND),
    ("deadline 1: 1ms", "deadline 1:", BAND),
    ("deadline 1:2:3 1ms", "deadline 1:2:3", BAND),
    ("deadline 5x 1ms", "deadline 5x", BAND),
    ("deadline 3-4-5 1ms", "deadline 3-4-5", BAND),
    ("deadline all 1ms", "deadline all", BAND),
    ("bands 8 deadline 3-8 1ms", "deadline 3-8: band 8", "must be 0 to 7"),
    ("deadline 9 1ms bands 8", "deadline 9: band 9", "must be 0 to 7"),
    ("jobs 2 deadline 2:1-4 1ms", "deadline 2:1-4: job 2", "must be 0 to 1"),
    ("limit 5 limit 5", "limit: given twice", ""),
    ("key mark key dscp", "key: given twice", ""),
    ("split_gso no_split_gso", "no_split_gso", "no_split_gso, split_gso or auto_split_gso"),
    ("auto_split_gso auto_split_gso", "auto_split_gso: only one", "and once"),
    ("ack_first no_ack_first", "no_ack_first: only one", "no_ack_first or ack_first"),
    ("limits 5", 'What is "limits"?', "help"),
    ("lim 5", 'What is "lim"?', "help"),
    ("weight 5", 'What is "weight"?', "help"),
    ("limit 5 quantum 3", 'What is "quantum"?', 'Try "tc qdisc add dev DEV root mercury help"'),
]


def assert_refused(answer: Answer, what: str, allowed: str) -> None:
    assert answer.status == 1
    assert answer.sent == []
    assert answer.out == ""
    assert answer.err.count("\n") == 1, "one sentence"
    assert answer.err.startswith(f"mercury: {what}")
    assert allowed in answer.err


@pytest.mark.parametrize("options, what, allowed", REFUSED, ids=[row[0] for row in REFUSED])
def test_refuses(tc: Tc, options: str, what: str, allowed: str) -> None:
    assert_refused(tc.add(options), what, allowed)


CLASS_REFUSED = [
    ("fc01", "weight 0", "weight 0", "must be 1 to 1000"),
    ("fc01", "weight 1001", "weight 1001", "must be 1 to 1000"),
    ("fc01", "weight -1", "weight -1", "must be 1 to 1000"),
    ("fc01", "weight 2x", "weight 2x", "must be 1 to 1000"),
    ("fc01", "weight", "weight: its value is missing", "must be 1 to 1000"),
    ("fc01", "weight 1 weight 2", "weight: given twice", ""),
    ("fc01", "deadline 3ms", "deadline: class 1:fc01 is a job", "1:1 to 1:f800"),
    ("5", "weight 2", "weight: class 1:5 is a band", "1:fc00 to 1:fc3d"),
    ("5", "limit 0", "limit 0", LIMIT + ", or none"),
    ("5", "limit 2147483648", "limit 2147483648", LIMIT + ", or none"),
    ("5", "deadline 0", "deadline 0", TIME),
    ("5", "deadline 5 3ms", "deadline 5", TIME),
    ("5", "deadline 3601s", "deadline 3601s", TIME),
    ("5", "jobs 3", 'What is "jobs"?', 'Try "tc class change dev DEV classid 1:1 mercury help"'),
    ("ffff", "limit 5", "classid 1:ffff: the default class", "no options"),
    ("f801", "limit 5", "classid 1:f801", "1:1 to 1:f800 (bands) or 1:fc00 to 1:fc3d (jobs)"),
    ("fc3e", "limit 5", "classid 1:fc3e", "1:1 to 1:f800 (bands) or 1:fc00 to 1:fc3d (jobs)"),
    ("", "limit 5", "classid 1:0", "1:1 to 1:f800"),
]


@pytest.mark.parametrize("minor, options, what, allowed", CLASS_REFUSED)
def test_class_refuses(tc: Tc, minor: str, options: str, what: str, allowed: str) -> None:
    assert_refused(tc.change_class(minor, options), what, allowed)


def test_class_needs_a_classid(tc: Tc) -> None:
    answer = tc("class change dev lo mercury limit 5")
    assert_refused(answer, "classid 0:0", "must be")


# ---- What is shown ----------------------------------------------------------------------------

OPTIONS = [
    (q("JOBS"), u32(16)),
    (q("BANDS"), u32(64)),
    (q("LIMIT"), u32(100000)),
    (q("MEMORY_LIMIT"), u32(256 << 20)),
    (q("KEY"), u8(0)),
    (q("MASK"), u32(0xFFFF)),
    (q("JOB_MASK"), u32(0xFF0000)),
    (q("DEFAULT_SHARE"), u32(10)),
    (q("RESCUE"), u32(10)),
    (q("RATE"), u64(1_212_500_000)),
    (q("SPLIT_GSO"), u8(2)),
    (q("ACK_FIRST"), u8(1)),
    (q("CE_THRESHOLD"), u64(5 * MS)),
]
DEADLINES = nest(
    q("DEADLINES") | NLA_F_NESTED,
    [deadline(0, 3, 5, 3 * MS), deadline(ABI["MERCURY_EVERY_JOB"], 7, 7, NONE)],
)
QDISC_STATS = [
    (s("MEMORY"), u64(123456)),
    (s("MEMORY_PEAK"), u64(5 << 32)),
    (s("ACTIVE_JOBS"), u32(2)),
    (s("DROP_LIMIT"), u64(3)),
    (s("DROP_MEMORY"), u64(4)),
    (s("DROP_FILTER"), u64(5)),
    (s("DROP_GSO"), u64(0)),
    (s("SPLIT"), u64(9)),
    (s("ACKS"), u64(1000)),
    (s("CE_MARKS"), u64(11)),
    (s("MET"), u64(100000)),
    (s("MISSED"), u64(12)),
    (s("LATENESS"), u64(12 * 1234567)),
    (s("LATENESS_MAX"), u64(33333333)),
    (s("RESCUED"), u64(6)),
    (s("RESCUED_BYTES"), u64(2**40)),
]
SOJOURN = [5, 10, 0, 0, 44, 3] + [0] * 17 + [1]


def lines(answer: Answer) -> list[str]:
    assert (answer.status, answer.err) == (0, "")
    return [line.rstrip() for line in answer.out.splitlines()]


def test_shows_a_qdisc(tc: Tc) -> None:
    dump = wire.qdisc(join(OPTIONS) + DEADLINES, join(QDISC_STATS))
    assert lines(tc("-s qdisc show dev lo", dump)) == [
        "qdisc mercury 1: root refcnt 2 jobs 16 bands 64 limit 100000 memory_limit 256Mb key mark"
        " mask 0xffff job_mask 0xff0000 default_share 10% rescue 10% rate 9700Mbit auto_split_gso"
        " ack_first ce_threshold 5ms deadline 0:3-5 3ms deadline 7 none",
        " Sent 123456 bytes 789 pkt (dropped 7, overlimits 2 requeues 1)",
        " backlog 4500b 3p requeues 1",
        "  active_jobs 2 memory 123456b peak 20Gb split 9 acks_first 1000 ce_marks 11",
        "  dropped limit 3 memory 4 filter 5 gso 0",
        "  deadlines met 100000 missed 12 late_mean 1.23ms late_max 33.3ms rescued 6"
        " rescued_bytes 1024Gb",
    ]


def test_shows_a_qdisc_as_json(tc: Tc) -> None:
    dump = wire.qdisc(join(OPTIONS) + DEADLINES, join(QDISC_STATS))
    (shown,) = tc("-j -s -d qdisc show dev lo", dump).json()
    assert shown["options"] == {
        "jobs": 16,
        "bands": 64,
        "limit": 100000,
        "memory_limit": 268435456,
        "key": "mark",
        "mask": "0xffff",
        "job_mask": "0xff0000",
        "default_share": 10,
        "rescue": 10,
        "rate": 1212500000,
        "split_gso": "auto",
        "ack_first": True,
        "ce_threshold_ns": 5000000,
        "deadlines": [
            {"job": 0, "first": 3, "last": 5, "deadline_ns": 3000000},
            {"job": None, "first": 7, "last": 7, "deadline_ns": None},
        ],
        "split_gso_active": False,
        "default_deadline_ns": 100000000,
        "classes": {
            "first_band": ":1",
            "last_band": ":40",
            "job_step": "400",
            "first_job": ":fc00",
            "last_job": ":fc0f",
            "default": ":ffff",
        },
    }
    expected = {
        "active_jobs": 2,
        "memory_used": 123456,
        "memory_peak": 5 << 32,
        "gso_split": 9,
        "acks_first": 1000,
        "ce_marks": 11,
        "drop_limit": 3,
        "drop_memory": 4,
        "drop_filter": 5,
        "drop_gso": 0,
        "deadline_met": 100000,
        "deadline_missed": 12,
        "lateness_mean_ns": 1234567,
        "lateness_total_ns": 12 * 1234567,
        "lateness_max_ns": 33333333,
        "rescued_packets": 6,
        "rescued_bytes": 2**40,
    }
    assert {name: shown[name] for name in expected} == expected


def test_none_is_null(tc: Tc) -> None:
    values = [(q("RATE"), u64(0)), (q("CE_THRESHOLD"), u64(NONE)), (q("ACK_FIRST"), u8(0))]
    (shown,) = tc("-j qdisc show dev lo", wire.qdisc(join(values))).json()
    assert shown["options"] == {
        "rate": None, "ack_first": False, "ce_threshold_ns": None, "deadlines": [],
    }
    (line,) = lines(tc("qdisc show dev lo", wire.qdisc(join(values))))
    assert line.endswith("refcnt 2 rate none no_ack_first ce_threshold none")


@pytest.mark.parametrize("split, rate, active", [
    (0, 1, False), (1, 0, True), (2, 0, False), (2, 124_999_999, True), (2, 125_000_000, False),
])
def test_details_say_whether_gso_is_split(tc: Tc, split: int, rate: int, active: bool) -> None:
    dump = wire.qdisc(join([(q("SPLIT_GSO"), u8(split)), (q("RATE"), u64(rate))]))
    (shown,) = tc("-j -d qdisc show dev lo", dump).json()
    assert shown["options"]["split_gso_active"] is active
    text = tc("-d qdisc show dev lo", dump).out
    assert ("GSO packets are split;" if active else "GSO packets are sent whole;") in text


def test_details_say_which_classes_there_are(tc: Tc) -> None:
    dump = wire.qdisc(join([(q("JOBS"), u32(62)), (q("BANDS"), u32(1024))]))
    assert lines(tc("-d qdisc show dev lo", dump))[1:] == [
        "  GSO packets are sent whole; bands not named above have deadline 100ms",
        "  classes: bands of job J :1 to :400 plus J * 400, jobs :fc00 to :fc3d, unmarked :ffff",
    ]


def test_details_say_when_deadlines_may_be_missing(tc: Tc) -> None:
    full = nest(q("DEADLINES"), [deadline(0, i, i, MS) for i in range(64)])
    assert "there may be more deadlines" in tc("-d qdisc show dev lo", wire.qdisc(full)).out
    fewer = nest(q("DEADLINES"), [deadline(0, i, i, MS) for i in range(63)])
    assert "there may be more deadlines" not in tc("-d qdisc show dev lo", wire.qdisc(fewer)).out


BAND_STATS = [(kind, value) for kind, value in QDISC_STATS if kind in
              (s("DROP_LIMIT"), s("DROP_MEMORY"), s("CE_MARKS"), s("MET"), s("MISSED"),
               s("LATENESS"), s("LATENESS_MAX"), s("RESCUED"), s("RESCUED_BYTES"))]
CLASSES = (
    wire.tclass(0xFC01, join([(c("JOB"), u32(1)), (c("WEIGHT"), u32(2)), (c("LIMIT"), u32(5))]),
                join([(s("MEMORY"), u64(0)), (s("MET"), u64(0)), (s("MISSED"), u64(0))]))
    + wire.tclass(0x405, join([(c("JOB"), u32(1)), (c("BAND"), u32(4)), (c("LIMIT"), u32(0)),
                               (c("DEADLINE"), u64(3 * MS))]),
                  join(BAND_STATS + [(s("SOJOURN"), u64(*SOJOURN))]))
    + wire.tclass(0xFFFF, b"", leaf=0x80010000)
)


def test_shows_classes(tc: Tc) -> None:
    counts = [
        " Sent 123456 bytes 789 pkt (dropped 7, overlimits 2 requeues 1)",
        " backlog 4500b 3p requeues 1",
    ]
    assert lines(tc("-s class show dev lo", CLASSES)) == [
        "class mercury 1:fc01 parent 1: job 1 weight 2 limit 5",
        *counts,
        "  memory 0b",
        "class mercury 1:405 parent 1: job 1 band 4 deadline 3ms limit none",
        *counts,
        "  ce_marks 11",
        "  dropped limit 3 memory 4",
        "  deadlines met 100000 missed 12 late_mean 1.23ms late_max 33.3ms rescued 6"
        " rescued_bytes 1024Gb",
        "  sojourn p50 <16.4us p99 >=4.29s  <1.02us 5 <2.05us 10 <16.4us 44 <32.8us 3 >=4.29s 1",
        "class mercury 1:ffff parent 1: leaf 8001: default",
        *counts,
    ]


def test_shows_classes_as_json(class_tc: Tc) -> None:
    job, band, default = class_tc("-j -s class show dev lo", CLASSES).json()
    assert (job["job"], job["weight"], job["limit"]) == (1, 2, 5)
    assert (job["stats"]["deadline_met"], job["stats"]["lateness_mean_ns"] if
            "lateness_mean_ns" in job["stats"] else None) == (0, None)
    assert (band["job"], band["band"], band["deadline_ns"], band["limit"]) == (1, 4, 3 * MS, None)
    assert band["stats"]["sojourn"] == [
        {"below_ns": 1024, "packets": 5},
        {"below_ns": 2048, "packets": 10},
        {"below_ns": 16384, "packets": 44},
        {"below_ns": 32768, "packets": 3},
        {"below_ns": None, "packets": 1},
    ]
    assert band["stats"]["sojourn_p50_below_ns"] == 16384
    assert band["stats"]["sojourn_p99_below_ns"] is None
    assert default["default"] is True
    assert not {"job", "band", "limit"} & default.keys()


@pytest.mark.parametrize("histogram, p50, p99", [
    ([100], ">=0ns", ">=0ns"),
    ([100, 0], "<1.02us", "<1.02us"),
    ([99, 1, 0], "<1.02us", "<1.02us"),
    ([98, 2, 0], "<1.02us", "<2.05us"),
    ([1, 1], "<1.02us", ">=1.02us"),
    ([0] * 23 + [7], ">=4.29s", ">=4.29s"),
    ([0] * 60 + [7], None, None),  # beyond 63 bits of ns
    ([2**64 - 1, 2**64 - 1, 5, 0], "<1.02us", "<2.05us"),
])
def test_quantiles(tc: Tc, histogram: list[int], p50: str | None, p99: str | None) -> None:
    dump = wire.tclass(5, b"", join([(s("SOJOURN"), u64(*histogram))]))
    text = tc("-s class show dev lo", dump).out
    found = re.search(r"sojourn p50 (\S+) p99 (\S+) ", text)
    assert (found.groups() if found else (None, None)) == (p50, p99)


def test_an_empty_histogram_has_no_line(tc: Tc) -> None:
    dump = wire.tclass(5, b"", join([(s("CE_MARKS"), u64(0)), (s("SOJOURN"), u64(*[0] * 24))]))
    assert "sojourn" not in tc("-s class show dev lo", dump).out


def test_uses_no_colours(tc: Tc) -> None:
    dump = wire.qdisc(join(OPTIONS) + DEADLINES, join(QDISC_STATS))
    plain, coloured = tc("-s qdisc show dev lo", dump), tc("-c=always -s qdisc show dev lo", dump)
    assert plain.out == coloured.out


def test_one_line(tc: Tc) -> None:
    dump = wire.qdisc(join(OPTIONS), join(QDISC_STATS))
    assert tc("-o -s -d qdisc show dev lo", dump).out.count("\n") <= 1


# ---- Other versions of the module -------------------------------------------------------------


def test_missing_attributes_are_passed_over(tc: Tc) -> None:
    assert lines(tc("-s qdisc show dev lo", wire.qdisc(b"", b"")))[0].endswith("refcnt 2")
    (shown,) = tc("-j -s -d qdisc show dev lo", wire.qdisc(b"")).json()
    assert shown["options"]["classes"]["last_job"] == ":fc0f"


def test_unknown_attributes_are_passed_over(tc: Tc) -> None:
    extra = [(200, u32(7)), (q("PAD"), b""), (100, b"\0" * 999)]
    (shown,) = tc("-j qdisc show dev lo", wire.qdisc(join(extra + OPTIONS[:1]))).json()
    assert shown["options"] == {"jobs": 16, "deadlines": []}


def test_widened_attributes_are_read(tc: Tc) -> None:
    wide = [(q("LIMIT"), u64(2**40)), (q("KEY"), u32(2)), (q("RATE"), u32(125))]
    (line,) = lines(tc("qdisc show dev lo", wire.qdisc(join(wide))))
    assert line.endswith("limit 1099511627776 key dscp rate 1Kbit")


def test_attributes_of_no_sensible_length_are_passed_over(tc: Tc) -> None:
    odd = [(q("LIMIT"), b"\1\2\3"), (q("BANDS"), b""), (q("JOBS"), b"\0" * 12), (q("KEY"), u8(1))]
    (line,) = lines(tc("qdisc show dev lo", wire.qdisc(join(odd))))
    assert line.endswith("refcnt 2 key priority")


def test_deadlines_are_read_up_to_their_end(tc: Tc) -> None:
    (kind, whole), dump = deadline(0, 1, 1, MS), b""
    for _ in range(8):
        dump += attr(kind, whole)
    dump += attr(kind, whole[:12]) + attr(kind + 1, whole)  # too short, and something else
    dump = attr(q("DEADLINES"), dump) + attr(kind, whole)  # and one that is not in the nest
    (shown,) = tc("-j qdisc show dev lo", wire.qdisc(dump)).json()
    assert shown["options"]["deadlines"] == [
        {"job": 0, "first": 1, "last": 1, "deadline_ns": MS}
    ] * 8


def test_nothing_missed_is_no_mean(tc: Tc) -> None:
    values = join([(s("MISSED"), u64(0)), (s("LATENESS"), u64(0)), (s("MET"), u64(1))])
    (shown,) = tc("-j -s qdisc show dev lo", wire.qdisc(b"", values)).json()
    assert (shown["lateness_mean_ns"], shown["lateness_total_ns"]) == (0, 0)


def test_unknown_words_are_named_so(tc: Tc) -> None:
    values = join([(q("KEY"), u8(9)), (q("SPLIT_GSO"), u8(9))])
    (shown,) = tc("-j qdisc show dev lo", wire.qdisc(values)).json()
    assert (shown["options"]["key"], shown["options"]["split_gso"]) == ("unknown", "unknown")


def test_classes_without_numbers_are_told_by_what_they_have(tc: Tc) -> None:
    dump = (wire.tclass(0xFC01, join([(c("WEIGHT"), u32(2))]))
            + wire.tclass(5, join([(c("DEADLINE"), u64(MS))])) + wire.tclass(0xFFFF, b""))
    assert [line.split("1: ")[1] for line in lines(tc("class show dev lo", dump))] == [
        "weight 2", "deadline 1ms", "default",
    ]


def random_attributes(rng: random.Random, kinds: int, depth: int = 0) -> bytes:
    """Mostly well-formed nonsense: any length, nested or not, cut short now and then."""
    data = b""
    for _ in range(rng.randrange(8)):
        kind = rng.randrange(kinds + 2) | rng.choice([0, 0, NLA_F_NESTED])
        if depth < 2 and rng.random() < 0.2:
            payload = random_attributes(rng, 3, depth + 1)
        else:
            payload = rng.randbytes(rng.choice([0, 1, 2, 3, 4, 8, 8, 15, 16, 17, 192, 1000]))
        data += attr(kind, payload)
    if rng.random() < 0.2:
        data = data[: rng.randrange(len(data) + 1)]
    if data and rng.random() < 0.2:
        at = rng.randrange(len(data))
        data = data[:at] + rng.randbytes(2) + data[at + 2 :]
    return data


@pytest.fixture(scope="session", params=BINARIES, ids=version)
def sanitized(request: pytest.FixtureRequest, fake_kernel: str,
              tmp_path_factory: pytest.TempPathFactory) -> Tc:
    library = run("gcc", "-print-file-name=libasan.so").stdout.strip()
    if not Path(library).is_absolute():
        pytest.skip("gcc has no address sanitizer")
    flags = "-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all"
    folder = build(tmp_path_factory.mktemp("sanitized"), CFLAGS=flags)
    preload = [str(Path(library).resolve()), fake_kernel]
    return Tc(request.param, folder, preload, tmp_path_factory.mktemp("sanitized-tc"))


@pytest.mark.parametrize("seed", range(6))
def test_no_dump_breaks_the_output(sanitized: Tc, seed: int) -> None:
    rng = random.Random(seed)
    dump = b""
    for _ in range(250):
        app = random_attributes(rng, s("SOJOURN"))
        dump += wire.qdisc(random_attributes(rng, q("DEADLINES")), app)
        dump += wire.tclass(rng.randrange(1, 0x10000), random_attributes(rng, c("BAND")), app)
    for command in ("-j -s -d qdisc show dev lo", "-s -d qdisc show dev lo",
                    "-j -s class show dev lo", "-s class show dev lo"):
        kind = wire.RTM_NEWQDISC if "qdisc" in command else wire.RTM_NEWTCLASS
        answer = sanitized(command, of_kind(dump, kind))
        assert answer.status == 0, answer.err[:2000]
        if answer.out.startswith("["):
            assert len(answer.json()) == 250


def of_kind(dump: bytes, kind: int) -> bytes:
    found, at = b"", 0
    while at < len(dump):
        size = int.from_bytes(dump[at : at + 4], "little")
        padded = (size + 3) & ~3
        if int.from_bytes(dump[at + 4 : at + 6], "little") == kind:
            found += dump[at : at + padded]
        at += padded
    return found


def test_sanitizers_find_nothing_in_parsing(sanitized: Tc) -> None:
    # in one process, which also shows that nothing ends a batch or is left over in it
    words = [row[0] for row in SENT + REFUSED]
    batch = sanitized.work / "batch"
    batch.write_text("".join(f"qdisc add dev lo root mercury {options}\n" for options in words))
    answer = sanitized(f"-force -batch {batch}")
    assert "runtime error" not in answer.err and "AddressSanitizer" not in answer.err
    assert answer.err.count("Command failed") == len(REFUSED)
    assert [request.options for request in answer.sent] == [row[1] for row in SENT]


# ---- What is shown can be typed ---------------------------------------------------------------


def random_settings(rng: random.Random) -> list[wire.Attribute]:
    low = rng.randrange(1, 16)
    mask = ((1 << low) - 1) << rng.randrange(8)
    return [
        (q("JOBS"), u32(rng.randrange(4, 63))),
        (q("BANDS"), u32(rng.randrange(8, 1025))),
        (q("LIMIT"), u32(rng.randrange(1, 2**31))),
        (q("MEMORY_LIMIT"), u32(rng.randrange(1 << 20, 2**32) & rng.choice([-1, -1024, -(1 << 20)]))),
        (q("KEY"), u8(rng.randrange(3))),
        (q("MASK"), u32(mask)),
        (q("JOB_MASK"), u32(rng.choice([0, 0xFF000000]))),
        (q("DEFAULT_SHARE"), u32(rng.randrange(1, 100))),
        (q("RESCUE"), u32(rng.randrange(101))),
        (q("RATE"), u64(rng.choice([0, 125, 1_250_000_000_000, rng.randrange(125, 1 << 40)]))),
        (q("SPLIT_GSO"), u8(rng.randrange(3))),
        (q("ACK_FIRST"), u8(rng.randrange(2))),
        (q("CE_THRESHOLD"), u64(rng.choice([NONE, 1000, rng.randrange(1000, 3600 * 10**9)]))),
        (q("DEADLINES"), join([
            deadline(rng.choice([0, 3, 0xFFFF]), 1, rng.randrange(1, 8),
                     rng.choice([NONE, rng.randrange(1000, 10**12), 3 * MS]))
            for _ in range(rng.randrange(1, 6))
        ])),
    ]


@pytest.mark.parametrize("seed", range(25))
def test_what_is_shown_can_be_typed(tc: Tc, seed: int) -> None:
    settings = random_settings(random.Random(seed))
    (line,) = lines(tc("qdisc show dev lo", wire.qdisc(join(settings))))
    (request,) = tc.add(line.split("refcnt 2 ")[1]).sent
    assert request.options == settings


# ---- Documentation ----------------------------------------------------------------------------


def option_names() -> list[str]:
    """Every word of the tables in options.c."""
    source = (PLUGIN / "options.c").read_text()
    names = re.findall(r'\.name = "(\w+)"', source)
    flags = re.findall(r'\{ "(\w*(?:split_gso|ack_first))",', source)
    assert len(names) >= 16 and len(flags) == 5
    return sorted({*names, *flags})


def page_text() -> str:
    return (PLUGIN / "tc-mercury.8").read_text().replace("\\-", "-")


def help_of(tc: Tc, command: str) -> str:
    answer = tc(command)
    assert (answer.status, answer.out, answer.sent) == (1, "", [])
    return answer.err


def test_help_and_man_page_name_every_option(tc: Tc) -> None:
    text = help_of(tc, "qdisc add dev lo root mercury help")
    text += help_of(tc, "class change dev lo classid 1:1 mercury help")
    for name in option_names():
        assert re.search(rf"\b{name}\b", text), f"help: {name}"
        assert re.search(rf"\b{name}\b", page_text()), f"man page: {name}"


def test_help_comes_at_any_place(tc: Tc) -> None:
    assert "Usage:" in help_of(tc, "qdisc add dev lo root mercury limit 5 help")
    assert "Usage:" in help_of(tc, "class add dev lo classid 1:5 mercury limit 5 help")
    assert "Usage:" in help_of(tc, "class add mercury help")


def test_man_page_gives_the_ranges_and_defaults_of_the_help(tc: Tc) -> None:
    text = help_of(tc, "qdisc add dev lo root mercury help")
    page = re.sub(r"\s+", " ", re.sub(r"^\.BR? ?", "", page_text(), flags=re.M))
    for low, high in re.findall(r"^ +(\S+) to (\S+?)%? ?(?:\(|,|with)", text, re.M):
        low, high = low.rstrip("%"), high.rstrip("%")
        assert f"{low} to {high}" in page, f"{low} to {high}"


def test_man_page_names_every_json_name() -> None:
    source = (PLUGIN / "show.c").read_text()
    table = source[source.index("counters[] = {") : source.index("};", source.index("counters[] ="))]
    names = re.findall(r'"(\w+)" \},', table)
    names += re.findall(r'"(\w+_ns|sojourn|deadlines|classes|split_gso_active)"', source)
    assert len(set(names)) >= 22
    for name in names:
        assert re.search(rf"\b{name}\b", page_text()), name


def test_man_page_is_well_formed() -> None:
    page = PLUGIN / "tc-mercury.8"
    if shutil.which("mandoc"):
        assert run("mandoc", "-Tlint", page).stdout == ""
    elif not shutil.which("man"):
        pytest.skip("neither mandoc nor man is installed")
    if shutil.which("man"):
        assert run("man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", page).stderr == ""


def examples() -> list[str]:
    """The commands of the man page, whose lines are in bold."""
    found = []
    for block in re.findall(r"^\.nf\n(.*?)^\.fi", page_text(), re.M | re.S):
        text = "\n".join(line[3:].strip('"') for line in block.splitlines() if line[:3] == ".B ")
        found += re.sub(r"\\\(rs\n\s*", " ", text).splitlines()
    return [line for line in found if line.startswith("tc ")]


def test_man_page_has_examples() -> None:
    assert len(examples()) >= 12
    assert sum("mercury" in line for line in examples()) >= 7


@pytest.mark.parametrize("command", examples())
def test_examples_of_the_man_page_work(tc: Tc, command: str) -> None:
    answer = tc(command.removeprefix("tc ").replace("dev eth0", "dev lo"))
    assert (answer.status, answer.err) == (0, "")
    assert bool(answer.sent) != (" show " in command)


# ---- Completion -------------------------------------------------------------------------------

COMPLETION = PLUGIN / "completion/tc-mercury"
SCRIPT = """
. /usr/share/bash-completion/bash_completion
. "$1"
COMP_LINE=$2 COMP_POINT=${#2}
read -ra COMP_WORDS <<<"$2"
[[ $2 == *' ' ]] && COMP_WORDS+=('')
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
for again in 1 2; do  # iproute2's file must not put itself back
    COMPREPLY=()
    function=$(complete -p tc | sed 's/.*-F \\([^ ]*\\).*/\\1/')
    $function tc "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
done
printf '%s\\n' "${COMPREPLY[@]}"
"""


def complete(line: str) -> list[str]:
    if not Path("/usr/share/bash-completion/bash_completion").exists():
        pytest.skip("bash-completion is not installed")
    done = run("bash", "--norc", "-c", SCRIPT, "bash", COMPLETION, line, env={"PATH": PATH})
    assert done.returncode == 0 and done.stderr == "", done.stderr
    return done.stdout.split()


def test_completes_every_option() -> None:
    qdisc = set(complete("tc qdisc add dev eth0 root mercury "))
    tclass = set(complete("tc class change dev eth0 classid 1:5 mercury "))
    assert qdisc | tclass == {*option_names(), "help"}
    assert tclass == {"weight", "deadline", "limit", "help"}


@pytest.mark.parametrize("line, expected", [
    ("tc qdisc add dev eth0 root mercury j", "jobs job_mask"),
    ("tc qdisc add dev eth0 root mercury jobs ", ""),
    ("tc qdisc add dev eth0 root mercury jobs 3 j", "job_mask"),
    ("tc qdisc add dev eth0 root mercury key ", "mark priority dscp"),
    ("tc qdisc add dev eth0 root mercury key d", "dscp"),
    ("tc qdisc add dev eth0 root mercury rate ", "none"),
    ("tc qdisc add dev eth0 root mercury ce_threshold n", "none"),
    ("tc qdisc add dev eth0 root mercury deadline ", ""),
    ("tc qdisc add dev eth0 root mercury deadline 0:3-5 ", "none"),
    ("tc qdisc add dev eth0 root mercury deadline 0:3-5 3ms de", "default_share deadline"),
    ("tc qdisc add dev eth0 root mercury split_gso au", ""),
    ("tc qdisc add dev eth0 root mercury auto_split_gso no", "no_ack_first"),
    ("tc -s class change dev eth0 classid 1:fc01 mercury w", "weight"),
    ("tc class change dev eth0 classid 1:5 mercury deadline ", "none"),
    ("tc class change dev eth0 classid 1:5 mercury deadline 3ms ", "weight limit help"),
])
def test_completes(line: str, expected: str) -> None:
    assert complete(line) == expected.split()


def test_completion_leaves_tc_alone() -> None:
    if not Path("/usr/share/bash-completion/completions/tc").exists():
        pytest.skip("iproute2's completion is not installed")
    assert "mercury" in complete("tc qdisc add dev lo root m")
    assert "multiq" in complete("tc qdisc add dev lo root m")
    assert "qdisc" in complete("tc q")
    assert "quantum" in complete("tc qdisc add dev lo root fq_codel q")
    assert complete("tc filter s") == ["show"]


# ---- Building and installing ------------------------------------------------------------------


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_compiles_with_every_warning(compiler: str, tmp_path: Path) -> None:
    if not shutil.which(compiler):
        pytest.skip(f"{compiler} is not installed")
    build(tmp_path, CC=compiler, CFLAGS="-O2 -Wconversion -Wshadow -Wundef "
          "-Wmissing-prototypes -Wstrict-prototypes -Wformat=2 -Wno-format-nonliteral -Wvla")


def installed(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if not p.is_dir())


def test_installs_and_uninstalls(tmp_path: Path) -> None:
    target = tmp_path / "target"
    for step, count in (("install", 3), ("uninstall", 0)):
        done = run("make", "-C", PLUGIN, f"O={tmp_path / 'build'}", f"DESTDIR={target}", step)
        assert done.returncode == 0, done.stderr
        names = installed(target)
        assert len(names) == count
        if count:
            assert names[0] == "etc/bash_completion.d/tc-mercury"
            assert re.fullmatch(r"usr/lib/(\S+/)?tc/q_mercury\.so", names[1])
            assert names[2] == "usr/share/man/man8/tc-mercury.8"


def test_clean_leaves_nothing(tmp_path: Path) -> None:
    build(tmp_path)
    run("make", "-C", PLUGIN, f"O={tmp_path}", "clean")
    assert installed(tmp_path) == []


def test_every_file_has_a_licence() -> None:
    for path in [*PLUGIN.rglob("*"), *HERE.glob("*")]:
        if path.is_file() and path.suffix != ".pyc":
            assert "SPDX-License-Identifier: GPL-2.0" in path.read_text()[:200], path
