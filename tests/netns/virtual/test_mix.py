# SPDX-License-Identifier: GPL-2.0
"""The order inside of flows while all options change at random, in virtual time."""

from __future__ import annotations

import random

import pytest

from lib import mix
from lib.capture import Capture
from lib.netns import Pair


@pytest.mark.parametrize("run", range(4))
@pytest.mark.parametrize("losses", [False, True], ids=["lossless", "with losses"])
def test_order_inside_of_flows(
    pair: Pair, wire: Capture, rng: random.Random, losses: bool, run: int
) -> None:
    mix.keeps_order(pair, wire, rng, losses=losses, changes=40, pause=0.004)
