# SPDX-License-Identifier: GPL-2.0
"""Fully sharded training, where PyTorch can do it: what of ours can be seen without that."""

from __future__ import annotations

import pytest
import torch

import scenarios
from daemon import Daemon
from mercury.torch import sharded
from ranks import run


def test_what_pytorch_lacks_is_named() -> None:
    """Whichever is installed."""
    try:
        from torch.distributed.fsdp import FSDPModule
    except Exception:
        expected = "no fully_shard"
    else:
        if hasattr(FSDPModule, "set_separate_reduce_scatter_group"):
            pytest.skip(f"PyTorch {torch.__version__} has all of it")
        expected = "set_separate_reduce_scatter_group is missing"
    with pytest.raises(NotImplementedError, match=expected):
        sharded._pytorch()


def test_the_all_gather_is_first_and_the_reduce_scatter_last(daemon: Daemon) -> None:
    """With something in PyTorch's place that makes a group as it does."""
    for seen in run(2, scenarios.shard, daemon=daemon.socket):
        assert seen["mesh"] == "the first class"
        assert seen["asked"] == [True]
        assert seen["new"] == [1 << 16 | seen["classes"]]
