# SPDX-License-Identifier: GPL-2.0
"""setsockopt(fd, MERCURY_SOL, MERCURY_SO_LAYER): programs without privileges mark their own sockets."""

from __future__ import annotations

import errno
import platform
from collections.abc import Callable, Iterator

import pytest

from lib.netns import Pair

from daemon import Daemon, eventually
from plain import OTHER, Program
from test_rules import DEVICE, begin, cgroups, ruled, sink, start  # noqa: F401 (fixtures)
from trainer import DONE, PORT, USER, Sink, Trainer


# Such kernels want CAP_PERFMON as well.
_IS_OLD = tuple(int(part) for part in platform.release().split(".")[:2]) < (6, 12)


@pytest.fixture
def pair() -> Iterator[Pair]:
    pair = Pair(ipv6=True)
    yield pair
    pair.delete()


def layer(program: Program, job: int, number: int, size: int = 8, name: int = 1) -> dict:
    program.ask({"job": job, "layer": number, "size": size, "name": name})
    return program.says()


@pytest.fixture
def offering(ruled: Daemon) -> Daemon:  # noqa: F811
    ruled.hints = "setsockopt = true\n"
    ruled.capabilities = [one for one in ruled.capabilities if one != "perfmon" or _IS_OLD]
    begin(ruled)
    assert ruled.status()["setsockopt"] == "on"
    return ruled


@pytest.fixture
def trainer(offering: Daemon, make_trainer: Callable[..., Trainer]) -> Trainer:
    trainer = make_trainer(offering.socket, user=USER)
    trainer.job("vgg16", 4)
    return trainer


@pytest.mark.parametrize("address", [Pair.B4, Pair.B6])
def test_a_program_without_privileges_marks_its_socket(
    address: str,
    pair: Pair,
    offering: Daemon,
    trainer: Trainer,
    sink: Sink,  # noqa: F811
    start: Callable[..., Program],  # noqa: F811
) -> None:
    program = start(pair.a, "layers", address, PORT, user=USER)
    program.says()
    # The classes of VGG-16 are layers 0 to 12, 13, and the others.
    for number, band in ((0, 0), (12, 0), (13, 1), (14, 2), (15, 2)):
        found = layer(program, 1, number)
        assert found == {"errno": 0, "mark": 1 << 16 | band + 1, "priority": band + 1, "dscp": 0}
    assert offering.status()["sockets"] == 5


@pytest.mark.parametrize(
    ("user", "job", "number", "error"),
    [
        (OTHER, 1, 0, errno.ENOENT),  # the job of another user
        (0, 1, 0, errno.ENOENT),  # also for root, who needs no such way
        (USER, 0, 0, errno.ENOENT),
        (USER, 2, 0, errno.ENOENT),
        (USER, 0xFFFFFFFF, 0, errno.ENOENT),
        (USER, 1, 16, errno.ENOENT),  # it has 16 layers, from 0
        (USER, 1, 0xFFFFFFFF, errno.ENOENT),
    ],
)
def test_nobody_gets_at_what_is_not_his(
    user: int,
    job: int,
    number: int,
    error: int,
    pair: Pair,
    trainer: Trainer,
    sink: Sink,  # noqa: F811
    start: Callable[..., Program],  # noqa: F811
) -> None:
    program = start(pair.a, "layers", pair.B4, PORT, user=user)
    program.says()
    assert layer(program, job, number) == {"errno": error, "mark": 0, "priority": 0, "dscp": 0}


@pytest.mark.parametrize(
    ("size", "name", "error"),
    [
        (0, 1, errno.EINVAL),
        (4, 1, errno.EINVAL),
        (12, 1, errno.EINVAL),
        (5000, 1, errno.EINVAL),
        (8, 2, errno.ENOPROTOOPT),
    ],
)
def test_another_option_or_size(
    size: int,
    name: int,
    error: int,
    pair: Pair,
    trainer: Trainer,
    sink: Sink,  # noqa: F811
    start: Callable[..., Program],  # noqa: F811
) -> None:
    program = start(pair.a, "layers", pair.B4, PORT, user=USER)
    program.says()
    assert layer(program, 1, 0, size, name)["errno"] == error


def test_it_ends_with_the_job(
    pair: Pair,
    trainer: Trainer,
    offering: Daemon,
    sink: Sink,  # noqa: F811
    start: Callable[..., Program],  # noqa: F811
) -> None:
    program = start(pair.a, "layers", pair.B4, PORT, user=USER)
    program.says()
    assert layer(program, 1, 0)["errno"] == 0
    trainer.die()
    eventually(lambda: offering.status()["jobs"] == [], "the job is gone")
    assert layer(program, 1, 13)["errno"] == errno.ENOENT


def test_it_is_not_there_unless_it_is_configured(
    pair: Pair,
    ruled: Daemon,  # noqa: F811
    make_trainer: Callable[..., Trainer],
    sink: Sink,  # noqa: F811
    start: Callable[..., Program],  # noqa: F811
) -> None:
    begin(ruled)
    trainer = make_trainer(ruled.socket, user=USER)
    trainer.job("vgg16", 4)
    program = start(pair.a, "layers", pair.B4, PORT, user=USER)
    program.says()
    assert layer(program, 1, 0)["errno"] == errno.ENOPROTOOPT
    # Jobs that there are already have it, too.
    ruled.hints = "setsockopt = true\n"
    ruled.configure(DEVICE)
    ruled.reload()
    assert layer(program, 1, 0)["errno"] == 0
    ruled.hints = ""
    ruled.configure(DEVICE)
    ruled.reload()
    assert layer(program, 1, 13)["errno"] == errno.ENOPROTOOPT


def test_a_socket_with_data_underway_is_busy(
    pair: Pair,
    trainer: Trainer,
    start: Callable[..., Program],  # noqa: F811
    sink: Sink,  # noqa: F811
) -> None:
    program = start(pair.a, "layers", pair.B4, PORT, user=USER)
    program.says()
    pair.b.ip("link set eth0 down")  # nothing is acknowledged
    program.ask({"send": 1000})
    program.says()
    assert layer(program, 1, 0)["errno"] == errno.EBUSY
    pair.b.ip("link set eth0 up")


def test_all_other_options_are_as_they_were(
    pair: Pair,
    trainer: Trainer,
    sink: Sink,  # noqa: F811
    start: Callable[..., Program],  # noqa: F811
) -> None:
    program = start(pair.a, "layers", pair.B4, PORT, user=USER)
    program.says()
    program.ask({"others": True})
    assert program.says() == {"nodelay": 1, "congestion": "reno", "long": errno.ENOPROTOOPT}


def test_libmercury_uses_it_where_it_is_there(
    pair: Pair,
    offering: Daemon,
    trainer: Trainer,
    sink: Sink,  # noqa: F811
) -> None:
    before = offering.status()
    found = [trainer.open(number, PORT, pair.B4) for number in (0, 12, 13, 15)]
    assert [one["outcome"] for one in found] == [DONE] * 4
    assert [one["mark"] for one in found] == [1 << 16 | band + 1 for band in (0, 0, 1, 2)]
    assert [one["priority"] for one in found] == [1, 1, 2, 3]
    after = offering.status()
    # Of the two messages the second status is one, and its hello the other: nobody else has asked.
    assert after["messages"] == before["messages"] + 2
    assert after["sockets"] == before["sockets"] + 4
    assert trainer.status()["marked"] == 4


def test_libmercury_goes_on_without_it(
    pair: Pair,
    offering: Daemon,
    trainer: Trainer,
    sink: Sink,  # noqa: F811
) -> None:
    offering.hints = ""
    offering.configure(DEVICE)
    offering.reload()
    found = trainer.open(13, PORT, pair.B4)
    assert (found["outcome"], found["mark"]) == (DONE, 1 << 16 | 2)
    (job,) = offering.status()["jobs"]
    assert [one["sockets"] for one in job["classes"]] == [0, 1, 0]


def test_libmercury_asks_if_others_have_other_layers(
    pair: Pair,
    offering: Daemon,
    trainer: Trainer,
    make_trainer: Callable[..., Trainer],
    sink: Sink,  # noqa: F811
) -> None:
    other = make_trainer(offering.socket, user=USER)
    other.job("vgg16", 1)  # the same job, in one class
    assert other.open(13, PORT, pair.B4)["mark"] == 1 << 16 | 1
    assert trainer.open(13, PORT, pair.B4)["mark"] == 1 << 16 | 2


def test_without_cap_bpf_it_says_so(ruled: Daemon) -> None:  # noqa: F811
    ruled.capabilities.remove("bpf")
    ruled.hints = "setsockopt = true\n"
    ruled.configure(DEVICE)
    ruled.start()
    assert "the socket option is not in the kernel: CAP_BPF" in ruled.log()
    assert "CAP_BPF" in ruled.status()["setsockopt"]
