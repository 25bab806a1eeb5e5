# SPDX-License-Identifier: GPL-2.0
"""The order of a model's layers, and what they compute and send."""

from __future__ import annotations

import json
import pathlib
import subprocess
import time

import pytest
import torch
from torch import nn

from mercury.layers import read_csv
from mercury.torch import profile
from mercury.torch.tracing import trace

from daemon import BUILD
from models import Attention, Branches, Plain, Recurrent, Shared

TOKENS = torch.randint(10, (4, 6))


def names(model: nn.Module, batch: object) -> list[str]:
    return [layer.name for layer in trace(model, batch)]


def test_layers_are_in_the_order_of_the_forward_pass() -> None:
    assert names(Plain(), torch.randn(4, 8)) == ["first", "norm", "last"]


def test_a_shared_weight_is_needed_where_it_is_used_first() -> None:
    model = Shared()
    layers = trace(model, TOKENS)
    # The model is called before its modules, and uses `scale` itself.
    assert [layer.name for layer in layers] == ["Shared", "embed", "mix"]
    assert list(layers[1].parameters) == ["embed.weight"]
    assert layers[1].users == [model.embed, model.head]


def test_what_attention_takes_from_its_projection_is_its_own() -> None:
    layers = trace(Attention(), TOKENS)
    attention = layers[1]
    assert attention.name == "encoder.layers.0.self_attn"
    assert "encoder.layers.0.self_attn.out_proj.weight" in attention.parameters
    assert not any("out_proj" in layer.name for layer in layers)
    assert [layer.name for layer in layers][:4] == [
        "embed", "encoder.layers.0.self_attn", "encoder.layers.0.norm1", "encoder.layers.0.linear1",
    ]


def test_parameters_in_a_list_are_seen() -> None:
    layers = trace(Recurrent(), torch.randn(2, 3, 8))
    assert [layer.name for layer in layers] == ["lstm", "head"]
    assert len(layers[0].parameters) == 8


def test_frozen_layers_are_none_and_unused_ones_are_last() -> None:
    assert names(Branches(), torch.randn(4, 8)) == ["body", "head", "rare", "never"]
    assert names(Branches(), {"x": torch.randn(4, 8), "rare": True}) == [
        "body", "rare", "head", "never",
    ]


def test_tracing_and_profiling_leave_no_trace() -> None:
    model = Plain().eval()
    model.last.weight.grad = torch.ones(4, 16)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    trace(model, torch.randn(4, 8, generator=torch.Generator()))
    profile(model, torch.zeros(4, 8), repeats=1)
    assert torch.equal(torch.rand(3), expected)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert not any(module.training for module in model.modules())
    assert torch.equal(model.last.weight.grad, torch.ones(4, 16))
    assert model.first.weight.grad is None
    for module in model.modules():
        assert not module._forward_pre_hooks and not module._forward_hooks


def test_a_model_without_parameters_is_refused() -> None:
    with pytest.raises(ValueError, match="no parameter that is trained"):
        trace(nn.ReLU(), torch.zeros(1))
    with pytest.raises(ValueError, match="repeats"):
        profile(Plain(), torch.zeros(4, 8), repeats=0)


class _Slow(torch.autograd.Function):
    """Takes its time each way, as if computing."""

    @staticmethod
    def forward(ctx, x: torch.Tensor, forward: float, backward: float) -> torch.Tensor:
        time.sleep(forward)
        ctx.backward = backward
        return x.clone()

    @staticmethod
    def backward(ctx, gradient: torch.Tensor) -> tuple:
        time.sleep(ctx.backward)
        return gradient, None, None


class Slow(nn.Module):
    """A linear layer whose input takes FORWARD and BACKWARD seconds."""

    def __init__(self, forward: float, backward: float) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.times = (forward, backward)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _Slow.apply(self.linear(x), *self.times)


def test_times_are_those_of_the_layer_and_what_is_behind_it() -> None:
    model = nn.Sequential(Slow(0.0, 0.12), Slow(0.12, 0.0), nn.ReLU())
    first, second = profile(model, torch.randn(2, 8), repeats=3)
    assert (first.bytes, second.bytes) == (288, 288)
    # The machine may be slow: what is compared takes a tenth of a second in one and nothing in
    # the other.
    assert second.forward_ns > 100e6 and first.backward_ns > 100e6
    assert second.forward_ns > first.forward_ns
    assert first.backward_ns > second.backward_ns


@pytest.mark.parametrize("model", [Plain, Shared, Attention, Recurrent])
def test_mercuryctl_plans_what_was_profiled(tmp_path: pathlib.Path, model: type[nn.Module]) -> None:
    batch = {Plain: torch.randn(4, 8), Recurrent: torch.randn(2, 3, 8)}.get(model, TOKENS)
    file = tmp_path / "profile.csv"
    layers = profile(model(), batch, file, repeats=1)
    assert read_csv(file) == layers
    planned = json.loads(
        subprocess.check_output([BUILD / "cli/mercuryctl", "plan", file, "--json"])
    )
    assert [name for one in planned["classes"] for name in one["layers"]] == [l.name for l in layers]
    assert sum(one["bytes"] for one in planned["classes"]) == sum(l.bytes for l in layers)
    assert all(layer.forward_ns > 0 and layer.backward_ns > 0 for layer in layers)
