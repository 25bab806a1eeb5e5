# SPDX-License-Identifier: GPL-2.0
"""From hints to packets: what a capture and the module itself say about it."""

from __future__ import annotations

import pathlib
import socket
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from lib import tc
from lib.capture import TCP_SYN, Capture, Packet
from lib.netns import Pair

from daemon import Daemon, eventually
from trainer import DONE, FALLBACK, PORT, Sink, Trainer

CONNECTED, ALONE = 0, 1

# VGG-16 in four classes are three: the convolutions, fc6, and the others.
CLASS_OF_LAYER = {0: 0, 12: 0, 13: 1, 14: 2, 15: 2}
# Eight sockets: four for the convolutions, two for each of the others.
LAYERS = [0, 0, 12, 12, 13, 13, 14, 15]

BULK = 6 << 20
BURST = 12_000  # less than TCP's first window


@pytest.fixture
def sink(pair: Pair) -> Iterator[Sink]:
    sink = Sink(pair.b)
    yield sink
    sink.close()


def mark_of(job: int, layer: int) -> int:
    return job << 16 | CLASS_OF_LAYER[layer] + 1


def opened(trainer: Trainer, pair: Pair, layers: list[int] = LAYERS) -> list[dict]:
    return [trainer.open(layer, PORT, pair.B4) for layer in layers]


def rate(daemon: Daemon, pair: Pair, rate: str) -> None:
    """Through the daemon: it would put back what tc changes."""
    daemon.configure(f'[[device]]\nname = "eth0"\nrate = "{rate}"\nrescue = 0\n')
    daemon.reload()
    said = f"rate {rate.replace('k', 'K').replace('m', 'M')}"
    eventually(lambda: said in tc.qdisc_text(pair.a), said)


def from_trainer(wire: Capture) -> list[Packet]:
    return [p for p in wire.read() if p.dport == PORT]


def test_an_unprivileged_program_has_its_sockets_marked(
    pair: Pair, daemon: Daemon, sink: Sink, make_trainer: Callable[..., Trainer]
) -> None:
    trainer = make_trainer(daemon.socket)
    assert trainer.job("vgg16", 4) == DONE
    assert trainer.status()["state"] == CONNECTED
    for layer, found in zip(LAYERS, opened(trainer, pair)):
        assert found["outcome"] == DONE
        assert found["mark"] == mark_of(1, layer)
        assert found["priority"] == CLASS_OF_LAYER[layer] + 1
    assert trainer.mark_it_yourself(0) == "PermissionError"
    (job,) = daemon.status()["jobs"]
    assert [one["sockets"] for one in job["classes"]] == [4, 2, 2]


def test_the_marks_decide_the_order_on_the_wire_and_the_module_agrees_to_the_packet(
    pair: Pair, wire: Capture, daemon: Daemon, sink: Sink, make_trainer: Callable[..., Trainer]
) -> None:
    trainer = make_trainer(daemon.socket)
    trainer.job("vgg16", 4)
    ports = {found["port"]: layer for layer, found in zip(LAYERS, opened(trainer, pair))}
    class_of_port = {port: CLASS_OF_LAYER[layer] for port, layer in ports.items()}
    # So slow that everything is there before a handful of packets has left.
    rate(daemon, pair, "2kbit")
    # As in a backward pass: the last layers are ready first. No more than TCP sends at once.
    for index in reversed(range(4, 8)):
        trainer.send(index, BURST)
    eventually(lambda: tc.qdisc(pair.a)["qlen"] >= 24, "the bulk waits")
    before = tc.qdisc(pair.a)["qlen"]
    for index in range(4):
        trainer.send(index, BURST)
    eventually(lambda: tc.qdisc(pair.a)["qlen"] >= before + 24, "the urgent waits behind it")
    rate(daemon, pair, "100mbit")
    trainer.sent()
    eventually(lambda: sink.received == 8 * BURST, "everything has arrived")
    eventually(lambda: tc.qdisc(pair.a)["qlen"] == 0, "nothing waits")

    packets = from_trainer(wire)
    data = [class_of_port[p.sport] for p in packets if p.tcp_payload]
    first, last = data.index(0), len(data) - data[::-1].index(0)
    assert [c for c in data[first:last] if c != 0] == []
    assert sorted(data[last:]) == data[last:], "then fc6, then what is needed last"
    assert len(data[last:]) > len(data) / 3, "the bulk was there, and waited"

    on_the_wire = Counter(0 if p.is_pure_ack else class_of_port[p.sport] for p in packets)
    counted = tc.classes(pair.a)
    for number in range(3):
        assert counted[tc.band(1, number)]["packets"] == on_the_wire[number]
        assert counted[tc.band(1, number)]["drops"] == 0
    assert counted[tc.job(1)]["packets"] == len(packets)


def test_the_first_packet_of_a_connection_has_the_mark(
    pair: Pair, wire: Capture, daemon: Daemon, sink: Sink, make_trainer: Callable[..., Trainer]
) -> None:
    trainer = make_trainer(daemon.socket)
    trainer.job("vgg16", 4)
    opened(trainer, pair, [13])
    syns = [p for p in from_trainer(wire) if p.tcp_flags & TCP_SYN]
    assert len(syns) == 1
    assert tc.classes(pair.a)[tc.band(1, 1)]["packets"] >= 1


def test_deadlines_are_in_the_kernel_while_the_job_lives(
    pair: Pair, daemon: Daemon, sink: Sink, make_trainer: Callable[..., Trainer]
) -> None:
    trainer = make_trainer(daemon.socket)
    trainer.job("vgg16", 4)
    opened(trainer, pair)
    (job,) = daemon.status()["jobs"]
    # fc6 is reached when 13 convolutions have gone backwards (13 ms) and forwards (6.5 ms).
    assert [one["deadline_ns"] for one in job["classes"]] == [1000, 19_500_000, 19_800_000]

    def deadline(band: int) -> str:
        return tc.classes(pair.a)[tc.band(1, band)].get("deadline", "100ms")

    eventually(lambda: deadline(0) == "1us", "the first band has the shortest deadline")
    assert deadline(1) == "19500us"
    trainer.die()
    eventually(lambda: deadline(1) == "100ms", "the deadlines are as before")
    assert daemon.status()["jobs"] == []


def test_jobs_of_two_users_are_apart(
    pair: Pair, daemon: Daemon, sink: Sink, make_trainer: Callable[..., Trainer]
) -> None:
    one, other = make_trainer(daemon.socket), make_trainer(daemon.socket, user=64003)
    one.job("same name", 4)
    other.job("same name", 4)
    assert [t.status()["job"] for t in (one, other)] == [1, 2]
    second = make_trainer(daemon.socket)  # another process of the first
    second.job("same name", 4)
    assert second.status()["job"] == 1


def test_without_a_daemon_there_are_priorities(
    pair: Pair, daemon: Daemon, sink: Sink, make_trainer: Callable[..., Trainer]
) -> None:
    daemon.stop()
    trainer = make_trainer(daemon.socket)
    assert trainer.job("vgg16", 4) == FALLBACK
    status = trainer.status()
    assert status["state"] == ALONE and "No such file" in status["why"]
    for layer, found in zip(LAYERS, opened(trainer, pair)):
        assert found["outcome"] == FALLBACK
        assert (found["mark"], found["priority"]) == (0, CLASS_OF_LAYER[layer] + 1)


def test_a_killed_daemon_loses_no_packet_and_no_mark(
    pair: Pair, wire: Capture, daemon: Daemon, sink: Sink, make_trainer: Callable[..., Trainer]
) -> None:
    # So slow that everything waits until there is a daemon again, however long that takes.
    daemon.configure('[[device]]\nname = "eth0"\nrate = "10mbit"\n')
    daemon.reload()
    eventually(lambda: "rescue 10%" in tc.qdisc_text(pair.a), "starved bands are rescued")
    trainer = make_trainer(daemon.socket)
    trainer.job("vgg16", 4)
    opened(trainer, pair)
    for index in range(8):
        trainer.send(index, BULK)
    eventually(lambda: tc.qdisc(pair.a)["backlog"] > 100_000, "the qdisc is busy")
    daemon.kill()
    assert [trainer.look(i)["mark"] for i in range(8)] == [mark_of(1, layer) for layer in LAYERS]
    daemon.start()
    # Under load: no socket is idle, and none needs to be.
    eventually(
        lambda: trainer.step() == DONE and trainer.status()["state"] == CONNECTED,
        "the job is adopted again",
    )
    assert trainer.status()["job"] == 1
    assert trainer.status()["marked"] == 8
    assert daemon.status()["sockets"] == 0  # nothing had to be marked again
    assert tc.qdisc(pair.a)["backlog"] > 0, "it was not under load"
    daemon.configure('[[device]]\nname = "eth0"\nrate = "400mbit"\n')
    daemon.reload()
    trainer.sent()
    eventually(lambda: sink.received == 8 * BULK, "everything has arrived")
    assert [trainer.look(i)["mark"] for i in range(8)] == [mark_of(1, layer) for layer in LAYERS]
    assert tc.qdisc(pair.a)["drops"] == 0


def test_a_broken_file_changes_nothing_and_a_good_one_no_job(
    pair: Pair, daemon: Daemon, sink: Sink, make_trainer: Callable[..., Trainer]
) -> None:
    trainer = make_trainer(daemon.socket)
    trainer.job("vgg16", 4)
    opened(trainer, pair)
    eventually(lambda: "deadline 1:2" in tc.qdisc_text(pair.a), "the job's deadlines are there")
    before = tc.qdisc_text(pair.a)
    daemon.configure('[[device]]\nname = "eth0"\nrate = "fast"\n')
    said = daemon.reload()
    assert "the old configuration stays" in said and "mercuryd.toml:5: device.rate" in said
    assert tc.qdisc_text(pair.a) == before
    assert len(daemon.status()["jobs"]) == 1

    daemon.configure('[hints2]\n')
    assert "hints2" in daemon.reload()

    daemon.configure('[[device]]\nname = "eth0"\nrate = "50mbit"\n')
    daemon.reload()
    eventually(lambda: "50Mbit" in tc.qdisc_text(pair.a), "the new rate is there")
    (job,) = daemon.status()["jobs"]
    assert sum(one["sockets"] for one in job["classes"]) == 8
    assert trainer.step() == DONE


def test_the_daemon_owns_its_device_and_no_other(pair: Pair, daemon: Daemon) -> None:
    pair.a.ip("link add other type dummy", "link set other up")
    pair.a.tc("qdisc add dev other root handle 7: prio")
    pair.a.tc("qdisc del dev eth0 root")
    eventually(
        lambda: any(q["kind"] == "mercury" for q in tc.qdiscs(pair.a)), "it has put it back"
    )
    kept = tc.qdiscs(pair.a, "other")
    assert [q["kind"] for q in kept if q["handle"] == "7:"] == ["prio"]
    pair.a.tc("qdisc replace dev other root handle 8: mercury jobs 4")
    eventually(
        lambda: {"name": "other", "qdiscs": 1, "managed": False, "problem": ""}
        in daemon.status()["devices"],
        "it has seen the other one",
    )
    assert "jobs 4" in tc.qdisc_text(pair.a, "8:", "other")


def test_every_queue_of_mq_has_the_configured_weights_and_the_deadlines_of_jobs(
    tmp_path: pathlib.Path
) -> None:
    pair = Pair(queues=2)
    daemon = Daemon(pair.a, tmp_path)
    daemon.configure('[[device]]\nname = "eth0"\nmq = true\njobs = 4\nweights = ["1 3"]\n')
    daemon.start()
    trainer = Trainer(pair, daemon.socket)
    trainer.job("vgg16", 4)

    def is_complete(place: str) -> bool:
        found = [q["handle"] for q in tc.qdiscs(pair.a) if q.get("parent") == place]
        major = int(found[0].rstrip(":"), 16)
        weights = {c: one.get("weight") for c, one in tc.classes(pair.a, found[0]).items()}
        said = tc.qdisc_text(pair.a, found[0])
        return weights.get(tc.job(1, major)) == "3" and "deadline 1:0 1us" in said

    for place in ("1:1", "1:2"):
        eventually(lambda: is_complete(place), f"the qdisc at {place} has everything")
    trainer.end()
    daemon.stop()
    pair.delete()


def test_a_client_that_is_gone_leaves_nothing(
    daemon: Daemon, sink: Sink, make_trainer: Callable[..., Trainer], pair: Pair
) -> None:
    for _ in range(5):
        trainer = make_trainer(daemon.socket)
        trainer.job("vgg16", 4)
        opened(trainer, pair)
        trainer.die()
    eventually(lambda: daemon.status()["jobs"] == [], "no job is left")
    assert daemon.status()["clients"] == 1  # who asks


def test_everybody_may_connect_and_nobody_else_is_root(
    daemon: Daemon, tmp_path: pathlib.Path
) -> None:
    mode = pathlib.Path(daemon.socket).stat().st_mode
    assert mode & 0o777 == 0o666
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as second:
        second.connect(daemon.socket)
    assert "CAP_NET_ADMIN is needed" not in daemon.log()
