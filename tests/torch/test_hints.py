# SPDX-License-Identifier: GPL-2.0
"""mercury.hints behaves as libmercury does: with a daemon, without one, and with a bad one."""

from __future__ import annotations

import json
import os
import pathlib
import random
import re
import socket
import subprocess
from collections.abc import Iterator

import pytest

from mercury.hints import Client, Error, Layer, Outcome, Problem
from mercury.layers import group_layers, read_csv, write_csv

from daemon import BUILD, NOWHERE, Daemon, Puppet, eventually

SO_MARK = 36
PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/hints.md"
# In four classes these are three: the small ones, the large one, the rest.
LAYERS = [Layer("a", 100), Layer("b", 100), Layer("c", 10_000), Layer("d", 2000), Layer("e", 400)]
CLASS_OF_LAYER = [0, 0, 1, 2, 2]


@pytest.fixture
def link() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        one = socket.create_connection(listener.getsockname())
        other, _ = listener.accept()
        with one, other:
            yield one, other


def mark(sock: socket.socket) -> int:
    return sock.getsockopt(socket.SOL_SOCKET, SO_MARK)


def priority(sock: socket.socket) -> int:
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY)


def refusal(call: object, *arguments: object) -> Problem:
    with pytest.raises(Error) as caught:
        call(*arguments)
    assert str(caught.value)
    return caught.value.problem


def test_sockets_are_marked_by_the_daemon(daemon: Daemon) -> None:
    with Client(daemon.socket) as client:
        assert client.job("net", LAYERS, 4) == Outcome.DONE
        assert [client.class_of(i) for i in range(5)] == CLASS_OF_LAYER
        for layer, index in enumerate(CLASS_OF_LAYER):
            with socket.socket() as sock:
                assert client.assign(sock, layer, 128 << 10) == Outcome.DONE
                assert mark(sock) == 1 << 16 | index + 1
                assert priority(sock) == index + 1
                assert sock.getsockopt(socket.IPPROTO_TCP, 25) == 128 << 10
        assert client.step() == Outcome.DONE
        assert client.dispatch(60) == Outcome.DONE
        (job,) = daemon.status()["jobs"]
        assert (job["name"], job["steps"], len(job["classes"])) == ("net", 1, 3)
        status = client.status()
        assert (status.connected, status.job, status.why) == (True, 1, "")
    eventually(lambda: not daemon.status()["jobs"], "the job is forgotten")


def test_without_a_daemon_sockets_get_a_priority() -> None:
    with Client(NOWHERE) as client, socket.socket() as tcp, socket.socket(type=socket.SOCK_DGRAM) as udp:
        assert client.job("net", LAYERS, 4) == Outcome.FALLBACK
        assert client.assign(tcp, 4, 128 << 10) == Outcome.FALLBACK
        assert client.assign(udp.fileno(), 0) == Outcome.FALLBACK
        assert client.step() == Outcome.FALLBACK
        assert (priority(tcp), mark(tcp), priority(udp)) == (3, 0, 1)
        status = client.status()
        assert (status.connected, status.sockets, status.marked) == (False, 2, 0)
        assert NOWHERE in status.why


def test_priorities_go_to_six_and_no_further() -> None:
    layers = [Layer(str(i), 100) for i in range(32)]
    with Client(NOWHERE) as client, socket.socket() as sock:
        client.job("net", layers, 32)
        client.assign(sock, 31)
        assert priority(sock) == 6


def test_the_environment_names_the_daemon(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MERCURY_SOCKET", daemon.socket)
    with Client() as client:
        assert client.job("net", LAYERS) == Outcome.DONE


def test_what_is_wrong_is_refused_and_changes_nothing(link: tuple[socket.socket, socket.socket]) -> None:
    client = Client(NOWHERE)
    with socket.socket() as sock:
        assert refusal(client.assign, sock, 0) == Problem.ORDER
        assert refusal(client.step) == Problem.ORDER
        for name, layers, classes in [
            ("", LAYERS, 4), ("x" * 129, LAYERS, 4), ("a\nb", LAYERS, 4), ("net", [], 4),
            ("net", LAYERS, 0), ("net", LAYERS, 33), ("net", [Layer("a", 0)], 1),
            ("net", [Layer("", 1)], 1), ("net", [Layer("a", 1, -1)], 1),
            ("net", [Layer("a", 1)] * 1025, 1), ("\ud800", LAYERS, 4),
        ]:
            assert refusal(client.job, name, layers, classes) == Problem.ARGUMENT
        client.job("net", LAYERS, 4)
        assert refusal(client.assign, sock, 5) == Problem.ARGUMENT
        assert refusal(client.assign, sock, -1) == Problem.ARGUMENT
        assert refusal(client.assign, sock, 0, -1) == Problem.ARGUMENT
        assert priority(sock) == 0
    with socket.socket(socket.AF_UNIX) as unix, open(os.devnull) as file:
        assert refusal(client.assign, unix, 0) == Problem.SOCKET
        assert refusal(client.assign, file.fileno(), 0) == Problem.SOCKET
        assert refusal(client.assign, -1, 0) == Problem.SOCKET
    assert client.status().sockets == 0


def test_a_busy_socket_is_not_marked(
    daemon: Daemon, link: tuple[socket.socket, socket.socket]
) -> None:
    sender, receiver = link
    sender.setblocking(False)
    with pytest.raises(BlockingIOError):
        while True:
            sender.send(bytes(1 << 20))
    with Client(daemon.socket) as client:
        client.job("net", LAYERS, 4)
        assert refusal(client.assign, sender, 0) == Problem.BUSY
        # Its own priority is right already: now the daemon is who refuses.
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, 1)
        assert refusal(client.assign, sender, 0) == Problem.BUSY
        assert (mark(sender), client.status().sockets) == (0, 0)


def test_a_limit_of_the_daemon_is_told(tmp_path: pathlib.Path, daemon: Daemon) -> None:
    daemon.stop()
    with (tmp_path / "mercuryd.toml").open("a") as config:
        config.write("[limits]\nsockets = 1\n")
    daemon.start()
    with Client(daemon.socket) as client, socket.socket() as one, socket.socket() as two:
        client.job("net", LAYERS, 4)
        assert client.assign(one, 0) == Outcome.DONE
        assert refusal(client.assign, two, 0) == Problem.REFUSED
        assert priority(two) == 1


def test_a_daemon_that_comes_back_is_told_again(
    daemon: Daemon, link: tuple[socket.socket, socket.socket]
) -> None:
    with Client(daemon.socket) as client:
        client.job("net", LAYERS, 4)
        client.assign(link[0], 2)
        daemon.kill()
        eventually(lambda: client.step() == Outcome.FALLBACK, "the client sees it")
        assert not client.status().connected
        daemon.start()
        eventually(lambda: client.dispatch(1) == Outcome.DONE, "it is told again")
        assert (client.status().job, client.status().marked, mark(link[0])) == (1, 1, 1 << 16 | 2)
        (job,) = daemon.status()["jobs"]
        assert job["name"] == "net"


def test_another_number_is_another_mark(
    daemon: Daemon, link: tuple[socket.socket, socket.socket]
) -> None:
    with Client(daemon.socket) as client, Client(daemon.socket) as thief:
        client.job("net", LAYERS, 4)
        client.assign(link[0], 2)
        daemon.kill()
        eventually(lambda: client.step() == Outcome.FALLBACK, "the client sees it")
        daemon.start()
        thief.job("other", LAYERS, 4)
        assert thief.status().job == 1
        eventually(lambda: client.dispatch(1) == Outcome.DONE, "it is told again")
        assert client.status().job == 2
        assert mark(link[0]) == 2 << 16 | 2


def test_a_descriptor_that_is_another_socket_now_is_left_alone(daemon: Daemon) -> None:
    with Client(daemon.socket) as client:
        client.job("net", LAYERS, 4)
        old = socket.socket()
        number = old.fileno()
        client.assign(old, 2)
        daemon.kill()
        eventually(lambda: client.step() == Outcome.FALLBACK, "the client sees it")
        old.close()
        with socket.socket() as new:
            os.dup2(new.fileno(), number)
            daemon.start()
            with Client(daemon.socket) as thief:  # or no socket would be touched
                thief.job("other", LAYERS, 4)
                eventually(lambda: client.dispatch(1) == Outcome.DONE, "it is told again")
            assert (mark(new), client.status().sockets) == (0, 0)
            os.close(number)


def test_a_child_may_not_use_it(daemon: Daemon) -> None:
    with Client(daemon.socket) as client:
        client.job("net", LAYERS, 4)
        child = os.fork()
        if child == 0:
            try:
                client.step()
                os._exit(1)
            except Error as problem:
                client.close()
                os._exit(0 if problem.problem == Problem.FORKED else 2)
        assert os.waitpid(child, 0)[1] == 0
        assert client.step() == Outcome.DONE
        assert client.dispatch(60) == Outcome.DONE


def said_on_the_page() -> list[tuple[dict, dict]]:
    lines = re.findall(r"^    ([CD]): (\{.*\})$", PAGE.read_text(), re.M)
    heard, answers = lines[::2], lines[1::2]
    pairs = []
    for (_, asked), (_, answer) in zip(heard, answers):
        try:
            pairs.append((json.loads(asked), json.loads(answer)))
        except json.JSONDecodeError:
            pass  # what is malformed on purpose
    return pairs


def test_the_conversation_is_that_of_the_page(tmp_path: pathlib.Path) -> None:
    pairs = [pair for pair in said_on_the_page() if pair[1]["type"] != "error"]
    by_type = {}
    for asked, answer in pairs:
        by_type.setdefault(asked["type"], (asked, answer))
    assert {"hello", "job", "assign", "step", "bye"} <= by_type.keys()
    puppet = Puppet(tmp_path / "sock", lambda asked: by_type[asked["type"]][1])
    layers = [
        Layer(one["name"], one["bytes"], one["forward_ns"], one["backward_ns"])
        for one in by_type["job"][0]["layers"]
    ]
    with Client(puppet.socket) as client, socket.socket() as sock:
        assert client.job("vgg16", layers, 2) == Outcome.DONE
        assert client.assign(sock, 1) == Outcome.DONE
        assert client.step() == Outcome.DONE
        assert client.dispatch(60) == Outcome.DONE
        assert client.status().job == by_type["job"][1]["number"]
    eventually(lambda: len(puppet.heard) == 5, "all is heard")
    for asked in puppet.heard:
        expected = dict(by_type[asked["type"]][0])
        if asked["type"] == "hello":
            expected["client"] = asked["client"]
        if asked["type"] == "assign":
            expected.pop("lowat")  # the client sets it itself
        assert asked == expected
    puppet.close()


def test_an_old_daemon_is_as_none(tmp_path: pathlib.Path) -> None:
    refused = next(a for _, a in said_on_the_page() if a.get("code") == "version")
    puppet = Puppet(tmp_path / "sock", lambda asked: refused)
    with Client(puppet.socket) as client, socket.socket() as sock:
        assert client.job("net", LAYERS, 4) == Outcome.FALLBACK
        assert client.assign(sock, 0) == Outcome.FALLBACK
        assert refused["message"] in client.status().why
    puppet.close()


def test_a_silent_daemon_is_not_waited_for_twice(tmp_path: pathlib.Path) -> None:
    puppet = Puppet(tmp_path / "sock", lambda asked: None)
    with Client(puppet.socket, timeout=0.05) as client, socket.socket() as sock:
        assert client.job("net", LAYERS, 1) == Outcome.PENDING
        client.timeout = 10**6  # who waited now would never end
        assert client.assign(sock, 0) == Outcome.PENDING
        assert client.step() == Outcome.PENDING
        assert priority(sock) == 1
        puppet.say({"type": "hello", "version": 1, "daemon": "puppet"})
        puppet.say({"type": "job", "number": 7, "classes": [
            {"first": 0, "last": 4, "mark": 7 << 16 | 1, "priority": 1}]})
        eventually(lambda: client.dispatch(0.1) == Outcome.PENDING and client.status().connected,
                   "it is heard")
        puppet.say({"type": "assign", "class": 0, "mark": 7 << 16 | 1})
        eventually(lambda: client.dispatch(0.1) == Outcome.DONE, "it is marked")
        assert client.status().marked == 1
    puppet.close()


CLASS = {"first": 0, "last": 4, "mark": 65537, "priority": 1}


@pytest.mark.parametrize(
    "answer",
    [
        b"{", b"\xff", b"[]", b"[" * 100_000, b"{}", {"type": 7}, {"type": "step"}, {"type": "job"},
        {"type": "job", "number": 1, "classes": []},
        {"type": "job", "number": 1, "classes": [7]},
        {"type": "job", "number": 1, "classes": [{**CLASS, "last": 3}]},
        {"type": "job", "number": 1, "classes": [{**CLASS, "first": 1}]},
        {"type": "job", "number": 1, "classes": [{**CLASS, "mark": "x"}]},
        {"type": "job", "number": 1, "classes": [CLASS, CLASS]},
        {"type": "job", "classes": [CLASS]},
    ],
    ids=str,
)
def test_who_does_not_keep_to_the_protocol_is_as_none(tmp_path: pathlib.Path, answer: object) -> None:
    def answers(asked: dict) -> object:
        return {"type": "hello"} if asked["type"] == "hello" else answer

    puppet = Puppet(tmp_path / "sock", answers)
    with Client(puppet.socket) as client:
        assert client.job("net", LAYERS, 4) == Outcome.FALLBACK
        assert "protocol" in client.status().why
    puppet.close()


def test_layers_are_grouped_as_the_daemon_groups_them(tmp_path: pathlib.Path) -> None:
    dice = random.Random(7)
    for case in range(30):
        layers = [
            Layer(f"l{i}", int(10 ** dice.uniform(0, 8)), dice.randrange(10**9), dice.randrange(10**9))
            for i in range(dice.randint(1, 60))
        ]
        classes = dice.randint(1, 32)
        file = tmp_path / "profile.csv"
        write_csv(file, layers)
        assert read_csv(file) == layers
        words = [BUILD / "cli/mercuryctl", "plan", file, "--classes", str(classes), "--json"]
        planned = json.loads(subprocess.check_output(words))
        expected = [(one["first_layer"], one["last_layer"]) for one in planned["classes"]]
        assert [(one.first, one.last) for one in group_layers(layers, classes)] == expected, case
