#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Count instructions per packet of queueing disciplines, with pktgen.

usage: packet.py [NAME...]; without a name, all of them

Runs in a virtual machine in which one instruction takes one nanosecond of guest
time (scripts/testbed/vm --icount); scripts/bench-packet starts it there. The
time that pktgen needs for a packet is then the number of instructions.

empty       the qdisc is the root of a dummy device and sends each packet at once
backlogged  it is the child of tbf and holds packets in all of its bands: what it
            costs to add a packet there, and then to take it away again

Both are given as instructions per packet over noqueue, the device without any
qdisc. The backlogged figure contains tbf, for all of them alike.
"""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

DEVICE = "bench0"
PACKETS_EMPTY = 20_000
# With a fifth of them, what else the kernel does meanwhile moves prio's figure by 4 %.
PACKETS_BACKLOGGED = 25_000
BYTES = 60  # of a frame without its checksum

# Far more than is queued here, so that nothing is dropped.
LIMIT = 1_000_000


@dataclass(frozen=True)
class Qdisc:
    """A qdisc at the setting that costs it least and drops nothing here."""

    name: str
    options: str
    # skb->priority of the packets that are put in before the measurement, a few
    # for each, and of the measured ones: the bands that a priority selects.
    priorities: range = range(1)
    per_priority: int = 8

    @property
    def measured(self) -> int:
        return self.priorities[len(self.priorities) // 2]


def mercury(bands: int, name: str = "", deadline: str = "3600s") -> Qdisc:
    # The clock leaps ahead whenever the machine is idle: at the default of 100 ms
    # all that is queued would be overdue, which it is not on a link that works.
    return Qdisc(name or f"mercury-{bands}", f"mercury bands {bands} key priority limit {LIMIT} "
                 f"deadline 0-{bands - 1} {deadline}", range(1, bands + 1))


QDISCS = [
    Qdisc("pfifo", f"pfifo limit {LIMIT}"),
    Qdisc("prio", "prio", range(8)),
    Qdisc("ets", "ets strict 3 priomap 1 2 2 2 1 2 0 0", range(8)),
    Qdisc("skbprio", f"skbprio limit {LIMIT}", range(64)),
    Qdisc("fq_codel", f"fq_codel limit {LIMIT} target 1000s interval 1000s"),
    Qdisc("fq", f"fq limit {LIMIT} flow_limit {LIMIT} nopacing"),
    Qdisc("cake-flowblind", "cake unlimited besteffort flowblind rtt 1000s memlimit 1gb"),
    Qdisc("cake", "cake unlimited rtt 1000s memlimit 1gb"),
    mercury(64, "mercury-nodeadline", "none"),
    mercury(2),
    mercury(64),
    mercury(1024),
]


def run(command: str) -> str:
    """Run a command without a shell; what it prints."""
    return subprocess.run(command.split(), check=True, capture_output=True, text=True).stdout


def write(path: str, *lines: str) -> None:
    for line in lines:
        Path(path).write_text(line + "\n")


def pktgen(packets: int, priority: int) -> int:
    """Send packets of one priority; the nanoseconds that it took."""
    device = f"/proc/net/pktgen/{DEVICE}"
    write(device, f"count {packets}", f"skb_priority {priority}")
    write("/proc/net/pktgen/pgctrl", "start")
    # "Result: OK: 12345(c12000+d345) usec, ..."
    result = next(line for line in Path(device).read_text().splitlines()
                  if line.startswith("Result: OK: "))
    return int(result.split()[2].split("(")[0]) * 1000


def set_up() -> None:
    for module in ("dummy", "pktgen"):
        run(f"modprobe {module}")
    # A whole queue is sent in one go, as far as this is concerned.
    write("/proc/sys/net/core/dev_weight", str(LIMIT))
    # The queues of prio and ets are as long as the device says.
    run(f"ip link add {DEVICE} type dummy")
    run(f"ip link set {DEVICE} txqueuelen {PACKETS_BACKLOGGED + 1000}")
    write(f"/proc/sys/net/ipv6/conf/{DEVICE}/disable_ipv6", "1")
    run(f"ip link set {DEVICE} up")
    write("/proc/net/pktgen/kpktgend_0", f"add_device {DEVICE}")
    # pktgen keeps and awaits its last packet unless told not to share it.
    write(f"/proc/net/pktgen/{DEVICE}", "xmit_mode queue_xmit", f"pkt_size {BYTES}",
          "clone_skb 0", "flag !SHARED", "delay 0", "dst 198.18.0.1", "src_min 198.18.0.2",
          "dst_mac 02:00:00:00:00:01", "udp_src_min 9", "udp_src_max 9")


def qdiscs() -> list[dict]:
    return json.loads(run(f"tc -j -s qdisc show dev {DEVICE}"))


def dropped() -> int:
    return sum(qdisc["drops"] for qdisc in qdiscs())


def instructions(packets: int, priority: int) -> float:
    return pktgen(packets, priority) / packets


def noqueue() -> float:
    run(f"tc qdisc replace dev {DEVICE} root noqueue")
    pktgen(1000, 0)
    return instructions(PACKETS_EMPTY, 0)


def empty(qdisc: Qdisc) -> float:
    run(f"tc qdisc replace dev {DEVICE} root handle 1: {qdisc.options}")
    pktgen(1000, qdisc.measured)
    cost = instructions(PACKETS_EMPTY, qdisc.measured)
    sent = qdiscs()[0]["packets"]
    run(f"tc qdisc del dev {DEVICE} root")
    if sent != PACKETS_EMPTY + 1000:
        sys.exit(f"{qdisc.name}: sent {sent} packets and not {PACKETS_EMPTY + 1000}")
    return cost


def backlogged(qdisc: Qdisc) -> float:
    # On a busy machine the clock leaps by minutes, in which tbf lets a packet go.
    for _ in range(5):
        cost = try_backlogged(qdisc)
        if cost is not None:
            return cost
    sys.exit(f"{qdisc.name}: it did not hold {PACKETS_BACKLOGGED} packets in any of 5 attempts")


def try_backlogged(qdisc: Qdisc) -> float | None:
    # As slow as tbf can be: nothing leaves while the queue is filled.
    tbf = f"dev {DEVICE} root handle 1: tbf burst 200 limit 1gb rate"
    run(f"tc qdisc add {tbf} 8bit")
    run(f"tc qdisc add dev {DEVICE} parent 1:1 handle 2: {qdisc.options}")
    pktgen(8, qdisc.measured)  # tbf's burst, and more
    for priority in qdisc.priorities:
        pktgen(qdisc.per_priority, priority)
    before = qdiscs()[0]["qlen"]
    put = instructions(PACKETS_BACKLOGGED, qdisc.measured)
    queued = qdiscs()[0]["qlen"]
    run(f"tc qdisc change {tbf} 1tbit")
    take = pktgen(1, qdisc.measured) / (queued + 1)
    left, lost = qdiscs()[0]["qlen"], dropped()
    run(f"tc qdisc del dev {DEVICE} root")
    if left or lost:
        sys.exit(f"{qdisc.name}: {left} packets left and {lost} dropped at the end")
    return put + take if queued - before == PACKETS_BACKLOGGED else None


def main(names: list[str]) -> None:
    known = [qdisc.name for qdisc in QDISCS]
    for name in names:
        if name not in known:
            sys.exit(f"unknown qdisc '{name}': there are {', '.join(known)}")
    set_up()
    base = noqueue()
    over: dict[str, dict[str, int]] = {"empty": {}, "backlogged": {}}
    print(f"{'instructions per packet':<24}{'empty':>10}{'backlogged':>12}")
    print(f"{'noqueue':<24}{base:>10.0f}{'':>12}")
    for qdisc in QDISCS:
        if names and qdisc.name not in names:
            continue
        over["empty"][qdisc.name] = round(empty(qdisc) - base)
        over["backlogged"][qdisc.name] = round(backlogged(qdisc) - base)
        print(f"{qdisc.name:<24}{over['empty'][qdisc.name]:>+10}"
              f"{over['backlogged'][qdisc.name]:>+12}", flush=True)
    report = {"kernel": os.uname().release, "noqueue": round(base),
              "instructions_over_noqueue": over}
    Path(os.environ["MERCURY_RESULTS"], "bench-packet.json").write_text(
        json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
