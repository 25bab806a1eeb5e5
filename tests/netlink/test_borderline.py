# SPDX-License-Identifier: GPL-2.0
"""Messages at the edge of what is allowed: accepted, and read back exactly."""

from __future__ import annotations

import pytest

import rtnl
from abi import ABI, attr, u32, u64
from rtnl import class_option, deadline, deadlines, nest, option, set_option

HANDLE = 0x10000
NONE = ABI["MERCURY_TIME_NONE"]
EVERY = ABI["MERCURY_EVERY_JOB"]
HOUR = 3600000000000
DEFAULTS = {
    "JOBS": 16, "BANDS": 64, "LIMIT": 100000, "MEMORY_LIMIT": 0x10000000, "KEY": 0,
    "MASK": 0xFFFF, "JOB_MASK": 0xFF0000, "DEFAULT_SHARE": 10, "RESCUE": 10, "RATE": 0,
    "SPLIT_GSO": ABI["MERCURY_SPLIT_AUTO"], "ACK_FIRST": 1, "CE_THRESHOLD": NONE,
    "DEADLINES": [],
}  # fmt: skip

EDGES = {
    "JOBS": (1, 62),
    "BANDS": (2, 1024),
    "LIMIT": (1, 0x7FFFFFFF),
    "MEMORY_LIMIT": (0x100000, 0xFFFFFFFF),
    "KEY": (0, 1, 2),
    "MASK": (0x1, 0x8000, 0xFFFF, 0x80000000, 0xFFFF0000),
    "JOB_MASK": (0, 0x10000, 0x80000000, 0xFF000000),
    "DEFAULT_SHARE": (1, 99),
    "RESCUE": (0, 100),
    "RATE": (0, 125, 1250000000000),
    "SPLIT_GSO": (0, 1, 2),
    "ACK_FIRST": (0, 1),
    "CE_THRESHOLD": (1000, HOUR, NONE),
}
CASES = [
    pytest.param(name, value, id=f"{name.lower()}={value:#x}")
    for name, values in EDGES.items()
    for value in values
]


def accept(route: rtnl.Route, device: int, flags: int, *options: bytes) -> None:
    answer = route.request(
        rtnl.RTM_NEWQDISC, flags, device, HANDLE, rtnl.TC_H_ROOT, rtnl.mercury(options)
    )
    assert answer.error == 0, answer
    assert answer.text is None, "accepted, and yet there is a text"


def create(route: rtnl.Route, device: int, *options: bytes) -> None:
    accept(route, device, rtnl.NLM_F_CREATE | rtnl.NLM_F_EXCL, *options)


def change(route: rtnl.Route, device: int, *options: bytes) -> None:
    accept(route, device, 0, *options)


def options_of(route: rtnl.Route, device: int) -> dict:
    (found,) = [q for q in route.dump(rtnl.RTM_GETQDISC, device) if q.handle == HANDLE]
    assert found.kind == "mercury"
    return rtnl.read_options(found)


def classes_of(route: rtnl.Route, device: int) -> dict[int, dict[str, int]]:
    return {
        found.handle: rtnl.read_class(found) for found in route.dump(rtnl.RTM_GETTCLASS, device)
    }


# Another option may have to make room for one at its edge.
def around(name: str) -> dict[str, int]:
    if name == "MASK":
        return {"JOB_MASK": 0}
    return {"MASK": 0x8} if name == "JOB_MASK" else {}


@pytest.mark.parametrize(("name", "value"), CASES)
def test_create_at_the_edge(route: rtnl.Route, device: int, name: str, value: int) -> None:
    wanted = around(name) | {name: value}
    create(route, device, *(set_option(n, v) for n, v in wanted.items()))
    assert options_of(route, device) == DEFAULTS | wanted


@pytest.mark.parametrize(("name", "value"), CASES)
def test_change_to_the_edge_and_back(
    route: rtnl.Route, device: int, name: str, value: int
) -> None:
    create(route, device)
    wanted = around(name) | {name: value}
    change(route, device, *(set_option(n, v) for n, v in wanted.items()))
    assert options_of(route, device) == DEFAULTS | wanted
    change(route, device, *(set_option(n, DEFAULTS[n]) for n in wanted))
    assert options_of(route, device) == DEFAULTS


def test_no_options_are_the_defaults(route: rtnl.Route, device: int) -> None:
    answer = route.request(
        rtnl.RTM_NEWQDISC, rtnl.NLM_F_CREATE, device, HANDLE, rtnl.TC_H_ROOT, rtnl.mercury(None)
    )
    assert answer.error == 0
    assert options_of(route, device) == DEFAULTS


def test_an_empty_change_changes_nothing(route: rtnl.Route, device: int) -> None:
    create(route, device, set_option("LIMIT", 77))
    before = route.snapshot(device)
    change(route, device)
    change(route, device, nest(option("DEADLINES")))
    assert route.snapshot(device) == before


def test_everything_at_once(route: rtnl.Route, device: int) -> None:
    wanted = {
        "JOBS": 62, "BANDS": 1024, "LIMIT": 1, "MEMORY_LIMIT": 0x100000, "KEY": 2, "MASK": 0x38,
        "JOB_MASK": 0x7, "DEFAULT_SHARE": 99, "RESCUE": 100, "RATE": 125, "SPLIT_GSO": 1,
        "ACK_FIRST": 0, "CE_THRESHOLD": 1000,
    }  # fmt: skip
    entries = [(EVERY, 0, 1023, 5000)]
    numbers = (set_option(name, value) for name, value in wanted.items())
    create(route, device, *numbers, deadlines(deadline(*entries[0])))
    assert options_of(route, device) == wanted | {"DEADLINES": entries}


def test_of_two_values_the_last_counts(route: rtnl.Route, device: int) -> None:
    create(route, device, set_option("LIMIT", 5), set_option("BANDS", 9), set_option("LIMIT", 6))
    assert options_of(route, device) == DEFAULTS | {"LIMIT": 6, "BANDS": 9}


def test_unaligned_values_are_read(route: rtnl.Route, device: int) -> None:
    """A u64 that is not on an 8 byte boundary, whichever of the two this is."""
    for pad in ([], [set_option("LIMIT", 7)]):
        create(route, device, *pad, set_option("RATE", 0x123456789), set_option("JOBS", 2))
        assert options_of(route, device)["RATE"] == 0x123456789
        route.request(rtnl.RTM_DELQDISC, 0, device, HANDLE, rtnl.TC_H_ROOT, b"")


# --- deadlines ----------------------------------------------------------------------

DEADLINES = {
    "the-shortest": [(EVERY, 3, 3, 1000)],
    "the-longest": [(EVERY, 3, 3, HOUR)],
    "none": [(EVERY, 0, 63, NONE)],
    "the-last-job-and-band": [(15, 63, 63, 5000)],
    "runs-in-several-jobs": [(0, 0, 9, 5000), (0, 20, 63, 6000), (7, 5, 5, NONE)],
}


@pytest.mark.parametrize("entries", DEADLINES.values(), ids=DEADLINES.keys())
def test_deadlines_are_read_back(
    route: rtnl.Route, device: int, entries: list[tuple[int, int, int, int]]
) -> None:
    create(route, device, deadlines(*(deadline(*entry) for entry in entries)))
    assert options_of(route, device) == DEFAULTS | {"DEADLINES": entries}


def test_a_later_deadline_overrides(route: rtnl.Route, device: int) -> None:
    entries = [(EVERY, 0, 63, 5000), (EVERY, 10, 19, 6000)]
    create(route, device, deadlines(*(deadline(*entry) for entry in entries)))
    assert options_of(route, device)["DEADLINES"] == [
        (EVERY, 0, 9, 5000), (EVERY, 10, 19, 6000), (EVERY, 20, 63, 5000),
    ]  # fmt: skip


def test_the_default_deadline_is_not_listed(route: rtnl.Route, device: int) -> None:
    create(route, device, deadlines(deadline(EVERY, 0, 63, 5000)))
    change(route, device, deadlines(deadline(EVERY, 0, 63, ABI["MERCURY_DEADLINE_DEFAULT"])))
    assert options_of(route, device) == DEFAULTS


def test_64_deadlines_fit_into_one_request_and_one_dump(route: rtnl.Route, device: int) -> None:
    entries = [(0, 2 * i, 2 * i, 5000 + i) for i in range(64)]
    create(
        route, device, set_option("BANDS", 1024), set_option("JOBS", 62),
        deadlines(*(deadline(*entry) for entry in entries)),
    )  # fmt: skip
    assert options_of(route, device)["DEADLINES"] == entries


def test_a_dump_lists_64_of_more_runs(route: rtnl.Route, device: int) -> None:
    create(route, device, set_option("BANDS", 1024), set_option("JOBS", 62))
    for job in range(0, 62, 2):
        entries = (deadline(job, 2 * i, 2 * i, 5000 + i) for i in range(64))
        change(route, device, deadlines(*entries))
    assert len(options_of(route, device)["DEADLINES"]) == 64


def test_the_longest_qdiscs_can_be_announced(route: rtnl.Route, device: int) -> None:
    """To replace one by another tells of both, in one message."""
    most = deadlines(*(deadline(0, 2 * i, 2 * i, 5000 + i) for i in range(64)))
    payload = rtnl.mercury([set_option("BANDS", 1024), most])
    with rtnl.Route(rtnl.RTMGRP_TC) as listener:
        for handle, wanted in (
            (0x10000, [rtnl.RTM_NEWQDISC]),
            (0x20000, [rtnl.RTM_DELQDISC, rtnl.RTM_NEWQDISC]),
        ):
            flags = rtnl.NLM_F_CREATE | rtnl.NLM_F_REPLACE
            answer = route.request(
                rtnl.RTM_NEWQDISC, flags, device, handle, rtnl.TC_H_ROOT, payload
            )
            assert answer.error == 0, answer
            assert listener.announced() == wanted


# --- classes ---------------------------------------------------------------------------

JOB_1, BAND_1_0 = HANDLE | 0xFC01, HANDLE | 0x401
DEFAULT_CLASS = HANDLE | ABI["MERCURY_MINOR_DEFAULT"]


def change_class(route: rtnl.Route, device: int, classid: int, *options: bytes) -> None:
    answer = route.request(rtnl.RTM_NEWTCLASS, 0, device, classid, 0, rtnl.mercury(options))
    assert answer.error == 0, answer
    assert answer.text is None


@pytest.mark.parametrize("value", (1, 2, 1000))
def test_weights_are_read_back(route: rtnl.Route, device: int, value: int) -> None:
    create(route, device)
    weight, limit = attr(class_option("WEIGHT"), u32(value)), attr(class_option("LIMIT"), u32(3))
    change_class(route, device, JOB_1, weight, limit)
    assert classes_of(route, device)[JOB_1] == {"JOB": 1, "WEIGHT": value, "LIMIT": 3}


@pytest.mark.parametrize("value", (1, 0x7FFFFFFF))
def test_limits_are_read_back(route: rtnl.Route, device: int, value: int) -> None:
    create(route, device)
    for classid in (JOB_1, BAND_1_0):
        change_class(route, device, classid, attr(class_option("LIMIT"), u32(value)))
        assert classes_of(route, device)[classid]["LIMIT"] == value
    for classid in (JOB_1, BAND_1_0):
        change_class(route, device, classid, attr(class_option("LIMIT"), u32(0)))
    assert set(classes_of(route, device)) == {DEFAULT_CLASS}


@pytest.mark.parametrize("value", (1000, HOUR, NONE), ids=("shortest", "longest", "none"))
def test_deadlines_of_bands_are_read_back(route: rtnl.Route, device: int, value: int) -> None:
    create(route, device)
    change_class(
        route, device, BAND_1_0,
        attr(class_option("LIMIT"), u32(5)), attr(class_option("DEADLINE"), u64(value)),
    )  # fmt: skip
    wanted = {"JOB": 1, "BAND": 0, "LIMIT": 5, "DEADLINE": value}
    assert classes_of(route, device)[BAND_1_0] == wanted
    assert options_of(route, device)["DEADLINES"] == [(1, 0, 0, value)]


def test_the_last_class_there_can_be(route: rtnl.Route, device: int) -> None:
    create(route, device, set_option("JOBS", 62), set_option("BANDS", 1024))
    for classid in (HANDLE | 0xF800, HANDLE | 0xFC3D):
        change_class(route, device, classid, attr(class_option("LIMIT"), u32(5)))
    assert set(classes_of(route, device)) == {HANDLE | 0xF800, HANDLE | 0xFC3D, DEFAULT_CLASS}


def test_empty_class_options_change_nothing(route: rtnl.Route, device: int) -> None:
    create(route, device)
    change_class(route, device, JOB_1, attr(class_option("WEIGHT"), u32(9)))
    before = route.snapshot(device)
    change_class(route, device, JOB_1)
    assert route.snapshot(device) == before


def test_the_default_class_takes_a_child_and_gives_it_back(route: rtnl.Route, device: int) -> None:
    create(route, device)
    before = route.snapshot(device)
    answer = route.request(
        rtnl.RTM_NEWQDISC, rtnl.NLM_F_CREATE, device, 0x20000, DEFAULT_CLASS, rtnl.kind("pfifo")
    )
    assert answer.error == 0, answer
    assert 0x20000 in [q.handle for q in route.dump(rtnl.RTM_GETQDISC, device)]
    (found,) = [c for c in route.dump(rtnl.RTM_GETTCLASS, device) if c.handle == DEFAULT_CLASS]
    assert found.info == 0x20000
    answer = route.request(rtnl.RTM_DELQDISC, 0, device, 0x20000, DEFAULT_CLASS, b"")
    assert answer.error == 0, answer
    assert route.snapshot(device) == before
