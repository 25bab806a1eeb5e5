# SPDX-License-Identifier: MIT
"""Layers of a model, how they are grouped into classes, and their file."""

from __future__ import annotations

import csv
import pathlib
from collections.abc import Sequence
from dataclasses import dataclass

CLASSES_DEFAULT = 6
CLASSES_MAX = 32
LAYERS_MAX = 1024
NAME_BYTES_MAX = 128
LAYER_BYTES_MAX = 10**13
LAYER_NS_MAX = 3600 * 10**9

_CSV_HEADER = ("idx", "layer", "fwd_ms", "bwd_ms", "param_bytes")


@dataclass(frozen=True)
class Layer:
    """In the order of the forward pass; a time of 0 is not known."""

    name: str
    bytes: int  # of the gradient
    forward_ns: int = 0
    backward_ns: int = 0


@dataclass(frozen=True)
class LayerClass:
    """A run of layers that share a connection to each peer. Class 0 is needed first."""

    first: int
    last: int  # included


def check_name(what: str, name: str) -> None:
    size = len(name.encode(errors="surrogatepass"))
    control = any(ord(c) < 0x20 or ord(c) == 0x7F for c in name)
    surrogate = any(0xD800 <= ord(c) <= 0xDFFF for c in name)
    if not 1 <= size <= NAME_BYTES_MAX or control or surrogate:
        raise ValueError(
            f"{what} must have 1 to {NAME_BYTES_MAX} bytes, without control characters"
        )


def check_layers(layers: Sequence[Layer]) -> None:
    if not 1 <= len(layers) <= LAYERS_MAX:
        raise ValueError(f"a job has 1 to {LAYERS_MAX} layers, not {len(layers)}")
    for i, layer in enumerate(layers):
        check_name(f"the name of layer {i}", layer.name)
        if not 1 <= layer.bytes <= LAYER_BYTES_MAX:
            raise ValueError(
                f"layer {i} must have 1 to {LAYER_BYTES_MAX} bytes, not {layer.bytes}"
            )
        if not all(0 <= t <= LAYER_NS_MAX for t in (layer.forward_ns, layer.backward_ns)):
            raise ValueError(f"the times of layer {i} must be at most one hour")


def group_layers(layers: Sequence[Layer], max_classes: int) -> list[LayerClass]:
    """The rule of userspace/layers/classes.hpp, which mercuryd follows, too."""
    if not 1 <= max_classes <= CLASSES_MAX:
        raise ValueError(f"classes must be 1 to {CLASSES_MAX}, not {max_classes}")
    if len(layers) <= max_classes:
        return [LayerClass(i, i) for i in range(len(layers))]
    total = sum(layer.bytes for layer in layers)
    cuts: list[int] = []
    shift = 1
    while len(cuts) + 1 < max_classes:
        cuts.append(total >> shift)
        if shift > 1 and len(cuts) + 1 < max_classes:
            cuts.append(total - (total >> shift))
        shift += 1
    cuts.sort(reverse=True)
    starts: list[int] = []
    before = 0
    for i, layer in enumerate(layers):
        is_first = not starts
        while cuts and before + layer.bytes // 2 >= cuts[-1]:
            cuts.pop()
            is_first = True
        if is_first:
            starts.append(i)
        before += layer.bytes
    ends = [start - 1 for start in starts[1:]] + [len(layers) - 1]
    return [LayerClass(first, last) for first, last in zip(starts, ends)]


def write_csv(path: str | pathlib.Path, layers: Sequence[Layer]) -> None:
    """What `replay` and `mercuryctl plan` read."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(_CSV_HEADER)
        for i, layer in enumerate(layers):
            times = (f"{ns / 1e6:.6f}" for ns in (layer.forward_ns, layer.backward_ns))
            writer.writerow((i, layer.name, *times, layer.bytes))


def read_csv(path: str | pathlib.Path) -> list[Layer]:
    with open(path, newline="", encoding="utf-8") as file:
        rows = csv.reader(file)
        if tuple(next(rows, ())) != _CSV_HEADER:
            raise ValueError(f'{path}: the first line must be "{",".join(_CSV_HEADER)}"')
        try:
            layers = [
                Layer(name, int(size), round(float(fwd) * 1e6), round(float(bwd) * 1e6))
                for _, name, fwd, bwd, size in rows
            ]
        except ValueError as problem:
            raise ValueError(f"{path}:{rows.line_num}: {problem}") from None
    check_layers(layers)
    return layers
