# SPDX-License-Identifier: GPL-2.0
"""
The first allocation of a request fails, then the second, and so on until there
is none left to fail. Each time either the request is refused and nothing has
changed, or it is carried out in full; and packets pass. What leaks is found at
the end, by kmemleak and by the module's users.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import rtnl
from abi import ABI, attr, u32, u64
from conftest import Faults
from rtnl import Request, class_option, deadline, deadlines, nest, set_option

HANDLE = 0x10000
DEFAULT = HANDLE | ABI["MERCURY_MINOR_DEFAULT"]
JOB0, BAND0 = HANDLE | 0xFC00, HANDLE | 1
MOST = 400  # allocations of one request: far more than there are
CREATE = rtnl.NLM_F_CREATE | rtnl.NLM_F_EXCL
REPLACE = rtnl.NLM_F_CREATE | rtnl.NLM_F_REPLACE

# Small ones come from slabs, which fault injection lets fail; larger ones have
# vmalloc to fall back on.
SMALL = (set_option("JOBS", 1), set_option("BANDS", 2))
LARGE = (set_option("JOBS", 62), set_option("BANDS", 1024))


def qdisc(name: str, flags: int, *options: bytes) -> Request:
    return Request(
        name, rtnl.RTM_NEWQDISC, flags, HANDLE, rtnl.TC_H_ROOT, rtnl.mercury(options)
    )


def class_(name: str, classid: int, *options: bytes) -> Request:
    return Request(name, rtnl.RTM_NEWTCLASS, 0, classid, HANDLE, rtnl.mercury(options))


def child(kind: str) -> Request:
    return Request(
        f"graft {kind}", rtnl.RTM_NEWQDISC, REPLACE, 0x20000, DEFAULT, rtnl.kind(kind)
    )


def delete(name: str, handle: int, parent: int) -> Request:
    return Request(name, rtnl.RTM_DELQDISC, 0, handle, parent, b"")


ADDS = [
    qdisc("add", CREATE),
    qdisc("add small", CREATE, *SMALL),
    qdisc("add large", CREATE, *LARGE, deadlines(deadline(0, 0, 9, 10**7))),
    qdisc("add refused", CREATE, set_option("JOBS", 63)),
]
CHANGES = [
    qdisc("change", 0, set_option("LIMIT", 77), deadlines(deadline(0, 0, 0, 10**6))),
    qdisc("change to small", 0, *SMALL),
    qdisc("change to large", 0, *LARGE),
    qdisc("replace", REPLACE, *SMALL),
    class_("change job", JOB0, attr(class_option("WEIGHT"), u32(7))),
    class_("change band", BAND0, attr(class_option("DEADLINE"), u64(10**6))),
    child("pfifo"),
    child("fq_codel"),
    child("mercury"),
    delete("delete the child", 0x20000, DEFAULT),
    delete("delete", HANDLE, rtnl.TC_H_ROOT),
]  # fmt: skip


class Site:
    """A device with a socket, and the fault that meets the next request."""

    def __init__(self, route: rtnl.Route, faults: Faults, device: int) -> None:
        self.route, self.faults, self.device = route, faults, device

    def send(self, request: Request, fail: int = 0) -> tuple[int | None, bool]:
        """
        0 or an errno, None if the answer was lost, and whether an allocation has
        failed. fail: which one, from 1.
        """
        self.faults.arm(fail)
        try:
            error = self.route.request(
                request.kind, request.flags, self.device, request.handle, request.parent,
                request.payload,
            ).error  # fmt: skip
        except OSError:  # no memory for the message itself, or for the answer
            error = None
        return error, self.faults.disarm() and fail > 0

    def sees(self) -> object:
        return self.route.snapshot(self.device)


def reset(site: Site) -> None:
    """A mercury of its own, of middle size, with a child."""
    site.send(delete("delete", HANDLE, rtnl.TC_H_ROOT))
    for request in (qdisc("add", CREATE, set_option("JOBS", 3)), child("pfifo")):
        error, _ = site.send(request)
        assert error == 0


def fail_each(
    site: Site, request: Request, prepare: Callable[[], None], pass_packets: Callable[[], None]
) -> int:
    """Let every allocation of a request fail once. How many there were."""
    prepare()
    wanted, _ = site.send(request)
    done = site.sees()
    for n in range(1, MOST):
        prepare()
        before = site.sees()
        error, failed = site.send(request, n)
        seen = site.sees()
        allowed = {0: [done], None: [before, done]}.get(error, [before])
        assert seen in allowed, f"allocation {n}, error {error}: neither done nor left alone"
        pass_packets()
        if not failed:
            assert error == wanted, f"without a fault: {error}"
            print(f"{request.name}: {n - 1} allocations failed")
            return n - 1
    raise AssertionError(f"still failing after {MOST} allocations")


@pytest.fixture
def site(route: rtnl.Route, faults: Faults, device: int) -> Site:
    return Site(route, faults, device)


@pytest.mark.parametrize("request_", ADDS, ids=lambda r: r.name)
def test_add(site: Site, pass_packets: Callable[[], None], request_: Request) -> None:
    def prepare() -> None:
        site.send(delete("delete", HANDLE, rtnl.TC_H_ROOT))

    # The request itself, the qdisc, and the answer.
    assert fail_each(site, request_, prepare, pass_packets) >= 3


@pytest.mark.parametrize("request_", CHANGES, ids=lambda r: r.name)
def test_change(site: Site, pass_packets: Callable[[], None], request_: Request) -> None:
    assert fail_each(site, request_, lambda: reset(site), pass_packets) >= 2


@pytest.mark.parametrize("kind", [rtnl.RTM_GETQDISC, rtnl.RTM_GETTCLASS], ids=["qdisc", "class"])
def test_dump(site: Site, pass_packets: Callable[[], None], kind: int) -> None:
    """A dump that fails says so or breaks off; the next one is whole."""
    reset(site)
    pass_packets()
    whole = site.route.dump(kind, site.device)
    for n in range(1, MOST):
        site.faults.arm(n)
        try:
            seen = site.route.dump(kind, site.device)
        except (OSError, AssertionError):
            seen = None
        failed = site.faults.disarm()
        with rtnl.Route() as fresh:
            assert fresh.dump(kind, site.device) == whole
        pass_packets()
        if not failed:
            assert seen == whole
            assert n > 1
            return
        # What was not heard of a broken dump must not be taken for the next one's.
        site.route.close()
        site.route = rtnl.Route()
    raise AssertionError(f"still failing after {MOST} allocations")


def test_nothing_holds_the_module() -> None:
    """The last of these tests: every qdisc of the others is gone."""
    (line,) = [
        words
        for words in map(str.split, Path("/proc/modules").read_text().splitlines())
        if words[0] == "sch_mercury"
    ]
    assert line[2] == "0"
