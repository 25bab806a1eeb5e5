# SPDX-License-Identifier: GPL-2.0
"""Order with the guest's real timers: positions in the capture, not times."""

from __future__ import annotations

import pytest

from lib import checks
from lib.capture import Capture
from lib.netns import Pair
from lib.traffic import Udp, mark


@pytest.mark.parametrize("bands", [41, 1024])
def test_band_0_leaves_before_queued_bulk_of_band_40(
    pair: Pair, wire: Capture, bands: int
) -> None:
    pair.add(f"bands {bands} rate 100kbit rescue 0")
    bulk, urgent = Udp(pair, mark(41)), Udp(pair, mark(1))
    bulk.send(300)  # 24 s
    urgent.send()
    # What has left until now may have left before the urgent packet was sent.
    first = wire.ours()
    assert len(first) < 200
    pair.change("rate 100mbit")
    after = wire.ours_until(301 - len(first))
    checks.in_order([*first, *after])
    checks.nothing_lost([*first, *after], [bulk, urgent])
    # It is among those, or the next one or two.
    assert urgent.flow not in [p.flow for p in after[2:]]


def test_a_packet_of_another_job_does_not_wait_for_a_backlog(pair: Pair, wire: Capture) -> None:
    pair.add("rate 100kbit rescue 0")
    bulk, other, unmarked = Udp(pair, mark(1)), Udp(pair, mark(64, job=1)), Udp(pair)
    bulk.send(300)
    other.send()
    unmarked.send()
    first = wire.ours()
    assert len(first) < 200
    pair.change("rate 100mbit")
    after = wire.ours_until(302 - len(first))
    checks.nothing_lost([*first, *after], [bulk, other, unmarked])
    assert {p.flow for p in after[4:]} == {bulk.flow}
