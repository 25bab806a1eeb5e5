# SPDX-License-Identifier: GPL-2.0
"""Joins that ask for something wrong or too much, and workers that do not agree."""

from __future__ import annotations

import re
from typing import Any

import pytest

import peers
import wire
from conftest import Scene

T = wire.tensor("t", 1000)


def joining(server: peers.Server, /, job: str = "j", **join: Any) -> wire.Control:
    control = wire.Control(wire.connect(server.address))
    control.sock.sendall(wire.preamble(wire.CONTROL))
    control.send(wire.hello(job))
    fields = {"rank": 0, "workers": 1, "tensors": [T]} | join
    control.send(wire.join(0, 1, [T]) | {"pull_marks": [0]} | fields)
    return control


def wrong(what: str) -> str:
    return f"127.0.0.1:PORT sent a control message that is wrong: {what}"


# Whatever the server's limits are.
IMPOSSIBLE: dict[str, tuple[dict[str, Any], str]] = {
    "rank 1 of 1": ({"rank": 1}, "the rank must be 0 to 0 at this server, not 1"),
    "no workers": ({"workers": 0}, "workers must be 1 to 256 at this server, not 0"),
    "rank -1": ({"rank": -1}, wrong('"rank" is not a number of 0 to 4294967295')),
    "rank 2^32": ({"rank": 2**32}, wrong('"rank" is not a number of 0 to 4294967295')),
    "rank 0.5": ({"rank": 0.5}, wrong('"rank" is not a number of 0 to 4294967295')),
    'rank "0"': ({"rank": "0"}, wrong('"rank" is not a number of 0 to 4294967295')),
    "workers 1e30": ({"workers": 1e30}, wrong('"workers" is not a number of 0 to 4294967295')),
    "an unknown order": (
        {"order": "random"},
        wrong('"order": sum order "random" is none of arrival, rank'),
    ),
    "no class": ({"pull_marks": []}, "classes must be 1 to 16 at this server, not 0"),
    "a mark of -1": (
        {"pull_marks": [-1]},
        wrong('"pull_marks" is not a number of 0 to 4294967295'),
    ),
    "a mark of 2^32": (
        {"pull_marks": [2**32]},
        wrong('"pull_marks" is not a number of 0 to 4294967295'),
    ),
    "marks that are a number": ({"pull_marks": 5}, wrong('"pull_marks" is not a list')),
    "tensors that are a number": ({"tensors": 5, "pull_marks": [0]}, wrong('"tensors" is not a list')),
    "a tensor in no class": (
        {"tensors": [wire.tensor("t", 1) | {"class": 1}], "pull_marks": [0]},
        'the class of "t" must be below 1, not 1',
    ),
    "an unknown element type": (
        {"tensors": [T | {"type": "f64"}]},
        wrong('"type": element type "f64" is none of f32, f16, bf16'),
    ),
    "an unknown reduction": (
        {"tensors": [T | {"reduction": "max"}]},
        wrong('"reduction": reduction "max" is none of sum, mean'),
    ),
    "a key of 257 bytes": (
        {"tensors": [T | {"key": "k" * 257}]},
        "a tensor's key has 257 bytes; 256 are allowed",
    ),
    "no elements": (
        {"tensors": [T | {"elements": 0}]},
        '"t" has no range of 0 elements from 0 in 1000',
    ),
    "-1 elements": (
        {"tensors": [T | {"elements": -1}]},
        wrong('"elements" is not a number of 0 to 18446744073709551615'),
    ),
    "a range beyond the tensor": (
        {"tensors": [T | {"offset": 1}]},
        '"t" has no range of 1000 elements from 1 in 1000',
    ),
    "a range that wraps around": (
        {"tensors": [T | {"offset": 2**64 - 1}]},
        '"t" has no range of 1000 elements from 18446744073709551615 in 1000',
    ),
    "2^64 - 1 elements": (
        {"tensors": [wire.tensor("t", 2**64 - 1)]},
        'job "j" needs 18446744073709551615 bytes of memory; of the 17179869184 of this server, '
        "N are in use",
    ),
    "2^62 elements of four bytes, twice": (
        {"tensors": [wire.tensor("t", 2**62), wire.tensor("u", 2**62)]},
        'job "j" needs 18446744073709551615 bytes of memory; of the 17179869184 of this server, '
        "N are in use",
    ),
}


@pytest.mark.parametrize("case", IMPOSSIBLE.values(), ids=IMPOSSIBLE.keys())
def test_impossible_join(
    scene: Scene,
    server: peers.Server,
    case: tuple[dict[str, Any], str],
    request: pytest.FixtureRequest,
) -> None:
    join, expected = case
    said = re.sub(r"(?<=server, )\d+(?= are)", "N", joining(server, **join).failure())
    scene.saw("the worker", said, expected, f"join: {request.node.callspec.id}")
    scene.worker(server).joined().round(1, 1)  # it has left nothing behind


@pytest.mark.parametrize(
    ("options", "join", "expected"),
    [
        ({"max_workers": 4}, {"workers": 5}, "workers must be 1 to 4 at this server, not 5"),
        (
            {"max_classes": 2},
            {"pull_marks": [0, 0, 0]},
            "classes must be 1 to 2 at this server, not 3",
        ),
        (
            {"max_tensors": 1},
            {"tensors": [T, wire.tensor("u", 1)]},
            "tensors must be 0 to 1 at this server, not 2",
        ),
        (
            {"max_memory": 100_000},
            {"tensors": [wire.tensor("t", 2**40)]},
            'job "j" needs N bytes of memory; of the 100000 of this server, 0 are in use',
        ),
    ],
    ids=["workers", "classes", "tensors", "memory"],
)
def test_more_than_the_limit(
    scene: Scene,
    options: dict[str, int],
    join: dict[str, Any],
    expected: str,
    request: pytest.FixtureRequest,
) -> None:
    server = scene.server(**options)
    fault = f"join: more {request.node.callspec.id} than the server's limit"
    # What the server needs beside the sums themselves is its own affair.
    said = re.sub(r"(?<=needs )4398\d+(?= bytes)", "N", joining(server, **join).failure())
    scene.saw("the worker", said, expected, fault)
    scene.worker(server).joined().round(1, 1)


def test_memory_of_all_jobs(scene: Scene) -> None:
    """The limit of memory is that of all jobs together, and comes back with their end"""
    server = scene.server(max_memory=100_000)
    first = scene.worker(server, job="first", tensors=["t:f32:15000:0:sum"]).joined()
    big = {"job": "second", "tensors": ["t:f32:12000:0:sum"]}
    error = scene.worker(server, **big).refused()
    used = error.rsplit("server, ")[1].split()[0]
    assert 60_000 <= int(used) < 62_000
    needed = error.split("needs ")[1].split()[0]
    scene.saw(
        "the worker",
        error,
        f'server 127.0.0.1:7000: job "second" needs {needed} bytes of memory; of the 100000 of '
        f"this server, {used} are in use",
    )
    first.round(1, 1)
    first.leave()
    scene.worker(server, **big).joined().round(1, 1)


def test_too_many_jobs(scene: Scene) -> None:
    """One job more than the server's limit"""
    server = scene.server(max_jobs=1)
    first = scene.worker(server, job="first").joined()
    scene.saw(
        "the worker",
        scene.worker(server).refused(),
        "server 127.0.0.1:7000: this server has 1 jobs, and no more are allowed",
    )
    first.leave()
    scene.worker(server).joined().round(1, 1)


FIRST = {
    "rank": 0,
    "workers": 2,
    "tensors": [T, wire.tensor("u", 7, **{"class": 1})],
    "pull_marks": [0, 0],
}


def tensors(**other: Any) -> list[dict[str, Any]]:
    return [T | other, FIRST["tensors"][1]]


def has_tensor(own: str) -> str:
    return (
        f'worker 1 of job "j" has the tensor {own}, but the first one to join had '
        '"t" (1000 of 1000 elements of f32 from 0, sum, class 0)'
    )


DISAGREEMENTS: dict[str, tuple[dict[str, Any], str]] = {
    "the number of workers": (
        {"workers": 3},
        'worker 1 of job "j" has workers = 3, but the first one to join had 2',
    ),
    "the number of servers": (
        {"servers": 2},
        'worker 1 of job "j" has servers = 2, but the first one to join had 1',
    ),
    "which server this is": (
        {"server": 1},
        'worker 1 of job "j" has this server as number 1, but the first one to join had 0',
    ),
    "the order": (
        {"order": "rank"},
        'worker 1 of job "j" has order = rank, but the first one to join had arrival',
    ),
    "hints": (
        {"hints": False},
        'worker 1 of job "j" has hints = false, but the first one to join had true',
    ),
    "the number of classes": (
        {"pull_marks": [0, 0, 0]},
        'worker 1 of job "j" has classes = 3, but the first one to join had 2',
    ),
    "the number of tensors": (
        {"tensors": [T], "pull_marks": [0, 0]},
        'worker 1 of job "j" has tensors = 1, but the first one to join had 2',
    ),
    "a key": (
        {"tensors": tensors(key="T")},
        has_tensor('"T" (1000 of 1000 elements of f32 from 0, sum, class 0)'),
    ),
    "an element type": (
        {"tensors": tensors(type="f16")},
        has_tensor('"t" (1000 of 1000 elements of f16 from 0, sum, class 0)'),
    ),
    "a reduction": (
        {"tensors": tensors(reduction="mean")},
        has_tensor('"t" (1000 of 1000 elements of f32 from 0, mean, class 0)'),
    ),
    "a class": (
        {"tensors": tensors(**{"class": 1})},
        has_tensor('"t" (1000 of 1000 elements of f32 from 0, sum, class 1)'),
    ),
    "a length": (
        {"tensors": tensors(elements=999)},
        has_tensor('"t" (999 of 1000 elements of f32 from 0, sum, class 0)'),
    ),
    "a range's place": (
        {"tensors": tensors(total=2000, offset=1000)},
        has_tensor('"t" (1000 of 2000 elements of f32 from 1000, sum, class 0)'),
    ),
    "the rank: it is taken": (
        {"rank": 0},
        'worker 0 (127.0.0.1:PORT) of job "j" is there already',
    ),
}


@pytest.mark.parametrize("case", DISAGREEMENTS.values(), ids=DISAGREEMENTS.keys())
def test_disagreement(
    scene: Scene,
    server: peers.Server,
    case: tuple[dict[str, Any], str],
    request: pytest.FixtureRequest,
) -> None:
    """The second worker of a job is refused, and the job waits for a right one."""
    join, expected = case
    first = scene.raw(server, **FIRST)
    fields = FIRST | {"rank": 1} | join
    fault = f"workers disagree about {request.node.callspec.id}"
    scene.saw("the second worker", joining(server, **fields).failure(), expected, fault)
    second = scene.raw(server, **(FIRST | {"rank": 1}))
    for raw in (first, second):
        raw.push_whole(0, 1, wire.floats(1, 1000))
    for raw in (first, second):
        assert raw.pull_bytes(0, 1, 4000) == wire.floats(2, 1000)


def test_two_workers_of_one_rank(scene: Scene, server: peers.Server) -> None:
    """A second worker of the same rank"""
    first = scene.worker(server, rank=0, workers=2).joined()
    scene.saw(
        "the second one",
        scene.worker(server, rank=0, workers=2).refused(),
        'server 127.0.0.1:7000: worker 0 (127.0.0.1:PORT) of job "j" is there already',
    )
    second = scene.worker(server, rank=1, workers=2).joined()
    for worker in (first, second):
        worker.do("push t 1")
    for worker in (first, second):
        worker.do("wait t")
        worker.do("check t 2")


def test_a_rank_that_has_left(scene: Scene, server: peers.Server) -> None:
    """A worker that comes back to a job that it has left"""
    scene.worker(server, rank=0, workers=2).joined().leave()
    scene.saw(
        "the worker",
        scene.worker(server, rank=0, workers=2).refused(),
        'server 127.0.0.1:7000: worker 0 (127.0.0.1:PORT) of job "j" has left already',
    )


def test_one_server_twice(scene: Scene, server: peers.Server) -> None:
    """A server that is named twice"""
    scene.saw(
        "the worker",
        scene.worker(server, server).refused(),
        'server 127.0.0.1:7000: worker 0 of job "j" has this server as number 1, but the first '
        "one to join had 0",
    )


# Of a worker that has joined.
LATER_WORDS: dict[str, tuple[Any, str]] = {
    "a second hello": (wire.hello(), "sent a control message that has no place here"),
    "a second join": (wire.join(0, 1, [T]), "sent a control message that has no place here"),
    "a welcome": (
        {"type": "welcome", "session": "0" * 32},
        "sent a control message that has no place here",
    ),
    "an unknown type": (
        {"type": "x"},
        'sent a control message that is wrong: unknown type "x"',
    ),
    "a failure of its own": ({"type": "failure", "message": "out of ideas"}, "gave up: out of ideas"),
}


@pytest.mark.parametrize("case", LATER_WORDS.values(), ids=LATER_WORDS.keys())
def test_wrong_words_of_a_worker(
    scene: Scene,
    server: peers.Server,
    case: tuple[dict[str, Any], str],
    request: pytest.FixtureRequest,
) -> None:
    words, expected = case
    raw = scene.raw(server, rank=0, workers=2, tensors=[T])
    worker = scene.worker(server, rank=1, workers=2).joined()
    worker.do("push t 1")
    raw.control.send(words)
    full = f'worker 0 (127.0.0.1:PORT) of job "j" {expected}'
    fault = f"a worker says: {request.node.callspec.id}"
    scene.saw("another worker", worker.error("wait t"), f"server 127.0.0.1:7000: {full}", fault)
    assert scene.plain(raw.control.failure()) == full
