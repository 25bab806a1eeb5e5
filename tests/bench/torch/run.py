#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""
How long a training step of torch.distributed takes, each way. To be run by scripts/bench-torch.

    run.py emulated FILE [OPTION...]    in virtual time: computing is sleeping in autograd functions
    run.py real FILE [OPTION...]        small models that are really computed
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import pathlib
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from cluster import Bulk, Cluster, Servers

TREE = pathlib.Path(__file__).resolve().parents[3]
BUILD = pathlib.Path(os.environ.get("MERCURY_BUILD", TREE / "build/userspace"))
sys.path.insert(0, str(TREE / "userspace/python"))

os.environ.setdefault("MERCURY_TRANSPORT_LIBRARY", str(BUILD / "transport/libmercury_transport.so"))

from mercury import hints  # noqa: E402
from mercury.torch import CrossIteration, Scheduler, ddp_hook, ps_hook  # noqa: E402

SO_MARK = 36
JOB = 1
SERVER_PORT = 7700
WARM_UP = 4  # iterations: DDP makes its buckets anew in the second one


@dataclass(frozen=True)
class Variant:
    name: str
    way: str  # ddp, hook, cross or servers
    qdisc: str
    marks: str  # none, equal, needed or reversed


VARIANTS = [
    Variant("DDP", "ddp", "fq_codel", "none"),
    Variant("DDP, mercury", "hook", "mercury", "needed"),
    Variant("CrossIteration, equal", "cross", "mercury", "equal"),
    Variant("CrossIteration, fq", "cross", "fq limit 100000 flow_limit 100000", "none"),
    Variant("CrossIteration, mercury", "cross", "mercury", "needed"),
    Variant("CrossIteration, reversed", "cross", "mercury", "reversed"),
    Variant("DDP, push-pull", "servers", "mercury", "needed"),
]


class Marker:
    """
    In place of hints.Client: marks sockets itself, as mercuryd would, or against the rule, which
    mercuryd does not do.
    """

    def __init__(self, marks: str) -> None:
        self._marks = marks

    def job(self, name: str, layers: Sequence[hints.Layer], classes: int) -> None:
        self._classes = hints.group_layers(layers, classes)

    def assign(self, fd: int, layer: int, lowat: int) -> None:
        index = next(i for i, one in enumerate(self._classes) if layer <= one.last)
        band = {"none": None, "equal": 1, "needed": index + 1, "reversed": len(self._classes) - index}
        with hints.borrowed(fd) as sock:
            sock.setsockopt(6, 25, lowat)
            if (mark := band[self._marks]) is not None:
                sock.setsockopt(1, SO_MARK, JOB << 16 | mark)

    def step(self) -> None:
        pass

    def close(self) -> None:
        pass


# Models -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shape:
    """Of each layer, bytes of its gradient and seconds forward and backward."""

    layers: list[tuple[int, float, float]]

    @property
    def compute(self) -> float:
        return sum(forward + backward for _, forward, backward in self.layers)

    @property
    def bytes(self) -> int:
        return sum(size for size, _, _ in self.layers)


def _shape(sizes: Sequence[int], times: Sequence[int], forward: float) -> Shape:
    """TIMES are parts of FORWARD; the backward pass takes twice as long."""
    unit = forward / sum(times)
    return Shape([(size // 4 * 4, t * unit, 2 * t * unit) for size, t in zip(sizes, times)])


# VGG-16's parameters, a fortieth of them, and its operations (tests/daemon has the same figures).
_VGG_BYTES = [7168, 147712, 295424, 590336, 1180672, 2360320, 2360320, 4720640, 9439232, 9439232,
              9439232, 9439232, 9439232, 411058176, 67125248, 16388000]  # fmt: skip
_VGG_TIMES = [2, 9, 4, 8, 4, 7, 7, 4, 7, 7, 2, 2, 2, 1, 1, 1]
FORWARD = 0.34
SHAPES = {
    "uniform": _shape([865_000] * 16, [1] * 16, FORWARD),
    "vgg": _shape([size // 40 for size in _VGG_BYTES], _VGG_TIMES, FORWARD),
}


class _Compute(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: torch.Tensor, weight: torch.Tensor, forward: float, backward: float) -> torch.Tensor:
        time.sleep(forward)
        ctx.size, ctx.time = weight.shape, backward
        return x.clone()

    @staticmethod
    def backward(ctx, gradient: torch.Tensor) -> tuple:
        time.sleep(ctx.time)
        return gradient, torch.ones(ctx.size), None, None


class EmulatedLayer(nn.Module):
    def __init__(self, size: int, forward: float, backward: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(size // 4))
        self.times = (forward, backward)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _Compute.apply(x, self.weight, *self.times)


def emulated(name: str) -> tuple[nn.Module, torch.Tensor]:
    layers = (EmulatedLayer(*one) for one in SHAPES[name].layers)
    return nn.Sequential(*layers), torch.zeros(1, requires_grad=True)


class SmallVGG(nn.Module):
    """Convolutions that compute, and a fully connected layer that has most of the bytes."""

    def __init__(self) -> None:
        super().__init__()
        widths = [3, 32, 64, 64, 128, 128]
        blocks = []
        for i, (before, after) in enumerate(itertools.pairwise(widths)):
            blocks += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU()]
            if i % 2:
                blocks.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*blocks)
        self.classifier = nn.Sequential(
            nn.Flatten(), nn.Linear(128 * 8 * 8, 128), nn.ReLU(), nn.Linear(128, 10)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.features(x))


class SmallTransformer(nn.Module):
    """Layers of one size."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(256, 128)
        layer = nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 8)
        self.head = nn.Linear(128, 256)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(self.embed(x)))


def real(name: str) -> tuple[nn.Module, torch.Tensor]:
    if name == "vgg":
        return SmallVGG(), torch.randn(8, 3, 32, 32)
    return SmallTransformer(), torch.randint(256, (8, 64))


# One rank -----------------------------------------------------------------------------------------


def train(
    rank: int,
    make: Callable[[], tuple[nn.Module, torch.Tensor]],
    variant: Variant,
    servers: Sequence[str],
    iterations: int,
) -> dict[str, object]:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    inner, batch = make()
    optimizer = torch.optim.SGD(inner.parameters(), lr=1e-4, momentum=0.9)
    scheduler, model = None, None
    if variant.way != "ddp":
        scheduler = Scheduler(inner, batch, client=Marker(variant.marks))
    if variant.way == "cross":
        model = CrossIteration(inner, optimizer, scheduler)
    else:
        # A bucket for each layer, about: the models are small.
        model = DistributedDataParallel(inner, bucket_cap_mb=1, gradient_as_bucket_view=True)
    if variant.way == "hook":
        model.register_comm_hook(None, ddp_hook(scheduler))
    if variant.way == "servers":
        model.register_comm_hook(None, ps_hook(scheduler, inner, servers, marks=JOB))
    starts = []
    for i in range(WARM_UP + iterations + 1):
        starts.append(time.monotonic())
        if i == WARM_UP and variant.way == "cross":
            model.waits()
        if i == WARM_UP + iterations:
            break
        optimizer.zero_grad(set_to_none=True)
        model(batch).float().square().mean().backward()
        optimizer.step()
    waits = model.waits() if variant.way == "cross" else {}
    if variant.way == "cross":
        model.synchronize()
    dist.barrier()  # gloo closes connections to a rank that has ended
    steps = [after - before for before, after in itertools.pairwise(starts[WARM_UP:])]
    return {"steps": steps, "waits": {layer: wait / iterations for layer, wait in waits.items()}}


# All of it ----------------------------------------------------------------------------------------


def measure(
    cluster: Cluster,
    make: Callable[[], tuple[nn.Module, torch.Tensor]],
    variant: Variant,
    flows: int,
    iterations: int,
    limit: float,
) -> dict[str, object]:
    cluster.shape(variant.qdisc)
    bulk = Bulk(cluster, flows) if flows else None
    servers = None
    try:
        if variant.way == "servers":
            program = str(BUILD / "transport/mercury-server")
            servers = Servers(cluster, program, SERVER_PORT)
        addresses = servers.addresses if servers else []
        before, start = (bulk.received() if bulk else 0), time.monotonic()
        results = cluster.ranks(lambda rank: train(rank, make, variant, addresses, iterations), limit)
        took = time.monotonic() - start
        received = bulk.received() - before if bulk else 0
    finally:
        if servers:
            servers.end()
        if bulk:
            bulk.end()
    steps = results[0]["steps"]
    return {
        "variant": variant.name,
        "qdisc": variant.qdisc.split()[0],
        "bulk": bool(flows),
        "step_ms": round(statistics.median(steps) * 1e3, 1),
        "steps_ms": [round(step * 1e3, 1) for step in steps],
        "waits_ms": {layer: round(wait * 1e3, 1) for layer, wait in results[0]["waits"].items()},
        "bulk_mbit": round(received * 8 / took / cluster.hosts / 1e6, 1),
    }


def bound_of(shape: Shape, hosts: int, rate: int) -> dict[str, float]:
    """Of a ring: each host sends 2 (n - 1) / n of the gradients. Headers are left out."""
    wire = shape.bytes * 8 * 2 * (hosts - 1) / hosts / rate
    return {"compute_ms": round(shape.compute * 1e3, 1), "wire_ms": round(wire * 1e3, 1)}


MODELS = {"emulated": ["uniform", "vgg"], "real": ["transformer", "vgg"]}


def parse(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=["emulated", "real"])
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--rate", type=int, default=160_000_000, help="of a host's link, bit/s")
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--flows", type=int, default=2, help="of bulk, from each host")
    parser.add_argument("--model", action="append", help="only this one (repeatable)")
    parser.add_argument("--variant", action="append", help="only with this in its name (repeatable)")
    parser.add_argument("--alone", action="store_true", help="not beside bulk")
    parser.add_argument("--count", action="store_true", help="print the number of cells only")
    parser.add_argument("--cell", type=int, help="only this one, from 0, whose result is added to FILE")
    options = parser.parse_args(words)
    for name in ("rate", "iterations", "repeats", "flows"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} must be at least 1")
    if not 2 <= options.hosts <= 16:
        parser.error("--hosts must be 2 to 16")
    models = MODELS[options.kind]
    for model in options.model or ():
        if model not in models:
            parser.error(f"--model {model}: there are {', '.join(models)}")
    options.variants = [
        v for v in VARIANTS if not options.variant or any(w in v.name for w in options.variant)
    ]
    if not options.variants:
        parser.error(f"--variant: there are {'; '.join(v.name for v in VARIANTS)}")
    return options


def main() -> None:
    options = parse(sys.argv[1:])
    flows = (0,) if options.alone else (0, options.flows)
    models = options.model or MODELS[options.kind]
    cells = list(itertools.product(models, flows, options.variants, range(options.repeats)))
    if options.count:
        print(len(cells))
        return
    make = {"emulated": emulated, "real": real}[options.kind]
    document = {
        "kind": options.kind,
        "kernel": platform.release(),
        "torch": torch.__version__,
        "hosts": options.hosts,
        "rate_mbit": options.rate / 1e6,
        "iterations": options.iterations,
        "flows": options.flows,
        "cells": [],
    }
    if options.kind == "emulated":
        document["bounds"] = {m: bound_of(SHAPES[m], options.hosts, options.rate) for m in SHAPES}
    if options.cell is not None:
        cells = [cells[options.cell]]
        if options.cell and options.file.exists():
            document = json.loads(options.file.read_text())
    cluster = Cluster(options.hosts, options.rate)
    for model, bulk, variant, repeat in cells:
        cell = measure(cluster, lambda: make(model), variant, bulk, options.iterations, 1000)
        document["cells"].append({"model": model, "repeat": repeat, **cell})
        print(f"{model:12} {'beside bulk' if bulk else 'alone':12} {variant.name:26}"
              f" {cell['step_ms']:8.1f} ms  bulk {cell['bulk_mbit']:.1f} Mbit/s", flush=True)  # fmt: skip
        options.file.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
