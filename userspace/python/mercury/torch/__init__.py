# SPDX-License-Identifier: MIT
"""PyTorch's gradients in the order in which the next forward pass needs them; see docs/pytorch.md."""

from mercury.torch.cross import CrossIteration
from mercury.torch.ddp import ddp_hook
from mercury.torch.profiling import profile
from mercury.torch.push_pull import ps_hook
from mercury.torch.scheduler import Scheduler
from mercury.torch.sharded import fully_shard

__all__ = ["CrossIteration", "Scheduler", "ddp_hook", "fully_shard", "profile", "ps_hook"]
