# SPDX-License-Identifier: GPL-2.0
"""Made-up results in the form of `replay cluster`, from a worker and a network of one queue.

What they look like is plausible; what they say is not a measurement of anything.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

Layers = list[tuple[str, int, float, float]]  # name, bytes, forward and backward ms

MODELS: dict[str, Layers] = {
    "small": [("conv1", 1_000_000, 4.0, 8.0), ("conv2", 9_000_000, 6.0, 12.0), ("fc", 40_000_000, 1.0, 2.0)],
    "deep": [(f"block{i}", 1_500_000 * (1 + i // 2), 5.0, 10.0) for i in range(12)],
}
BYTES_PER_MS = 1.1955e6  # 9.564 Gbit/s


class Worker:
    """One iteration after the other; IN_ORDER of need, or first come, first served."""

    def __init__(self, layers: Layers, in_order: bool, load: float) -> None:
        self.layers = layers
        self.in_order = in_order
        self.rate = BYTES_PER_MS / load
        self.now = 0.0
        self.queue: list[list[float]] = []  # layer, bytes left
        self.wire: list[list[float]] = []

    def advance(self, ms: float) -> None:
        self.now += ms
        budget = ms * self.rate
        sent = 0.0
        while self.queue and budget > 1e-9:
            item = min(self.queue) if self.in_order else self.queue[0]
            step = min(item[1], budget)
            item[1] -= step
            budget -= step
            sent += step
            if item[1] <= 1e-9:
                self.queue.remove(item)
        self.wire.append([self.now, sent, sent])

    def iteration(self) -> dict[str, Any]:
        start, self.wire = self.now, []
        backward, forward = [], []
        for layer in reversed(range(len(self.layers))):
            backward.append([layer, self.now - start, self.now - start + self.layers[layer][3]])
            self.advance(self.layers[layer][3])
            self.queue.append([layer, float(self.layers[layer][1])])
        for layer in range(len(self.layers)):
            while any(item[0] == layer for item in self.queue):
                self.advance(0.5)
            forward.append([layer, self.now - start, self.now - start + self.layers[layer][2]])
            self.advance(self.layers[layer][2])
        wire = [[until - start, out, back] for until, out, back in self.wire]
        return {
            "rank": 0,
            "iteration_ms": self.now - start,
            "backward": backward,
            "forward": forward,
            "wire": wire,
        }


def spread(values: Sequence[float]) -> dict[str, Any]:
    ordered = sorted(values)
    return {"median": ordered[len(ordered) // 2], "min": ordered[0], "max": ordered[-1], "values": list(values)}


def job(
    model: str, strategy: str, load: float, slowness: float, seed: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    layers = MODELS[model]
    worker = Worker(layers, strategy != "fifo", load)
    timeline = [worker.iteration() for _ in range(3)][-1]
    time = timeline["iteration_ms"] * slowness
    repeats = [[time * (1 + ((seed + 7 * r + 3 * i) % 11 - 5) / 400) for i in range(4)] for r in range(3)]
    compute = sum(forward + backward for _, _, forward, backward in layers)
    wire = sum(layer[1] for layer in layers) / BYTES_PER_MS * load
    bound = max(compute, wire)
    means = [sum(repeat) / len(repeat) for repeat in repeats]
    return {
        "model": model, "strategy": strategy, "placement": "dedicated", "workers": [0, 1], "servers": [2, 3],
        "bytes": sum(layer[1] for layer in layers), "layers": [list(layer) for layer in layers],
        "bound": {"compute_ms": compute, "wire_ms": wire, "total_ms": bound},
        "iteration_ms": spread(means), "iterations_ms": repeats, "over_bound": spread(means)["median"] / bound,
    }, timeline  # fmt: skip


SLOWNESS = {"fifo": 1.05, "bytescheduler": 1.02, "mercury": 1.01, "mercury-no-priority": 1.04, "tictac": 1.1}


def case(labels: dict[str, str], model: str, strategy: str, load: float, variant: str = "") -> dict[str, Any]:
    name = ", ".join([*labels.values(), *([variant] if variant else [])])
    slowness = SLOWNESS[strategy] * (1.15 if variant == "64kb" else 1)
    trained, timeline = job(model, strategy, load, slowness, len(name))
    return {
        "name": name, "labels": labels, "variant": variant,
        "settings": {"network": {"rate": "10gbit", "delay": "25us"}, "job": {"model": model, "load": load}},
        "jobs": {"job": trained},
        "background": {"upload": {"flows": 8, "goodput_gbit": spread([1.0, 1.1, 1.2])}},
        "retransmits": spread([0, 3, 12]), "timeouts": spread([0, 0, 0]),
        "drops": {**spread([0, 3, 12]), "by_place": {"port 3": 12}},
        "timeline": {"job": timeline}, "real_seconds": 4.2,
    }  # fmt: skip


def failed(labels: dict[str, str], error: str) -> dict[str, Any]:
    return {"name": ", ".join(labels.values()), "labels": labels, "variant": "", "settings": {}, "error": error}


def experiment(
    name: str, dimensions: dict[str, list[str]], cases: list[dict[str, Any]], **report: str
) -> dict[str, Any]:
    return {
        "experiment": name, "title": f"The {name} experiment", "description": "Made up, to look at the report.",
        "file": f"tests/bench/experiments/{name}.toml", "virtual_time": True, "complete": True,
        "dimensions": dimensions, "report": report, "cases": cases,
    }  # fmt: skip


def models(*names: str) -> dict[str, Any]:
    """Two models, or those that are named, and placements; a sweep, and a failure of "deep"."""
    strategies = list(SLOWNESS)
    dimensions = {
        "model": list(names or MODELS),
        "placement": ["dedicated", "co-located"],
        "strategy": strategies,
    }
    cases = []
    for model, placement, strategy in itertools.product(*dimensions.values()):
        labels = {"model": model, "placement": placement, "strategy": strategy}
        load = 1.0 if placement == "dedicated" else 1.75
        if strategy == "tictac" and model == "deep":
            cases.append(failed(labels, "worker 2 waits for layer 3 (block3) in iteration 1: nothing for 30 s"))
        elif strategy == "bytescheduler":
            cases += [case(labels, model, strategy, load, variant) for variant in ("64kb", "1mb")]
        else:
            cases.append(case(labels, model, strategy, load))
    return experiment("models", dimensions, cases, compare="strategy", baseline="fifo")


def ratio() -> dict[str, Any]:
    """A curve."""
    dimensions = {
        "wire_to_compute": ["0.25", "0.5", "1", "2", "4"],
        "strategy": ["fifo", "bytescheduler", "mercury"],
    }
    full = sum(layer[1] for layer in MODELS["deep"]) / BYTES_PER_MS
    compute = sum(layer[2] + layer[3] for layer in MODELS["deep"])
    cases = [
        case({"wire_to_compute": x, "strategy": strategy}, "deep", strategy, float(x) * compute / full)
        for x, strategy in itertools.product(*dimensions.values())
    ]
    return experiment("ratio", dimensions, cases, compare="strategy", baseline="fifo", x="wire_to_compute")


def shared() -> dict[str, Any]:
    """Qdiscs are compared; two jobs in one of the cells."""
    qdiscs = {"pfifo": "fifo", "mercury": "mercury"}
    dimensions = {"network": ["upload", "alone", "two jobs"], "qdisc": list(qdiscs)}
    cases = []
    for network, qdisc in itertools.product(*dimensions.values()):
        one = case(
            {"network": network, "qdisc": qdisc}, "small", qdiscs[qdisc], 1.2 if network == "alone" else 2
        )
        if network == "two jobs":
            one["jobs"]["other"], _ = job("deep", qdiscs[qdisc], 2, 1.0, 5)
        cases.append(one)
    return experiment("shared", dimensions, cases, compare="qdisc", baseline="pfifo")
