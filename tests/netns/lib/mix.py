# SPDX-License-Identifier: GPL-2.0
"""
Traffic that goes on while every option changes, at random.

The key and the masks are chosen once: a flow that is classified anew, be it by
another key or another mark, may overtake itself, as it may with a new SO_MARK.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence

from lib import checks, tc
from lib.capture import Capture
from lib.netns import Pair
from lib.traffic import Udp


class Background(threading.Thread):
    """Sends a few packets of random flows every millisecond, until it is stopped."""

    def __init__(self, flows: Sequence[Udp], rng: random.Random, *, burst: int = 4) -> None:
        super().__init__(daemon=True)
        self._flows = flows
        self._rng = rng
        self._burst = burst
        self._stop_now = threading.Event()
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            while not self._stop_now.is_set():
                for _ in range(self._rng.randrange(2 * self._burst)):
                    self._rng.choice(self._flows).send()
                time.sleep(0.001)
        except Exception as error:  # for the test to see
            self.error = error

    def __enter__(self) -> Background:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop_now.set()
        self.join()
        if self.error:
            raise self.error


def flows(pair: Pair, rng: random.Random, key: str) -> list[Udp]:
    """Flows of all sorts: the layer and job of each are where the key looks for them."""
    found = []
    for i in range(16):
        layer = rng.choice([0, 1, 2, 5, 40, 63, 64, 65, 200, 1024])
        job = rng.choice([0, 0, 1, 2, 15, 40])
        value = job << 16 | layer
        size, segment = rng.choice([(80, 0), (600, 0), (1500, 0), (12_000, 1400)])
        if key == "mark":
            flow = Udp(pair, value, size=size, segment=segment)
        elif key == "priority":
            flow = Udp(pair, priority=value, size=size, segment=segment)
        else:
            flow = Udp(pair, tos=(i * 4 & 63) << 2, size=size, segment=segment)
        found.append(flow)
    return found


class Changes:
    """Random changes of a mercury with the handle 9100: (no job of a key looks like it)."""

    HANDLE = "9100:"

    def __init__(self, pair: Pair, rng: random.Random, *, losses: bool) -> None:
        """losses: also limits that make it drop, and other children."""
        self._pair = pair
        self._rng = rng
        self._jobs, self._bands = 16, 64
        self._changes: list[Callable[[], str]] = [
            self._sizes, self._sizes, self._deadline, self._deadline,
            self._rate, self._weight, self._class_deadline,
            lambda: self._qdisc(f"default_share {rng.randrange(1, 100)}"),
            lambda: self._qdisc(f"rescue {rng.randrange(101)}"),
            lambda: self._qdisc(rng.choice(["split_gso", "no_split_gso", "auto_split_gso"])),
            lambda: self._qdisc(rng.choice(["ack_first", "no_ack_first"])),
            lambda: self._qdisc(f"ce_threshold {rng.choice(['1us', '1ms', 'none'])}"),
        ]  # fmt: skip
        if losses:
            self._changes += [self._limit, self._limit, self._class_limit, self._child]

    def one(self) -> str:
        """Make one; the command, for the case that something fails."""
        command = self._rng.choice(self._changes)()
        self._pair.a.tc(command)
        return command

    def _qdisc(self, options: str) -> str:
        return f"qdisc change dev eth0 root handle {self.HANDLE} mercury {options}"

    def _class(self, minor: int, options: str) -> str:
        return f"class change dev eth0 classid {self.HANDLE}{minor:x} mercury {options}"

    def _sizes(self) -> str:
        self._jobs = self._rng.choice([1, 2, 16, 62])
        self._bands = self._rng.choice([2, 3, 64, 65, 1024])
        return self._qdisc(f"jobs {self._jobs} bands {self._bands}")

    def _deadline(self) -> str:
        first = self._rng.randrange(self._bands)
        last = self._rng.randrange(first, self._bands)
        job = self._rng.choice(["", f"{self._rng.randrange(self._jobs)}:"])
        span = self._rng.choice(["1us", "1ms", "20ms", "none"])
        return self._qdisc(f"deadline {job}{first}-{last} {span}")

    def _rate(self) -> str:
        return self._qdisc(f"rate {self._rng.choice(['20mbit', '50mbit', '2gbit', 'none'])}")

    def _weight(self) -> str:
        job = self._rng.randrange(self._jobs)
        return self._class(0xFC00 + job, f"weight {self._rng.choice([1, 2, 1000])}")

    def _band_minor(self) -> int:
        return self._rng.randrange(self._jobs) * 0x400 + self._rng.randrange(self._bands) + 1

    def _class_deadline(self) -> str:
        span = self._rng.choice(["1us", "1ms", "20ms", "none"])
        return self._class(self._band_minor(), f"deadline {span}")

    def _class_limit(self) -> str:
        minor = self._rng.choice([self._band_minor(), 0xFC00 + self._rng.randrange(self._jobs)])
        return self._class(minor, f"limit {self._rng.choice([1, 10, 'none'])}")

    def _limit(self) -> str:
        limit = self._rng.choice(["limit 1", "limit 10", "limit 1000", "memory_limit 1mb"])
        return self._qdisc(f"{limit}")

    def _child(self) -> str:
        kind = self._rng.choice(["pfifo limit 20", "fq_codel", "fq", "mercury", "sfq", "cake"])
        return f"qdisc replace dev eth0 parent {self.HANDLE}ffff {kind}"


def keeps_order(
    pair: Pair, wire: Capture, rng: random.Random, *, losses: bool, changes: int, pause: float
) -> None:
    """Change things under traffic: flows stay in order, and lose nothing unless they may."""
    key = rng.choice(["mark", "mark", "priority", "dscp"])
    print(f"key {key}")
    pair.a.tc(
        f"qdisc add dev eth0 root handle {Changes.HANDLE} mercury rate 50mbit"
        f" {'key dscp mask 0x3f' if key == 'dscp' else f'key {key}'}"
    )
    pair.a.tc(f"qdisc add dev eth0 parent {Changes.HANDLE}ffff pfifo limit 100000")
    senders = flows(pair, rng, key)
    source = Changes(pair, rng, losses=losses)
    with Background(senders, random.Random(rng.randrange(1 << 32))):
        for _ in range(changes):
            print(source.one())
            time.sleep(rng.random() * 2 * pause)
    pair.a.tc(source._qdisc("rate none"))
    assert tc.qdisc(pair.a, Changes.HANDLE)["kind"] == "mercury"
    checks.wait_until_empty(pair.a)
    packets = wire.ours()
    checks.in_order(packets)
    if not losses:
        checks.nothing_lost_of_segments(packets, senders)
