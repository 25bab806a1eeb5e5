# SPDX-License-Identifier: MIT
"""
Fully sharded training: what the step waits for goes first.

The next layer's all-gather blocks the forward and the backward pass; a reduce-scatter blocks
nobody before the optimizer's step. PyTorch sends both through one process group, unless it is given
a second one.
"""

from __future__ import annotations

import torch.distributed as dist
from torch import nn

from mercury.torch.scheduler import Scheduler

_NEEDED = "set_separate_reduce_scatter_group"


def fully_shard(model: nn.Module, scheduler: Scheduler, **options: object) -> nn.Module:
    """
    PyTorch's fully_shard(model, **OPTIONS), with the all-gather in the first class of SCHEDULER
    and the reduce-scatter in the last. Call it on the inner modules first, as PyTorch's.

    Needs a PyTorch that can give the reduce-scatter a group of its own (2.13); without it
    NotImplementedError says what is missing, and nothing has changed. Where connections are made with
    the first operation (NCCL), call scheduler.adopt(-1) after the first step.
    """
    shard, mesh = _pytorch()
    if len(scheduler.groups) < 2:
        raise ValueError("the Scheduler has one class: nothing can go before anything else")
    device = next(model.parameters()).device.type
    options.setdefault("mesh", mesh.from_group(scheduler.groups[0], device))
    sharded = shard(model, **options)
    getattr(sharded, _NEEDED)(True)
    scheduler.adopt(-1)
    return sharded


def _pytorch() -> tuple[object, object]:
    if not dist.is_available():
        raise NotImplementedError("this PyTorch is built without torch.distributed")
    try:
        from torch.distributed.device_mesh import DeviceMesh
        from torch.distributed.fsdp import FSDPModule, fully_shard
    except Exception as problem:  # torch 1.13 with Python 3.11 raises ValueError at the import
        raise NotImplementedError(
            f"this PyTorch has no fully_shard() that can be used: {type(problem).__name__}: {problem}"
        ) from problem
    missing = [
        name
        for owner, name in ((FSDPModule, _NEEDED), (DeviceMesh, "from_group"))
        if not hasattr(owner, name)
    ]
    if missing:
        raise NotImplementedError(
            f"this PyTorch's fully_shard() sends all-gather and reduce-scatter through one group:"
            f" {', '.join(missing)} is missing"
        )
    return fully_shard, DeviceMesh
