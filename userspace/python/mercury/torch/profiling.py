# SPDX-License-Identifier: MIT
"""What each layer of a model computes and sends, measured here."""

from __future__ import annotations

import contextlib
import pathlib
import statistics
import time
from collections.abc import Callable

import torch
from torch import nn

from mercury.layers import Layer, write_csv
from mercury.torch.tracing import TracedLayer, call, on_gradient, tensors_in, trace, undisturbed


def _mean(output: object) -> torch.Tensor:
    losses = [t.float().mean() for t in tensors_in([output]) if t.requires_grad]
    if not losses:
        raise ValueError("the model's output depends on no parameter: give profile() a loss")
    return torch.stack(losses).sum()


class _Stopwatch:
    """Time since the last lap goes to the layer that LAP names."""

    def __init__(self, device: torch.device, layers: int) -> None:
        self._cuda = device.type == "cuda"
        self.times = [0] * layers
        self._since = 0

    def _now(self) -> int:
        if self._cuda:
            torch.cuda.synchronize()
        return time.perf_counter_ns()

    def start(self) -> None:
        self.times = [0] * len(self.times)
        self._since = self._now()

    def lap(self, layer: int) -> None:
        now = self._now()
        self.times[layer] += now - self._since
        self._since = now


def _measure(
    model: nn.Module,
    batch: object,
    loss: Callable[[object], torch.Tensor],
    layers: list[TracedLayer],
    repeats: int,
) -> list[tuple[list[int], list[int]]]:
    """Of each repeat, the forward and backward times of the layers, ns."""
    watch = _Stopwatch(next(model.parameters()).device, len(layers))
    running = 0  # the layer that was entered last
    index_of_user = {user: i for i, layer in enumerate(layers) for user in layer.users}
    index_of = {p: i for i, layer in enumerate(layers) for p in layer.parameters.values()}

    def enter(module: nn.Module, _: object) -> None:
        nonlocal running
        watch.lap(running)
        running = index_of_user[module]

    results = []
    with contextlib.ExitStack() as stack:
        # Whoever comes second is on the outside, and put back first.
        stack.enter_context(undisturbed(model))
        for user in index_of_user:
            stack.callback(user.register_forward_pre_hook(enter).remove)
        for parameter in index_of:
            stack.callback(on_gradient(parameter, lambda p: watch.lap(index_of[p])))
        for _ in range(repeats + 1):
            model.zero_grad(set_to_none=True)
            running = 0
            watch.start()
            value = loss(call(model, batch))
            watch.lap(running)
            forward = watch.times
            watch.start()
            value.backward()
            results.append((forward, watch.times))
        model.zero_grad(set_to_none=True)
    return results[1:]  # the first one warms up


def profile(
    model: nn.Module,
    batch: object,
    path: str | pathlib.Path | None = None,
    *,
    loss: Callable[[object], torch.Tensor] | None = None,
    repeats: int = 5,
) -> list[Layer]:
    """
    Forward and backward time and gradient bytes of each layer in the order of the forward pass; the
    time of what has no parameters goes to the layer before. Medians of REPEATS passes over BATCH
    (arguments, if it is a tuple, or named ones, if it is a mapping) after one to warm up.

    LOSS makes the output a number; without it the mean of all outputs is used. Written to PATH, the
    layers are a CSV that `replay` and `mercuryctl plan` read, and Scheduler(profile=...) as well.
    The model is left as it was.
    """
    if repeats < 1:
        raise ValueError(f"repeats must be at least 1, not {repeats}")
    layers = trace(model, batch)
    results = _measure(model, batch, loss or _mean, layers, repeats)
    forward, backward = (
        [round(statistics.median(times)) for times in zip(*(one[i] for one in results))]
        for i in range(2)
    )
    measured = [
        Layer(layer.name, layer.bytes, *times)
        for layer, *times in zip(layers, forward, backward)
    ]
    if path is not None:
        write_csv(path, measured)
    return measured
