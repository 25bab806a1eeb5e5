# SPDX-License-Identifier: GPL-2.0
"""The order inside of flows while all options change, with timers that interrupt."""

from __future__ import annotations

import random

import pytest

from lib import checks, mix
from lib.capture import Capture
from lib.netns import Pair
from lib.traffic import Tcp, mark, transfer


@pytest.mark.parametrize("losses", [False, True], ids=["lossless", "with losses"])
def test_order_inside_of_flows(
    pair: Pair, wire: Capture, rng: random.Random, losses: bool
) -> None:
    mix.keeps_order(pair, wire, rng, losses=losses, changes=120, pause=0.01)


def test_tcp_while_all_options_change(pair: Pair, rng: random.Random) -> None:
    pair.a.tc(f"qdisc add dev eth0 root handle {mix.Changes.HANDLE} mercury rate 50mbit")
    connections = [
        Tcp(pair.a, pair.b, pair.B4, 400_000, mark(layer, job), seed=layer)
        for layer, job in ((0, 0), (1, 0), (2, 1), (40, 0), (64, 2), (0, 0), (500, 60), (3, 1))
    ]
    changes = mix.Changes(pair, rng, losses=True)
    for _ in range(80):
        print(changes.one())
        transfer(connections, until=0.01)
    # Whatever is set now, TCP must get through it, or through this.
    pair.a.tc(f"qdisc replace dev eth0 root handle {mix.Changes.HANDLE} mercury")
    transfer(connections, limit=60)
    assert all(c.intact for c in connections)
    checks.wait_until_empty(pair.a)
