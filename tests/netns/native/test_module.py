# SPDX-License-Identifier: GPL-2.0
"""The module is unloaded, reloaded and found by its name, while traffic runs."""

from __future__ import annotations

import pathlib
import random
import subprocess
import time
from collections.abc import Iterator

import pytest

from lib import checks, kernel, mix, tc
from lib.capture import Capture
from lib.netns import Pair, run
from lib.traffic import Tcp, Udp, mark, transfer

_MODPROBE = pathlib.Path("/proc/sys/kernel/modprobe")
_DEFAULT_QDISC = pathlib.Path("/proc/sys/net/core/default_qdisc")


@pytest.fixture(autouse=True)
def module_is_back() -> Iterator[None]:
    """Tests here start with an unused module, and leave it loaded."""
    kernel.wait_until_unused()
    yield
    if not kernel.is_loaded():
        run("modprobe", "sch_mercury")


def _flows(pair: Pair) -> list[Udp]:
    return [Udp(pair, mark(layer, layer % 3)) for layer in (1, 2, 40, 64)] + [Udp(pair)]


def test_a_module_in_use_cannot_be_unloaded(pair: Pair, wire: Capture, rng: random.Random) -> None:
    pair.add("rate 20mbit")
    flows = _flows(pair)
    with mix.Background(flows, rng):
        for _ in range(10):
            done = subprocess.run(["rmmod", "sch_mercury"], capture_output=True, text=True)
            assert done.returncode
            assert "in use" in done.stderr
            time.sleep(0.01)
    checks.wait_until_empty(pair.a)
    packets = wire.ours()
    checks.nothing_lost(packets, flows)
    checks.in_order(packets)


def test_unload_and_reload_under_traffic(pair: Pair, wire: Capture, rng: random.Random) -> None:
    """Ten times, with a backlog when the qdisc goes. The traffic does not stop."""
    flows = _flows(pair)
    carried = 0
    with mix.Background(flows, rng):
        for _ in range(10):
            pair.add("rate 20mbit")
            pair.a.tc("qdisc add dev eth0 parent 1:ffff handle 2: fq_codel")
            time.sleep(0.03)
            carried += tc.qdisc(pair.a)["packets"]
            pair.a.tc("qdisc del dev eth0 root")
            kernel.wait_until_unused()
            run("rmmod", "sch_mercury")
            assert not kernel.is_loaded()
            time.sleep(0.01)
            run("modprobe", "sch_mercury")
        pair.add("rate 20mbit")
    assert carried > 100
    checks.wait_until_empty(pair.a)
    packets = wire.ours()
    checks.in_order(packets)
    # The last ones came through the last module.
    flows[0].send(10)
    checks.wait_until_empty(pair.a)
    assert len(wire.ours()) == 10


def test_reload_under_a_tcp_transfer(pair: Pair) -> None:
    connections = [Tcp(pair.a, pair.b, pair.B4, 3_000_000, mark(n), seed=n) for n in (0, 1, 50)]
    for _ in range(3):
        pair.a.tc("qdisc replace dev eth0 root handle 1: mercury rate 200mbit")
        transfer(connections, until=0.02)
        pair.a.tc("qdisc replace dev eth0 root pfifo limit 1000")
        kernel.wait_until_unused()
        run("rmmod", "sch_mercury")
        run("modprobe", "sch_mercury")
    pair.a.tc("qdisc replace dev eth0 root handle 1: mercury")
    transfer(connections)
    assert all(c.intact for c in connections)


def test_adds_and_deletes_under_traffic(pair: Pair, wire: Capture, rng: random.Random) -> None:
    flows = _flows(pair)
    with mix.Background(flows, rng):
        for i in range(30):
            pair.a.tc(f"qdisc replace dev eth0 root handle {i + 1}: mercury rate 20mbit")
            if i % 3 == 0:
                pair.a.tc("qdisc del dev eth0 root")
    checks.in_order(wire.ours())


def test_it_is_loaded_by_its_name(pair: Pair, tmp_path: pathlib.Path) -> None:
    """tc asks for a kind, the kernel for a module, and a modprobe gets an alias."""
    real = _MODPROBE.read_text().strip()
    asked = tmp_path / "asked"
    script = tmp_path / "modprobe"
    script.write_text(f'#!/bin/sh\necho "$@" >>{asked}\nexec {real} "$@"\n')
    script.chmod(0o755)
    run("rmmod", "sch_mercury")
    _MODPROBE.write_text(str(script))
    try:
        pair.add("bands 5")
    finally:
        _MODPROBE.write_text(real)
    assert kernel.is_loaded()
    names = [line.split()[-1] for line in asked.read_text().splitlines()]
    # Up to 6.6 the kernel asked for the file, since 6.8 for an alias.
    assert set(names) & {"sch_mercury", "net-sch-mercury"}
    assert tc.qdisc(pair.a)["options"]["bands"] == 5


@pytest.mark.parametrize("name", ["sch_mercury", "net-sch-mercury"])
def test_names_of_the_module(name: str) -> None:
    run("rmmod", "sch_mercury")
    run("modprobe", name)
    assert kernel.is_loaded()


def test_modinfo() -> None:
    path = run("modprobe", "--show-depends", "sch_mercury").split()[1]
    assert run("modinfo", "-F", "alias", path).split() == ["net-sch-mercury"]
    assert run("modinfo", "-F", "license", path).strip() == "GPL"
    assert run("modinfo", "-F", "description", path).strip()


def test_it_is_loaded_as_the_default_qdisc() -> None:
    before = _DEFAULT_QDISC.read_text()
    run("rmmod", "sch_mercury")
    try:
        _DEFAULT_QDISC.write_text("mercury")
        assert kernel.is_loaded()
        assert _DEFAULT_QDISC.read_text().strip() == "mercury"
    finally:
        _DEFAULT_QDISC.write_text(before)
    kernel.wait_until_unused()
