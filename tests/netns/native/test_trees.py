# SPDX-License-Identifier: GPL-2.0
"""mercury below every parent and above every child, with timers that interrupt."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lib import trees
from lib.capture import Capture
from lib.kernel import Log
from lib.netns import Pair


def _run(
    make_pair: Callable[..., Pair], name: str, child: str | None, **what: bool
) -> dict[str, trees.tc.Record]:
    parent = trees.PARENTS[name]
    pair = make_pair(queues=parent.queues)
    trees.build(pair.a, parent, "", child)
    return trees.comes_through(pair, Capture(pair.b), parent, **what)


@pytest.mark.parametrize("name", trees.PARENTS)
def test_below(make_pair: Callable[..., Pair], name: str) -> None:
    _run(make_pair, name, trees.CHILDREN["pfifo"])


_ALL_CHILDREN = (
    [(f"{name}", child, {}) for name, child in trees.CHILDREN.items()]
    + [(f"{name}", child, {"loses": True}) for name, child in trees.ACTIVE_CHILDREN.items()]
    + [(f"small {n}", child, {"loses": True}) for n, child in trees.TIGHT_CHILDREN.items()]
    + [("duplicating netem", trees.DUPLICATING, {"duplicates": True})]
)


@pytest.mark.parametrize(
    ("child", "what"), [c[1:] for c in _ALL_CHILDREN], ids=[c[0] for c in _ALL_CHILDREN]
)
def test_above(
    make_pair: Callable[..., Pair], quiet_kernel: Log, child: str, what: dict[str, bool]
) -> None:
    quiet_kernel.expected = "non-work-conserving"
    _run(make_pair, "tbf", child, **what)
