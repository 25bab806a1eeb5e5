# SPDX-License-Identifier: GPL-2.0
"""Workers and servers that are killed or stopped, in every phase of a job."""

from __future__ import annotations

import pathlib
import struct

import pytest

import peers
import wire
from conftest import Scene

ELEMENTS = 1_000_000
SHAPE = f"t:f32:{ELEMENTS}:0:sum"
RANGE = [wire.tensor("t", ELEMENTS)]
PIECES = (1.0, 10.0, 100.0)  # of the pacer, the victim and the witness
TOTAL = sum(PIECES)

PHASES = ("joined", "within a push", "within a pull", "between rounds")


def unsent(server: peers.Server) -> int:
    """Bytes underway to SERVER that it has not taken."""
    port = int(server.address.rsplit(":", 1)[1])
    total = 0
    for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if int(fields[2].split(":")[1], 16) == port:
            total += int(fields[4].split(":")[0], 16)
        if int(fields[1].split(":")[1], 16) == port:
            total += int(fields[4].split(":")[1], 16)
    return total


def next_failure(worker: peers.Worker) -> str:
    """Of a round that is begun now: the job has ended already, or ends meanwhile."""
    worker.tell("push t 1")
    answer = worker.line()
    if answer.startswith("error "):
        return answer.removeprefix("error ")
    return worker.error("wait t")


class Job:
    """
    Three workers: one by hand that sets the pace, a victim and a witness, the
    latter two in the given phase. Their sums are in the order of the ranks when a
    push is to be interrupted, so that nothing but a socket's buffer takes it.
    """

    def __init__(self, scene: Scene, server: peers.Server, phase: str, **times: int) -> None:
        order = "rank" if phase == "within a push" else "arrival"
        # The raw one does not ping, so it has JOIN_MS.
        self.pacer = scene.raw(server, workers=3, tensors=RANGE, order=order)
        self.victim, self.witness = (
            scene.worker(server, rank=i, workers=3, tensors=[SHAPE], order=order, **times).joined()
            for i in (1, 2)
        )
        if phase != "joined":
            for worker, value in ((self.victim, PIECES[1]), (self.witness, PIECES[2])):
                worker.do(f"push t {value}")
        if phase == "within a push":
            peers.wait_until(lambda: unsent(server) > 100_000, "a push underway")
        elif phase == "within a pull":
            self._push(0, ELEMENTS // 2)
            self._pull(ELEMENTS // 2)
        elif phase == "between rounds":
            self._push(0, ELEMENTS)
            self._pull(ELEMENTS)
            for worker in (self.victim, self.witness):
                worker.do("wait t")
                worker.do(f"check t {TOTAL}")
            self.witness.do(f"push t {PIECES[2]}")
        self.phase = phase

    def _push(self, begin: int, end: int) -> None:
        header = wire.frame(0, 1, 4 * ELEMENTS) if begin == 0 else b""
        self.pacer.push[0].sendall(header + wire.floats(PIECES[0], ELEMENTS)[4 * begin : 4 * end])

    def _pull(self, elements: int) -> None:
        got = self.pacer.pull_bytes(0, 1, 4 * elements)
        assert got == wire.floats(TOTAL, elements)

    def failure_at(self, worker: peers.Worker) -> str:
        """What WORKER sees, in whatever it waits for or does next."""
        idle = self.phase == "joined" or (self.phase, worker) == ("between rounds", self.victim)
        return next_failure(worker) if idle else worker.error("wait t")


@pytest.mark.parametrize("phase", PHASES)
def test_worker_killed(scene: Scene, server: peers.Server, phase: str) -> None:
    job = Job(scene, server, phase)
    job.victim.kill()
    expected = 'worker 1 (127.0.0.1:PORT) of job "j" closed the connection'
    fault = f"kill -9 of a worker, {phase}"
    scene.saw(
        "another worker",
        job.failure_at(job.witness),
        f"server 127.0.0.1:7000: {expected}",
        fault,
    )
    assert scene.plain(job.pacer.control.failure()) == expected
    assert server.logged(expected.replace("(", r"\(").replace(")", r"\)").replace("PORT", r"\d+"))


@pytest.mark.parametrize("phase", PHASES)
def test_worker_stopped(
    scene: Scene, quick_to_suspect: peers.Server, phase: str
) -> None:
    job = Job(scene, quick_to_suspect, phase)
    job.victim.stop()
    expected = 'server 127.0.0.1:7000: worker 1 (127.0.0.1:PORT) of job "j" has been silent for 2 s'
    fault = f"SIGSTOP of a worker, {phase}"
    scene.saw("another worker", job.failure_at(job.witness), expected, fault)
    job.victim.resume()
    scene.saw("the worker, when it goes on", job.failure_at(job.victim), expected, fault)


@pytest.mark.parametrize("phase", PHASES)
def test_server_killed(scene: Scene, phase: str) -> None:
    server = scene.server()
    job = Job(scene, server, phase)
    server.kill()
    for worker in (job.victim, job.witness):
        scene.saw(
            "a worker",
            job.failure_at(worker),
            "server 127.0.0.1:7000 closed the connection",
            f"kill -9 of a server, {phase}",
        )


@pytest.mark.parametrize("phase", PHASES)
def test_server_stopped(scene: Scene, phase: str) -> None:
    server = scene.server()
    job = Job(scene, server, phase, silence_ms=2000)
    server.stop()
    for worker in (job.victim, job.witness):
        scene.saw(
            "a worker",
            job.failure_at(worker),
            "server 127.0.0.1:7000 has been silent for 2000 ms",
            f"SIGSTOP of a server, {phase}",
        )


def test_worker_killed_before_it_joins(scene: Scene) -> None:
    """A worker that never joins"""
    waiting = scene.worker(scene.server(join_ms=2000), rank=0, workers=2).joined()
    waiting.do("push t 1")
    scene.saw(
        "a worker that waits for it",
        waiting.error("wait t"),
        'server 127.0.0.1:7000: worker 1 of job "j" has not joined within 2 s',
    )


def test_worker_killed_after_hello(scene: Scene, server: peers.Server) -> None:
    """A worker that dies before it joins: nobody sees it, and it can come again"""
    waiting = scene.worker(server, rank=0, workers=2).joined()
    half = wire.Control(wire.connect(server.address))
    half.sock.sendall(wire.preamble(wire.CONTROL))
    half.send(wire.hello())
    half.await_pong()
    wire.reset(half.sock)
    server.logged(r"^127\.0\.0\.1:\d+ closed the connection$")
    again = scene.worker(server, rank=1, workers=2).joined()
    for worker in (waiting, again):
        worker.do("push t 1")
    for worker in (waiting, again):
        worker.do("wait t")
        worker.do("check t 2")


def test_worker_killed_right_after_its_join(scene: Scene, server: peers.Server) -> None:
    """A worker that dies before it is welcomed"""
    waiting = scene.worker(server, rank=0, workers=2).joined()
    waiting.do("push t 1")
    half = wire.Control(wire.connect(server.address))
    half.sock.sendall(wire.preamble(wire.CONTROL))
    half.send(wire.hello())
    half.await_pong()
    # Stopped, the server finds the join and the end together.
    server.stop()
    half.send(wire.join(1, 2, [wire.tensor("t", 1000)]))
    wire.reset(half.sock)
    server.resume()
    scene.saw(
        "another worker",
        waiting.error("wait t"),
        'server 127.0.0.1:7000: worker 1 (127.0.0.1:PORT) of job "j" closed the connection',
    )


def test_server_killed_before_the_join(scene: Scene) -> None:
    """A server that is not there"""
    with wire.socket.create_server(("127.0.0.1", 0)) as taken:
        nowhere = wire.name_of(taken)
    scene.servers.append(nowhere)
    scene.saw(
        "a worker",
        scene.worker(nowhere, join_ms=1000).refused(),
        "server 127.0.0.1:7000: cannot connect to 127.0.0.1:7000: Connection refused",
    )


def test_server_stopped_before_the_join(scene: Scene) -> None:
    """A server that is stopped before a worker joins"""
    server = scene.server()
    server.stop()
    scene.saw(
        "a worker",
        scene.worker(server, join_ms=1000).refused(),
        "server 127.0.0.1:7000: does not answer the join: timed out",
    )


def test_server_missing_among_several(scene: Scene, server: peers.Server) -> None:
    """One of two servers that is not there, and the other one's waiting workers"""
    with wire.socket.create_server(("127.0.0.1", 0)) as taken:
        nowhere = wire.name_of(taken)
    scene.servers.append(nowhere)
    raw = scene.raw(server, rank=1, workers=2, tensors=[wire.tensor("t", 500, total=1000)], servers=2)
    expected = "server 127.0.0.1:7001: cannot connect to 127.0.0.1:7001: Connection refused"
    scene.saw(
        "a worker",
        scene.worker(server, nowhere, rank=0, workers=2, join_ms=1000).refused(),
        expected,
    )
    scene.saw(
        "another worker, at the server that is there",
        raw.control.failure(),
        f'worker 0 (127.0.0.1:PORT) of job "j" gave up: {expected}',
    )


def test_late_server(scene: Scene) -> None:
    """A server that comes up later than the other one's silence: no error"""
    with wire.socket.create_server(("127.0.0.1", 0)) as taken:
        late = wire.name_of(taken)
    patient = scene.server(silence_ms=500)
    workers = [scene.worker(patient, late, rank=i, workers=2, silence_ms=2000) for i in (0, 1)]
    patient.logged("worker 0 .* has joined")
    patient.logged("worker 1 .* has joined")
    # Three times its silence go by at the server that is there.
    for _ in range(3):
        with wire.connect(patient.address) as idle:
            assert wire.receive(idle, 1) == b""
    scene.server(listen=late)
    for worker in workers:
        worker.joined()
    for worker in workers:
        worker.do("push t 1")
    for worker in workers:
        worker.do("wait t")
        worker.do("check t 2")


@pytest.mark.parametrize("role", ["worker", "server"])
def test_short_sleep_is_forgiven(scene: Scene, role: str) -> None:
    """One that sleeps longer than its own silence, but not than the others': no error"""
    server = scene.server(silence_ms=1000 if role == "server" else 30_000)
    worker = scene.worker(server, silence_ms=1000 if role == "worker" else 30_000).joined()
    worker.round(1, 1)
    sleeper = worker if role == "worker" else server
    sleeper.stop()
    # A second server of the same silence tells when the time is over.
    clock = scene.server(silence_ms=1500)
    with wire.connect(clock.address) as idle:
        assert wire.receive(idle, 1) == b""
    sleeper.resume()
    worker.round(2, 2)
    worker.round(3, 3)
    worker.leave()


def test_callback_learns_of_a_death(scene: Scene, server: peers.Server) -> None:
    """kill -9 of a worker while another one waits with a callback"""
    raw = scene.raw(server, rank=0, workers=2, tensors=RANGE)
    worker = scene.worker(server, rank=1, workers=2, tensors=[SHAPE]).joined()
    worker.do("call t 1")
    raw.close()
    expected = (
        'server 127.0.0.1:7000: worker 0 (127.0.0.1:PORT) of job "j" closed the connection'
    )
    scene.saw("the callback", worker.error("called t"), expected)
    scene.saw("a later push_pull", worker.error("push t 1"), expected)


def test_a_silent_server_among_several(scene: Scene, server: peers.Server) -> None:
    """SIGSTOP of one of two servers"""
    other = scene.server()
    raw = scene.raw(server, rank=1, workers=2, tensors=[wire.tensor("t", 500, total=1000)], servers=2)
    raw_at_other = scene.raw(
        other, rank=1, workers=2, servers=2, server=1,
        tensors=[wire.tensor("t", 500, total=1000, offset=500)],
    )
    worker = scene.worker(server, other, rank=0, workers=2, silence_ms=2000).joined()
    other.stop()
    expected = "server 127.0.0.1:7001 has been silent for 2000 ms"
    scene.saw("a worker", next_failure(worker), expected)
    scene.saw(
        "another worker, from the server that goes on",
        raw.control.failure(),
        f'worker 0 (127.0.0.1:PORT) of job "j" gave up: {expected}',
    )
    del raw_at_other


def test_server_terminated(scene: Scene, server: peers.Server) -> None:
    """SIGTERM to a server, within a pull"""
    job = Job(scene, server, "within a pull")
    server.terminate()
    for worker in (job.victim, job.witness):
        scene.saw(
            "a worker",
            job.failure_at(worker),
            "server 127.0.0.1:7000: the server was stopped",
        )


def test_server_restarted(scene: Scene) -> None:
    """A server that is killed and started again accepts the same job"""
    server = scene.server()
    raw = scene.raw(server, workers=2, tensors=[wire.tensor("t", 1000)])
    worker = scene.worker(server, rank=1, workers=2).joined()
    worker.do("push t 1")
    server.kill()
    worker.error("wait t")
    raw.close()
    server = scene.server(listen=server.address)
    workers = scene.workers(server, count=2)
    for again in workers:
        again.do("push t 3")
    for again in workers:
        again.do("wait t")
        again.do("check t 6")


def test_job_comes_again(scene: Scene, server: peers.Server) -> None:
    """A job that failed is accepted again, by the same server"""
    for value in (1, 2, 3):
        first, second = scene.workers(server, count=2)
        first.do(f"push t {value}")
        second.do(f"push t {value}")
        first.do("wait t")
        first.do(f"check t {2 * value}")
        first.do(f"push t {value}")
        second.kill()
        first.error("wait t")


def test_cut_element_is_not_in_the_next_job(scene: Scene, server: peers.Server) -> None:
    """A worker that dies within an element leaves nothing behind"""
    shape = [wire.tensor("t", 1000)]
    for _ in range(2):
        raw = scene.raw(server, workers=1, tensors=shape)
        raw.push[0].sendall(wire.frame(0, 1, 4000) + struct.pack("<f", 1e30) * 3 + b"\xff\xff\xff")
        raw.close()
        server.logged("of job \"j\" closed the connection")
        server.log.clear()
    scene.worker(server).joined().round(5, 5)


