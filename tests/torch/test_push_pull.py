# SPDX-License-Identifier: GPL-2.0
"""DDP through mercury-server, and the binding of its library."""

from __future__ import annotations

import ctypes
import pathlib
import threading
from collections.abc import Iterator

import numpy
import pytest

import scenarios
from daemon import Daemon
from mercury import transport
from mercury.transport import Element, Error, MarkedBy, Order, Reduction, Worker
from ranks import Failed, Job, run
from server import LIBRARY, Server

STEPS = 50


@pytest.fixture(autouse=True)
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("MERCURY_TRANSPORT_LIBRARY", str(LIBRARY))
    transport._library.cache_clear()
    yield
    transport._library.cache_clear()


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.kill()


def test_a_worker_alone_gets_back_what_it_pushed(server: Server) -> None:
    worker = Worker("alone", 0, 1)
    worker.add_server(server.address)
    worker.set_order(Order.RANK)
    sums = worker.add_tensor("sums", Element.F32, 1000, 0, Reduction.SUM)
    halves = worker.add_tensor("halves", Element.F16, 10, 1)
    worker.set_hints(True, "/nowhere/hints.sock")
    worker.join()
    marking = worker.marking()
    assert (marking.by, marking.connections, marking.marked) == (MarkedBy.PRIORITY, 5, 0)
    assert "/nowhere/hints.sock" in marking.why
    values = (ctypes.c_float * 1000)(*range(1000))
    assert worker.wait(sums, worker.push_pull(sums, ctypes.addressof(values), 4000))
    assert list(values) == list(range(1000))
    data = ctypes.create_string_buffer(20)
    heard: list[str | None] = []
    called = threading.Event()
    worker.push_pull_then(
        halves, ctypes.addressof(data), 20, lambda error: (heard.append(error), called.set())
    )
    assert called.wait(60)
    assert heard == [None]
    worker.close()
    worker.close()
    with pytest.raises(Error, match="closed"):
        worker.join()


def test_what_the_library_refuses_is_told(server: Server) -> None:
    worker = Worker("refused", 0, 1)
    with pytest.raises(Error, match="add_server|server"):
        worker.join()
    worker.add_server(server.address)
    index = worker.add_tensor("x", Element.F32, 4, 0)
    worker.join()
    data = (ctypes.c_float * 4)()
    with pytest.raises(Error):
        worker.push_pull(index, ctypes.addressof(data), 12)
    with pytest.raises(Error):
        worker.push_pull_then(index + 1, ctypes.addressof(data), 16, lambda _: None)
    worker.close()


def test_a_library_that_is_not_there_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    monkeypatch.setenv("MERCURY_TRANSPORT_LIBRARY", str(tmp_path / "none.so"))
    with pytest.raises(Error, match="cannot be loaded.*none.so"):
        Worker("x", 0, 1)
    monkeypatch.delenv("MERCURY_TRANSPORT_LIBRARY")
    monkeypatch.setattr(transport.ctypes.util, "find_library", lambda _: None)
    with pytest.raises(Error, match="not installed"):
        Worker("x", 0, 1)


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_it_gives_the_weights_of_plain_ddp(daemon: Daemon, server: Server, optimizer: str) -> None:
    """Two terms have one sum, so no bit may differ."""
    plain = run(2, scenarios.train_ddp, "Attention", optimizer, STEPS, False)
    found = run(
        2, scenarios.train_push_pull, "Attention", optimizer, STEPS, [server.address], daemon=daemon.socket
    )
    for rank in range(2):
        for name, value in plain[rank].items():
            assert numpy.array_equal(found[rank][name], value), name


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_the_same_with_four_ranks_and_two_servers(server: Server, optimizer: str) -> None:
    """gloo adds up four terms in another order."""
    other = Server()
    addresses = [server.address, other.address]
    plain = run(4, scenarios.train_ddp, "Recurrent", optimizer, STEPS, False)
    found = run(4, scenarios.train_push_pull, "Recurrent", optimizer, STEPS, addresses)
    for rank in range(4):
        for name, value in plain[0].items():
            numpy.testing.assert_allclose(found[rank][name], value, 1e-4, 1e-5, err_msg=name)
            assert numpy.array_equal(found[rank][name], found[0][name]), name
    other.kill()


def test_a_server_that_dies_ends_the_training(server: Server) -> None:
    job = Job(2, scenarios.train_push_pull, "Attention", "sgd", 10**6, [server.address])
    for rank in range(2):
        assert job.hear(rank) == "training"
    server.kill()
    for rank in range(2):
        what, why = job.outcome(rank)
        assert what == "failed" and "push-pull" in why, why
    job.end()


def test_no_server_is_an_error() -> None:
    with pytest.raises(Failed, match="127.0.0.1:9"):
        run(2, scenarios.train_push_pull, "Attention", "sgd", 1, ["127.0.0.1:9"])
