# SPDX-License-Identifier: GPL-2.0
"""A link that is as good as stopped, so that all that is sent to it is queued."""

from __future__ import annotations

import time

from lib import checks
from lib.capture import Capture, Packet
from lib.netns import Pair
from lib.traffic import Udp, mark

# 1000 bytes take 0.8 s, so that nothing leaves while a backlog is built.
OPTIONS = "rate 10kbit rescue 0"


def stop(pair: Pair) -> Udp:
    """After this packet the link is busy."""
    stopper = Udp(pair, mark(1))
    stopper.send()
    return stopper


def drain(pair: Pair, wire: Capture) -> list[Packet]:
    """Open the link and take what was queued."""
    wire.ours()
    pair.change("rate 1gbit")
    time.sleep(1)
    checks.wait_until_empty(pair.a)
    return wire.ours()
