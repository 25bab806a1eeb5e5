# SPDX-License-Identifier: GPL-2.0
"""How a packet's key, masks and classid choose its job and its band."""

from __future__ import annotations

import time

import pytest

from lib import checks, tc
from lib.capture import Capture
from lib.netns import Pair
from lib.traffic import Udp, mark


def _sent_by_class(pair: Pair, handle: str = "1:") -> dict[str, int]:
    """Packets by class, of those that have sent any."""
    return {n: c["packets"] for n, c in tc.classes(pair.a, handle).items() if c["packets"]}


@pytest.mark.parametrize(
    ("options", "so_mark", "job", "band"),
    [
        ("", mark(5), 0, 4),
        ("", mark(5, job=3), 3, 4),
        ("", mark(64, job=15), 15, 63),
        ("", mark(5, job=16), 15, 4),  # beyond the jobs: the last one
        ("", mark(5, job=255), 15, 4),
        ("", 0xFF000005, 0, 4),  # bits of nobody
        ("jobs 62", mark(1, job=61), 61, 0),
        ("jobs 1", mark(1, job=61), 0, 0),
        ("mask 0xff00 job_mask 0xff", 0x0502, 2, 4),
        ("mask 0xff00 job_mask 0xff", 0x0002, None, None),
        ("mask 0x80000000 job_mask 0x7", 0x80000003, 3, 0),
        ("mask 0xffff0000 job_mask 0", 0x00070007, 0, 6),
        ("mask 0xffff0000 job_mask 0", 0x80000000, 0, 63),
        ("job_mask 0", mark(3, job=9), 0, 2),
        ("job_mask 0xff000000 jobs 62", 0xFFFF0001, 61, 0),
        ("mask 0xffff0000 job_mask 0xff", 0xFFFF0001, 1, 63),
    ],
)
def test_masks(
    pair: Pair, wire: Capture, options: str, so_mark: int, job: int | None, band: int | None
) -> None:
    pair.add(options)
    Udp(pair, so_mark).send(3)
    assert len(wire.ours()) == 3
    if job is None:
        assert _sent_by_class(pair) == {tc.DEFAULT: 3}
    else:
        assert _sent_by_class(pair) == {tc.job(job): 3, tc.band(job, band): 3}


def test_job_by_priority(pair: Pair, wire: Capture) -> None:
    pair.a.tc("qdisc add dev eth0 root handle 8000: mercury key priority")
    Udp(pair, priority=mark(5, job=3)).send(3)
    assert len(wire.ours()) == 3
    assert _sent_by_class(pair, "8000:") == {"8000:fc03": 3, "8000:c05": 3}


@pytest.mark.parametrize(
    ("minor", "so_mark", "expected"),
    [
        (0x0005, 0, {tc.job(0): 2, tc.band(0, 4): 2}),
        (0x0005, mark(60, job=2), {tc.job(0): 2, tc.band(0, 4): 2}),
        (0x0440, 0, {tc.job(1): 2, tc.band(1, 63): 2}),
        (0x0450, 0, {tc.job(1): 2, tc.band(1, 63): 2}),  # beyond the bands
        (0xF7FF, 0, {tc.job(15): 2, tc.band(15, 63): 2}),  # beyond the jobs
        (0xFC01, mark(7), {tc.job(1): 2, tc.band(1, 6): 2}),  # the job; the layer is the mark's
        (0xFC01, 0, {tc.job(1): 2, tc.band(1, 63): 2}),
        (0xFC3D, mark(7), {tc.job(15): 2, tc.band(15, 6): 2}),
        (0xFFFF, mark(7), {tc.DEFAULT: 2}),
        (0x0000, mark(7), {tc.job(0): 2, tc.band(0, 6): 2}),  # of no class: the mark's
        (0xFC3E, mark(7), {tc.job(0): 2, tc.band(0, 6): 2}),
        (0xFFFE, mark(7), {tc.job(0): 2, tc.band(0, 6): 2}),
    ],
    ids=lambda v: f"{v:x}" if isinstance(v, int) else "",
)
def test_classid_in_so_priority(
    pair: Pair, wire: Capture, minor: int, so_mark: int, expected: dict[str, int]
) -> None:
    pair.add("")
    Udp(pair, so_mark, priority=0x10000 | minor).send(2)
    assert len(wire.ours()) == 2
    assert _sent_by_class(pair) == expected


def test_classid_of_another_qdisc_is_none_of_ours(pair: Pair, wire: Capture) -> None:
    pair.add("")
    Udp(pair, mark(7), priority=0x20005).send(2)
    assert len(wire.ours()) == 2
    assert _sent_by_class(pair) == {tc.job(0): 2, tc.band(0, 6): 2}


def test_classid_decides_the_order(pair: Pair, wire: Capture) -> None:
    pair.add("rate 1gbit")
    bulk = Udp(pair, priority=0x10029)
    urgent = Udp(pair, priority=0x10001)
    bulk.send(200)
    time.sleep(0.0005)
    urgent.send()
    time.sleep(0.1)
    checks.overtakes_all_queued(wire.ours(), urgent, bulk)


def test_class_statistics_add_up(pair: Pair, wire: Capture) -> None:
    """Bands to their job, jobs and the default class to the qdisc, and that to the wire."""
    pair.add("rate 1gbit")
    flows = [Udp(pair, mark(layer, job)) for layer in (1, 2, 64) for job in (0, 1, 15)]
    for i, flow in enumerate([*flows, Udp(pair)]):
        flow.send(10 + i)
    time.sleep(0.2)
    captured = wire.ours()
    stats = tc.classes(pair.a)
    for field in ("packets", "bytes"):
        for job in (0, 1, 15):
            bands = [stats[tc.band(job, b)][field] for b in (0, 1, 63)]
            assert sum(bands) == stats[tc.job(job)][field]
        total = sum(stats[name][field] for name in (tc.job(0), tc.job(1), tc.job(15), tc.DEFAULT))
        assert total == tc.qdisc(pair.a)[field]
    assert tc.qdisc(pair.a)["packets"] == len(captured)
    assert tc.qdisc(pair.a)["bytes"] == sum(p.length for p in captured)
