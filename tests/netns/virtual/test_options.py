# SPDX-License-Identifier: GPL-2.0
"""Every option set, read back and refused; and what tc prints."""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest

from lib import tc
from lib.capture import Capture
from lib.netns import Pair
from lib.traffic import ECT_0, Udp, mark

_DEFAULTS: dict[str, Any] = {
    "jobs": 16,
    "bands": 64,
    "limit": 100000,
    "memory_limit": 256 << 20,
    "key": "mark",
    "mask": "0xffff",
    "job_mask": "0xff0000",
    "default_share": 10,
    "rescue": 10,
    "rate": None,
    "split_gso": "auto",
    "ack_first": True,
    "ce_threshold_ns": None,
    "deadlines": [],
}


@pytest.fixture(scope="module")
def one_pair() -> Iterator[Pair]:
    pair = Pair()
    yield pair
    pair.delete()


@pytest.fixture
def pair(one_pair: Pair) -> Iterator[Pair]:
    """The same for all tests here, without a qdisc."""
    yield one_pair
    if tc.qdiscs(one_pair.a)[0]["kind"] != "noqueue":
        one_pair.a.tc("qdisc del dev eth0 root")


def _deadline(job: int | None, first: int, last: int, ns: int | None) -> dict[str, int | None]:
    return {"job": job, "first": first, "last": last, "deadline_ns": ns}


# What is typed, what of it JSON shows, and what the text does.
_SETTINGS: list[tuple[str, dict[str, Any], str]] = [
    ("jobs 1", {"jobs": 1}, "jobs 1"),
    ("jobs 62", {"jobs": 62}, "jobs 62"),
    ("bands 2", {"bands": 2}, "bands 2"),
    ("bands 1024", {"bands": 1024}, "bands 1024"),
    ("limit 1", {"limit": 1}, "limit 1"),
    ("limit 2147483647", {"limit": 2147483647}, "limit 2147483647"),
    ("memory_limit 1mb", {"memory_limit": 1 << 20}, "memory_limit 1Mb"),
    ("memory_limit 4294967295", {"memory_limit": 4294967295}, "memory_limit 4294967295b"),
    ("key priority", {"key": "priority"}, "key priority"),
    ("key dscp", {"key": "dscp"}, "key dscp"),
    ("mask 0xff", {"mask": "0xff"}, "mask 0xff"),
    ("mask 0xff000000", {"mask": "0xff000000"}, "mask 0xff000000"),
    ("mask 255", {"mask": "0xff"}, "mask 0xff"),
    ("job_mask 0", {"job_mask": "0"}, "job_mask 0"),
    ("job_mask 0x7f000000", {"job_mask": "0x7f000000"}, "job_mask 0x7f000000"),
    ("mask 0xffff0000 job_mask 0", {"mask": "0xffff0000", "job_mask": "0"}, "mask 0xffff0000"),
    ("mask 1 job_mask 0xff00", {"mask": "0x1", "job_mask": "0xff00"}, "mask 0x1 job_mask 0xff00"),
    ("default_share 1", {"default_share": 1}, "default_share 1%"),
    ("default_share 99%", {"default_share": 99}, "default_share 99%"),
    ("rescue 0", {"rescue": 0}, "rescue 0%"),
    ("rescue 100", {"rescue": 100}, "rescue 100%"),
    ("rate 1kbit", {"rate": 125}, "rate 1Kbit"),
    ("rate 9.5gbit", {"rate": 1187500000}, "rate 9500Mbit"),
    ("rate 10tbit", {"rate": 1250000000000}, "rate 10Tbit"),
    ("rate none", {"rate": None}, "rate none"),
    ("split_gso", {"split_gso": "on"}, " split_gso"),
    ("no_split_gso", {"split_gso": "off"}, "no_split_gso"),
    ("auto_split_gso", {"split_gso": "auto"}, "auto_split_gso"),
    ("ack_first", {"ack_first": True}, " ack_first"),
    ("no_ack_first", {"ack_first": False}, "no_ack_first"),
    ("ce_threshold 1us", {"ce_threshold_ns": 1000}, "ce_threshold 1us"),
    ("ce_threshold 2.5ms", {"ce_threshold_ns": 2500000}, "ce_threshold 2500us"),
    ("ce_threshold 3600s", {"ce_threshold_ns": 3600 * 10**9}, "ce_threshold 3600s"),
    ("ce_threshold none", {"ce_threshold_ns": None}, "ce_threshold none"),
    ("deadline 5 3ms", {"deadlines": [_deadline(None, 5, 5, 3000000)]}, "deadline 5 3ms"),
    ("deadline 5-9 1us", {"deadlines": [_deadline(None, 5, 9, 1000)]}, "deadline 5-9 1us"),
    ("deadline 2:0-63 none", {"deadlines": [_deadline(2, 0, 63, None)]}, "deadline 2:0-63 none"),
    ("deadline 15:63 1s", {"deadlines": [_deadline(15, 63, 63, 10**9)]}, "deadline 15:63 1s"),
    ("deadline 3 100ms", {}, "ce_threshold none"),  # what it has anyway
    (
        "deadline 0-9 5ms deadline 4 none",  # a later one overrides
        {
            "deadlines": [
                _deadline(None, 0, 3, 5000000),
                _deadline(None, 4, 4, None),
                _deadline(None, 5, 9, 5000000),
            ]
        },
        "deadline 0-3 5ms deadline 4 none deadline 5-9 5ms",
    ),
]
_IDS = [words for words, _, _ in _SETTINGS]


def _options(pair: Pair) -> dict[str, Any]:
    """The settings in JSON, without what follows from them."""
    options = tc.qdisc(pair.a)["options"]
    return {name: options[name] for name in _DEFAULTS}


def test_defaults(pair: Pair) -> None:
    pair.add("")
    assert _options(pair) == _DEFAULTS


@pytest.mark.parametrize(("words", "shown", "text"), _SETTINGS, ids=_IDS)
def test_set_by_add(pair: Pair, words: str, shown: dict[str, Any], text: str) -> None:
    """JSON and text show it, the rest is as it would be without."""
    pair.add(words)
    assert _options(pair) == _DEFAULTS | shown
    assert text in tc.qdisc_text(pair.a)


@pytest.mark.parametrize(("words", "shown", "text"), _SETTINGS, ids=_IDS)
def test_set_by_change(pair: Pair, words: str, shown: dict[str, Any], text: str) -> None:
    """With a backlog in it; what is not named stays as it was."""
    before = {
        "rescue": 33, "default_share": 44, "limit": 5000, "rate": 125000,
        "deadlines": [_deadline(None, 1, 1, 7000)],
    }  # fmt: skip
    pair.add("rescue 33 default_share 44 limit 5000 rate 1mbit deadline 1 7us")
    Udp(pair, mark(2)).send(20)
    Udp(pair, mark(50, job=9)).send(20)
    Udp(pair).send(20)
    pair.change(words)
    options = _options(pair)
    assert options | {"deadlines": None} == _DEFAULTS | before | shown | {"deadlines": None}
    # Those of old and new are listed together, for all jobs or for each.
    for one in shown.get("deadlines", ()):
        jobs = range(16) if options["deadlines"][0]["job"] is not None else [None]
        for job in jobs if one["job"] is None else [one["job"]]:
            assert one | {"job": job} in options["deadlines"]
    pair.change("rate 1gbit")
    time.sleep(0.1)
    assert tc.qdisc(pair.a)["qlen"] == 0


_MANY = (
    "jobs 5 bands 100 limit 1234 memory_limit 5mb key dscp mask 0x3f job_mask 0xc0 default_share 21"
    " rescue 7 rate 123456kbit no_split_gso no_ack_first ce_threshold 1234us deadline 3 17us"
    " deadline 2:10-20 5ms deadline 4:99 none"
)


@pytest.mark.parametrize("words", ["", *_IDS, _MANY])
def test_what_tc_prints_can_be_typed(pair: Pair, words: str) -> None:
    pair.add(words)
    printed = tc.qdisc_text(pair.a)
    pair.a.tc("qdisc del dev eth0 root")
    pair.add(tc.options_of_text(printed))
    assert tc.qdisc_text(pair.a) == printed


def test_replace_starts_anew_under_another_handle(pair: Pair) -> None:
    pair.add(_MANY)
    pair.a.tc("qdisc replace dev eth0 root handle 2: mercury bands 5")
    options = tc.qdisc(pair.a, "2:")["options"]
    assert {name: options[name] for name in _DEFAULTS} == _DEFAULTS | {"bands": 5}


# --- Refusals ----------------------------------------------------------------

# What is typed, and what the complaint must say: the name, and what is allowed.
_REFUSED = [
    ("jobs 0", r"jobs 0: must be 1 to 62"),
    ("jobs 63", r"jobs 63: must be 1 to 62"),
    ("jobs -1", r"jobs -1"),
    ("jobs", r"jobs: its value is missing"),
    ("jobs many", r"jobs many"),
    ("jobs 1.5", r"jobs 1\.5"),
    ("bands 0", r"bands 0: must be 2 to 1024"),
    ("bands 1", r"bands 1: must be 2 to 1024"),
    ("bands 1025", r"bands 1025: must be 2 to 1024"),
    ("bands 99999999999999999999", r"bands 9+: must be 2 to 1024"),
    ("limit 0", r"limit 0: must be 1 to 2147483647"),
    ("limit 2147483648", r"limit 2147483648: must be"),
    ("memory_limit 0", r"memory_limit 0: must be 1Mb to"),
    ("memory_limit 1048575", r"memory_limit 1048575: must be 1Mb to"),
    ("memory_limit 5gb", r"memory_limit 5gb: must be"),
    ("memory_limit 4294967296", r"memory_limit 4294967296: must be"),
    ("key", r"key: its value is missing: must be mark, priority or dscp"),
    ("key flow", r"key flow: must be mark, priority or dscp"),
    ("mask 0", r"mask 0: must be one run of"),
    ("mask 0x5", r"mask 0x5: must be one run of"),
    ("mask 0x100000000", r"mask 0x100000000"),
    ("mask ffff", r"mask ffff"),
    ("mask 0x1ffff", r"mask 0x1ffff: must be one run of 1 to 16 bits"),
    ("job_mask 0xff800000", r"job_mask 0xff800000: must be one run of 1 to 8 bits"),
    ("job_mask 0x50000", r"job_mask 0x50000: must be one run of"),
    ("mask 0xff job_mask 0x80", r"job_mask 0x80: must not overlap mask 0xff"),
    ("default_share 0", r"default_share 0: must be 1% to 99%"),
    ("default_share 100", r"default_share 100: must be 1% to 99%"),
    ("rescue 101", r"rescue 101: must be 0% to 100%"),
    ("rescue -1", r"rescue -1"),
    ("rate 0", r"rate 0: must be 1Kbit to 10Tbit, or none"),
    ("rate 900bit", r"rate 900bit: must be 1Kbit"),
    ("rate 11tbit", r"rate 11tbit: must be"),
    ("rate fast", r"rate fast: must be"),
    ("ce_threshold 0", r"ce_threshold 0: must be"),
    ("ce_threshold 999ns", r"ce_threshold 999ns: must be 1us to 3600s"),
    ("ce_threshold 3601s", r"ce_threshold 3601s: must be"),
    ("ce_threshold 5", r"ce_threshold 5: must be .* with its unit"),
    ("deadline", r"deadline .*must be \[JOB:\]BAND"),
    ("deadline 5", r"deadline 5: its time is missing"),
    ("deadline 5 0", r"deadline 5 0: must be 1us to 3600s"),
    ("deadline 5 0ms", r"deadline 5 0ms: must be"),
    ("deadline 5 -3ms", r"deadline 5 -3ms: must be"),
    ("deadline 5 3601s", r"deadline 5 3601s: must be"),
    ("deadline 9-5 1ms", r"deadline 9-5: .*must be 9 to 1023"),
    ("deadline 1024 1ms", r"deadline 1024: band.* must be 0 to 1023"),
    ("deadline 62:5 1ms", r"deadline 62:5: job.* must be 0 to 61"),
    ("deadline x 1ms", r"deadline x: must be"),
    ("bands 10 deadline 10 1ms", r"deadline 10: band.* must be 0 to 9"),
    ("jobs 2 deadline 2:1 1ms", r"deadline 2:1: job.* must be 0 to 1"),
    ("split_gso no_split_gso", r"no_split_gso: only one of"),
    ("ack_first ack_first", r"ack_first: only one of"),
    ("limit 5 limit 6", r"limit: given twice"),
    ("speed 5", r'What is "speed"\?'),
    ("limit 5 extra", r'What is "extra"\?'),
]  # fmt: skip
# What only the kernel can know: it depends on what is set already.
_REFUSED_BY_KERNEL = [
    ("mask 0xffff0", "mask and job_mask must not overlap"),
    ("job_mask 0xff00", "mask and job_mask must not overlap"),
    ("deadline 64 1ms", "bands that there are not"),
    ("deadline 16:0 1ms", "a job that there is not"),
]


@pytest.mark.parametrize(
    ("words", "complaint", "status"),
    [(*r, 1) for r in _REFUSED] + [(*r, 2) for r in _REFUSED_BY_KERNEL],
    ids=[r[0] for r in _REFUSED + _REFUSED_BY_KERNEL],
)
def test_refused(pair: Pair, words: str, complaint: str, status: int) -> None:
    """By add nothing is made, by change nothing is changed; the complaint names the thing."""
    before = tc.qdiscs(pair.a)
    assert re.search(complaint, pair.a.refused(f"qdisc add dev eth0 root mercury {words}", status))
    assert tc.qdiscs(pair.a) == before
    pair.add("rescue 33")
    before = tc.qdiscs(pair.a)
    said = pair.a.refused(f"qdisc change dev eth0 root handle 1: mercury limit 7 {words}", status)
    # "limit 0" after "limit 7" is one too many already.
    assert re.search(complaint, said) or (words.startswith("limit") and "given twice" in said)
    assert tc.qdiscs(pair.a) == before


@pytest.mark.parametrize("word", ["-1", "1e3", "0x10", "+5", "inf", "nan"])
@pytest.mark.parametrize("option", ["jobs", "limit", "rescue"])
def test_strange_numbers_are_refused(pair: Pair, option: str, word: str) -> None:
    assert f"{option} {word}" in pair.a.refused(f"qdisc add dev eth0 root mercury {option} {word}")


def test_the_number_of_deadlines_in_a_request_is_bounded(pair: Pair) -> None:
    """So is the time that the kernel spends on one; more can be set one after another."""
    many = " ".join(f"deadline {band} {band + 1}ms" for band in range(64))
    pair.add(many)
    assert len(tc.qdisc(pair.a)["options"]["deadlines"]) >= 63
    before = tc.qdiscs(pair.a)
    command = f"qdisc change dev eth0 root handle 1: mercury {many} deadline 0 1s"
    assert "deadline" in pair.a.refused(command, None)
    assert tc.qdiscs(pair.a) == before
    pair.change("deadline 0:0 1s")
    shown = tc.qdisc(pair.a)["options"]["deadlines"]
    assert len(shown) == 64  # as many as a dump has room for


# --- Classes -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("classid", "words", "name", "shown"),
    [
        ("1:fc00", "weight 1000", "weight", "1000"),
        ("1:fc0f", "weight 2", "weight", "2"),
        ("1:fc02", "limit 5", "limit", "5"),
        ("1:1", "limit 2147483647", "limit", "2147483647"),
        ("1:3c40", "limit 5", "limit", "5"),
        ("1:40", "limit 4 deadline 2500us", "deadline", "2500us"),
        ("1:1", "limit 4 deadline none", "deadline", "none"),
        ("1:1", "limit 4 deadline 3600s", "deadline", "3600s"),
    ],
)
def test_class_options(pair: Pair, classid: str, words: str, name: str, shown: str) -> None:
    pair.add("")
    before = set(tc.classes(pair.a))
    pair.a.tc(f"class change dev eth0 classid {classid} mercury {words}")
    classes = tc.classes(pair.a)
    assert classes[classid][name] == shown
    assert set(classes) - before <= {classid, tc.job(int(classid[2:], 16) // 0x400)}


def test_class_options_are_set_back(pair: Pair) -> None:
    pair.add("")
    before = pair.a.tc("-s class show dev eth0")
    for classid, there, back in (
        ("1:fc00", "weight 9 limit 4", "weight 1 limit none"),
        ("1:7", "limit 4 deadline 3ms", "deadline 100ms limit none"),
    ):
        pair.a.tc(f"class change dev eth0 classid {classid} mercury {there}")
        pair.a.tc(f"class change dev eth0 classid {classid} mercury {back}")
    assert pair.a.tc("-s class show dev eth0") == before


@pytest.mark.parametrize(
    ("classid", "words", "complaint", "status"),
    [
        ("1:fc00", "weight 0", r"weight 0: must be 1 to 1000", 1),
        ("1:fc00", "weight 1001", r"weight 1001: must be 1 to 1000", 1),
        ("1:1", "weight 5", r"weight: .*1:1 is a band", 1),
        ("1:fc00", "deadline 5ms", r"deadline: .*1:fc00 is a job", 1),
        ("1:1", "deadline 5", r"deadline 5: must be", 1),
        ("1:1", "deadline 0", r"deadline 0: must be", 1),
        ("1:1", "limit 0", r"limit 0: must be 1 to 2147483647, or none", 1),
        ("1:1", "limit 2147483648", r"limit 2147483648: must be", 1),
        ("1:1", "speed 3", r'What is "speed"\?', 1),
        ("1:1", "limit 3 limit 4", r"limit: given twice", 1),
        ("1:ffff", "limit 3", r"1:ffff: the default class has no options", 1),
        ("1:0", "limit 3", r"1:0", 1),
        ("1:fc3e", "weight 3", r"1:fc3e: must be", 1),
        ("1:41", "limit 3", r"No such file", 2),  # the kernel has no sentence for it
        ("1:fc10", "weight 3", r"No such file", 2),
        ("1:4001", "limit 3", r"No such file", 2),
        ("3:1", "limit 3", r"", 2),
    ],
)
def test_class_refused(
    pair: Pair, classid: str, words: str, complaint: str, status: int
) -> None:
    pair.add("")
    before = pair.a.tc("-s class show dev eth0")
    said = pair.a.refused(f"class change dev eth0 classid {classid} mercury {words}", status)
    assert re.search(complaint, said)
    assert pair.a.tc("-s class show dev eth0") == before


# --- Output ------------------------------------------------------------------


def _use_everything(pair: Pair) -> None:
    """A qdisc with all kinds of numbers in its statistics."""
    pair.add(
        "rate 100mbit limit 200 ce_threshold 1ms rescue 0"
        " deadline 0 1ms deadline 5 2ms deadline 1:2-9 none"
    )
    pair.a.tc("qdisc add dev eth0 parent 1:ffff handle 2: fq_codel")
    pair.a.tc("class change dev eth0 classid 1:fc01 mercury weight 3")
    for layer in (0, 1, 6, 64):
        for job in (0, 1):
            Udp(pair, mark(layer, job), tos=ECT_0).send(60)
            Udp(pair, mark(layer, job), size=20_000, segment=1400).send(2)
    time.sleep(0.008)


def test_json_under_traffic(pair: Pair) -> None:
    _use_everything(pair)
    for flags in ("-j", "-j -s", "-j -d", "-j -s -d", "-j -s -d -p"):
        shown = json.loads(pair.a.tc(f"{flags} qdisc show dev eth0"))
        assert [q["kind"] for q in shown] == ["mercury", "fq_codel"]
    q = tc.qdisc(pair.a)
    assert q["qlen"] > 0 and q["backlog"] > 0 and q["drop_limit"] > 0
    assert q["ce_marks"] > 0 and q["gso_split"] > 0 and q["active_jobs"] == 2
    assert q["deadline_met"] > 0 and q["deadline_missed"] > 0


def test_json_of_classes(pair: Pair) -> None:
    """With a tc that has JSON for classes, which that of Debian 12 has not."""
    finder = pathlib.Path(__file__).parents[2] / "plugin" / "newer-tc"
    found = subprocess.run([finder], capture_output=True, text=True)
    if found.returncode:
        pytest.skip("no tc with JSON for classes")
    _use_everything(pair)
    command = [found.stdout.strip(), "-n", pair.a.name, "-j", "-s", "class", "show", "dev", "eth0"]
    shown = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    ours = {c["handle"]: c for c in shown if c["class"] == "mercury"}
    text = tc.classes(pair.a)
    assert ours.keys() == text.keys()


def test_text_under_traffic(pair: Pair) -> None:
    """All lines of the statistics, and nothing that is not text or a number."""
    _use_everything(pair)
    shown = pair.a.tc("-s -d qdisc show dev eth0")
    for words in ("active_jobs 2", "ce_marks", "dropped limit", "deadlines met", "memory"):
        assert words in shown
    shown = pair.a.tc("-s class show dev eth0")
    assert "class mercury 1:fc01 root job 1 weight 3" in shown
    assert "class mercury 1:6 root job 0 band 5 deadline 2ms" in shown
    assert re.search(r"sojourn p50 .* p99 ", shown)


def test_help(pair: Pair) -> None:
    said = pair.a.refused("qdisc add dev eth0 root mercury help", 1)
    said_of_class = pair.a.refused("class change dev eth0 classid 1:1 mercury help", 1)
    for name in _DEFAULTS:
        assert re.search(rf"\b{name.removesuffix('_ns').removesuffix('s')}", said)
    for word in ("weight", "deadline", "limit"):
        assert re.search(rf"\b{word}\b", said_of_class)


def test_sojourn_histogram_matches_the_capture(pair: Pair) -> None:
    wire = Capture(pair.b)
    pair.add("rate 100mbit")
    flow = Udp(pair, mark(3))
    flow.send(400)
    time.sleep(0.1)
    waits = [p.waited for p in wire.ours()]
    shown = pair.a.tc("-s class show dev eth0")
    line = next(n for n in shown.splitlines() if n.strip().startswith("sojourn"))
    # "sojourn p50 <16.8ms p99 <33.6ms of <8.39ms 3 <16.8ms 97 ..."
    counts = [int(n) for n in re.findall(r"[<>=]+\S+ (\d+)", line)]
    assert sum(counts) == 400
    expected: dict[int, int] = {}
    for wait in waits:
        bucket = (max(wait, 0) >> 10).bit_length()
        expected[bucket] = expected.get(bucket, 0) + 1
    assert len(counts) >= len(expected) - 1
    for got, want in zip(counts[::-1], [expected[b] for b in sorted(expected)][::-1]):
        assert abs(got - want) <= 2
