# SPDX-License-Identifier: GPL-2.0
"""
Push-pull between two hosts, each with a daemon of its own: workers and servers without privileges,
whose connections the daemons mark.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator

import pytest

import peers
from lib import tc
from lib.netns import Namespace, Pair

from daemon import Daemon, eventually
from trainer import USER, Trainer

# Two classes: their replies are in bands 0 and 1, their pushes in 2 and 3.
TENSORS = ("first:f32:300000:0:sum", "second:f32:300000:1:sum")
REPLIES, PUSHES = (0, 1), (2, 3)
# One connection each way for each class, and one for control; those of MarkedBy.
CONNECTIONS = 5
DAEMON, PRIORITY = 2, 3
SIZE = 300_000 * 4  # of each tensor, bytes
NOWHERE = "/nowhere/hints.sock"


@pytest.fixture
def other_daemon(pair: Pair, tmp_path: pathlib.Path) -> Iterator[Daemon]:
    """At the second host."""
    folder = tmp_path / "other"
    folder.mkdir()
    daemon = Daemon(pair.b, folder)
    daemon.start()
    yield daemon
    daemon.stop()


class Job:
    """Processes of one user, who has no privileges at all."""

    def __init__(self) -> None:
        self._processes: list[peers.Process] = []
        self.servers: list[peers.Server] = []
        self.workers: list[peers.Worker] = []

    @staticmethod
    def _inside(ns: Namespace) -> list[str]:
        words = ["ip", "netns", "exec", ns.name, "setpriv", "--reuid", str(USER), "--regid", str(USER)]
        return [*words, "--clear-groups", "--inh-caps", "-all", "--bounding-set", "-all"]

    def serve(self, ns: Namespace, address: str, hints: str) -> None:
        server = peers.Server(prefix=self._inside(ns), listen=f"{address}:7700", hints=hints)
        self._processes.append(server)
        self.servers.append(server)

    def join(self, *places: tuple[Namespace, str]) -> None:
        """A worker at each place, whose daemon is at that socket."""
        for rank, (ns, hints) in enumerate(places):
            worker = peers.Worker(
                *(server.address for server in self.servers),
                job="net", rank=rank, workers=len(places), tensors=TENSORS,
                prefix=self._inside(ns), hints=hints,
            )  # fmt: skip
            self._processes.append(worker)
            self.workers.append(worker.joined())

    def rounds(self, count: int = 1) -> None:
        for value in range(1, count + 1):
            for key in ("second", "first"):  # as a backward pass does
                for worker in self.workers:
                    worker.do(f"push {key} {value}")
            for key in ("first", "second"):
                for worker in self.workers:
                    worker.do(f"wait {key}")
                    worker.do(f"check {key} {value * len(self.workers)}")

    def marking(self, rank: int = 0) -> list[int]:
        return [int(word) for word in self.workers[rank].do("marking").split()[:4]]

    def end(self) -> None:
        for process in self._processes:
            process.clean_up()


@pytest.fixture
def job() -> Iterator[Job]:
    made = Job()
    yield made
    made.end()


def sent(ns: Namespace, number: int) -> list[int]:
    """
    Bytes of job NUMBER by band, as the module counts. Acknowledgements go first, in band 0: a few
    per cent of what comes in.
    """
    counted = tc.classes(ns)
    return [counted.get(tc.band(number, band), {"bytes": 0})["bytes"] for band in range(4)]


def all_marked(job: Job, number: int) -> bool:
    return job.marking() == [DAEMON, number, CONNECTIONS, CONNECTIONS]


def test_each_host_has_the_bands_whatever_number_it_gives(
    pair: Pair,
    daemon: Daemon,
    other_daemon: Daemon,
    make_trainer: Callable[..., Trainer],
    job: Job,
) -> None:
    # Somebody else's job has number 1 at the second host.
    make_trainer(other_daemon.socket).job("vgg16", 4)
    job.serve(pair.b, pair.B4, other_daemon.socket)
    job.join((pair.a, daemon.socket))
    assert job.marking() == [DAEMON, 1, CONNECTIONS, CONNECTIONS]
    job.servers[0].logged(r'job "net" is marked by mercuryd, as its job 2')
    job.rounds(3)

    from_worker, from_server = sent(pair.a, 1), sent(pair.b, 2)
    for band in PUSHES:
        assert from_worker[band] >= 3 * SIZE
        assert from_server[band] < SIZE / 2
    for band in REPLIES:
        assert from_server[band] >= 3 * SIZE
        assert from_worker[band] < SIZE / 2
    (known,) = daemon.status()["jobs"]
    assert (known["name"], known["clients"], known["steps"]) == ("net", 1, 3)
    assert [one["sockets"] for one in known["classes"]] == [0, 0, 3, 2]


def test_worker_and_server_of_one_user_on_one_host_are_one_job(
    pair: Pair, daemon: Daemon, job: Job
) -> None:
    job.serve(pair.a, pair.A4, daemon.socket)
    job.serve(pair.b, pair.B4, NOWHERE)
    job.join((pair.a, daemon.socket), (pair.b, NOWHERE))
    job.rounds(2)
    (known,) = daemon.status()["jobs"]
    assert (known["clients"], known["number"]) == (2, 1)
    # Half of each tensor is summed at each host, whose worker is one of two.
    assert min(sent(pair.a, 1)) >= 2 * SIZE // 2


def test_a_daemon_that_is_killed_and_comes_back(pair: Pair, daemon: Daemon, job: Job) -> None:
    job.serve(pair.b, pair.B4, NOWHERE)
    job.join((pair.a, daemon.socket))
    job.rounds()
    daemon.kill()
    before = sent(pair.a, 1)
    job.rounds(2)
    assert job.marking()[0] == PRIORITY
    for band in PUSHES:  # marks are in the sockets
        assert sent(pair.a, 1)[band] - before[band] >= 2 * SIZE
    daemon.start()

    def adopted() -> bool:
        job.rounds()
        return all_marked(job, 1)

    eventually(adopted, "the connections are known again")
    (known,) = daemon.status()["jobs"]
    assert (known["number"], known["clients"]) == (1, 1)


def test_a_daemon_that_comes_late(pair: Pair, daemon: Daemon, job: Job) -> None:
    daemon.kill()
    job.serve(pair.b, pair.B4, NOWHERE)
    job.join((pair.a, daemon.socket))
    job.rounds()
    assert job.marking() == [PRIORITY, 0, CONNECTIONS, 0]
    assert sent(pair.a, 1) == [0, 0, 0, 0]
    daemon.start()

    def adopted() -> bool:
        job.rounds()
        return all_marked(job, 1)

    eventually(adopted, "the connections have their marks")
    before = sent(pair.a, 1)
    job.rounds()
    for band in PUSHES:
        assert sent(pair.a, 1)[band] - before[band] >= SIZE


def test_without_a_daemon_the_qdisc_reads_priorities(pair: Pair, job: Job) -> None:
    for ns in (pair.a, pair.b):
        ns.tc("qdisc add dev eth0 root handle 1: mercury key priority")
    job.serve(pair.b, pair.B4, NOWHERE)
    job.join((pair.a, NOWHERE))
    assert job.marking() == [PRIORITY, 0, CONNECTIONS, 0]
    said = job.servers[0].logged(r'job "net" has SO_PRIORITY only: (.*)')[1]
    assert said == f"no daemon at {NOWHERE}: No such file or directory"
    job.rounds()
    for band in PUSHES:
        assert sent(pair.a, 0)[band] >= SIZE
    for band in REPLIES:
        assert sent(pair.b, 0)[band] >= SIZE
