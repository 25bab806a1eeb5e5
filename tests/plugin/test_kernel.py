# SPDX-License-Identifier: GPL-2.0
"""The tc plugin against the real module: what it says is what the kernel does.

    scripts/testbed/uml -- /usr/bin/python3 -m pytest -p no:cacheprovider tests/plugin/test_kernel.py

Skips where sch_mercury is not loaded. Works in a network namespace of its own.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from test_plugin import BINARIES, PATH, SENT, build, examples, version

pytestmark = pytest.mark.skipif(
    not Path("/sys/module/sch_mercury").exists(), reason="sch_mercury is not loaded"
)

NAMESPACE = "mercury-plugin"


def shell(command: str) -> str:
    done = subprocess.run(shlex.split(command), text=True, capture_output=True, env=environment())
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


def environment() -> dict[str, str]:
    return {**os.environ, "PATH": PATH}


@pytest.fixture(scope="session", autouse=True)
def plugin_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    if "TC_LIB_DIR" not in os.environ:
        os.environ["TC_LIB_DIR"] = str(build(tmp_path_factory.mktemp("plugin")))


@pytest.fixture
def eth0() -> Iterator[str]:
    """An interface with two queues, and a neighbour that takes what is sent to it."""
    shell(f"ip netns add {NAMESPACE}")
    inside = f"ip -n {NAMESPACE}"
    shell(f"{inside} link add eth0 numtxqueues 2 type dummy")
    shell(f"{inside} link set eth0 up")
    shell(f"{inside} address add 192.0.2.1/24 dev eth0")
    shell(f"{inside} neighbour add 192.0.2.2 lladdr 02:00:00:00:00:01 dev eth0")
    yield "eth0"
    shell(f"ip netns delete {NAMESPACE}")


@pytest.fixture(params=BINARIES, ids=version)
def binary(request: pytest.FixtureRequest, eth0: str) -> str:
    return request.param


def tc(binary: str, command: str) -> str:
    return shell(f"ip netns exec {NAMESPACE} {binary} {command}")


def add(binary: str, options: str) -> None:
    tc(binary, f"qdisc replace dev eth0 root handle 1: mercury {options}")


def shown_options(binary: str) -> str:
    (line,) = [one for one in tc(binary, "qdisc show dev eth0").splitlines() if "mercury" in one]
    return line[re.search(r"refcnt \d+ ", line).end() :].strip()


def classes(binary: str) -> dict[str, dict]:
    text = tc(binary, "-j -s class show dev eth0")
    if not text.startswith("["):
        pytest.skip("this tc prints classes as text even with -j")
    return {one["handle"]: one for one in json.loads(text)}


def send(mark: int, packets: int) -> None:
    code = (
        "import socket, sys\n"
        "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        "s.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, int(sys.argv[1]))\n"
        "for _ in range(int(sys.argv[2])): s.sendto(bytes(1000), ('192.0.2.2', 9))\n"
    )
    assert socket.SO_MARK
    subprocess.run(
        ["ip", "netns", "exec", NAMESPACE, "/usr/bin/python3", "-c", code, str(mark), str(packets)],
        check=True, env=environment(),
    )


@pytest.mark.parametrize("options", [row[0] for row in SENT])
def test_takes_what_the_plugin_takes(binary: str, options: str) -> None:
    add(binary, options)
    before = shown_options(binary)
    tc(binary, "qdisc change dev eth0 root mercury")
    assert shown_options(binary) == before


def test_shows_the_defaults_of_the_help(binary: str) -> None:
    add(binary, "")
    assert shown_options(binary) == (
        "jobs 16 bands 64 limit 100000 memory_limit 256Mb key mark mask 0xffff job_mask 0xff0000"
        " default_share 10% rescue 10% rate none auto_split_gso ack_first ce_threshold none"
    )


@pytest.mark.parametrize("options", [
    "jobs 5 bands 41 limit 12345 memory_limit 3mb key dscp mask 0x7 job_mask 0x38 default_share 33",
    "rescue 0 rate 1234567bit split_gso no_ack_first ce_threshold 1234567ns",
    "jobs 3 deadline 0:3-5 3ms deadline 7 none deadline 2:0-63 1s deadline 2:4 1us",
])
def test_what_it_shows_makes_the_same_again(binary: str, options: str) -> None:
    add(binary, options)
    first = shown_options(binary)
    tc(binary, "qdisc delete dev eth0 root")
    add(binary, first)
    assert shown_options(binary) == first


def test_change_leaves_what_is_not_named(binary: str) -> None:
    add(binary, "limit 77 rate 1gbit no_ack_first deadline 3 5ms jobs 1")
    before = shown_options(binary)
    tc(binary, "qdisc change dev eth0 root mercury rescue 33%")
    assert shown_options(binary) == before.replace("rescue 10%", "rescue 33%")


def test_json_of_a_busy_qdisc(binary: str) -> None:
    add(binary, "rate 10mbit deadline 0:1 1us")
    for mark in (0, 1, 2, 0x10005):
        send(mark, 20)
    (shown,) = json.loads(tc(binary, "-j -s -d qdisc show dev eth0 root"))
    assert shown["options"]["rate"] == 1250000
    assert shown["options"]["split_gso_active"] is True
    assert shown["memory_peak"] > 0


def test_classes_tell_what_they_carried(binary: str) -> None:
    add(binary, "")
    for mark, packets in ((1, 3), (0x10005, 4), (0, 5)):
        send(mark, packets)
    tc(binary, "class change dev eth0 classid 1:fc02 mercury weight 7 limit 9")
    tc(binary, "class change dev eth0 classid 1:802 mercury deadline 2ms limit 5")
    tc(binary, "class change dev eth0 classid 1:804 mercury limit 3")
    tc(binary, "class change dev eth0 classid 1:804 mercury limit none")
    tc(binary, "class change dev eth0 classid 1:803 mercury deadline none limit 3")
    shown = classes(binary)
    assert shown["1:ffff"]["default"] is True
    assert shown["1:ffff"]["stats"]["packets"] >= 5
    for handle, job, band, packets in (("1:1", 0, 0, 3), ("1:405", 1, 4, 4)):
        one = shown[handle]
        assert (one["job"], one["band"], one["deadline_ns"]) == (job, band, 100_000_000)
        assert one["stats"]["packets"] == packets
        assert one["stats"]["deadline_met"] + one["stats"]["deadline_missed"] == packets
        assert sum(bucket["packets"] for bucket in one["stats"]["sojourn"]) == packets
        assert shown[f"1:fc0{job}"]["stats"]["packets"] == packets
    assert (shown["1:fc02"]["weight"], shown["1:fc02"]["limit"]) == (7, 9)
    assert (shown["1:802"]["deadline_ns"], shown["1:802"]["limit"]) == (2_000_000, 5)
    assert (shown["1:803"]["deadline_ns"], shown["1:803"]["limit"]) == (None, 3)
    assert "1:804" not in shown


def test_examples_of_the_man_page_work_one_after_the_other(binary: str) -> None:
    for command in examples():
        tc(binary, command.removeprefix("tc "))
