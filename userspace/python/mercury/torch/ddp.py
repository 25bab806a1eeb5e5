# SPDX-License-Identifier: MIT
"""DistributedDataParallel whose buckets travel in the class of their layers."""

from collections.abc import Callable

import torch
import torch.distributed as dist

from mercury.torch.scheduler import Scheduler

# DDP looks at the annotations of a hook, which therefore are no strings here.
Hook = Callable[[object, dist.GradBucket], torch.futures.Future[torch.Tensor]]


def ddp_hook(scheduler: Scheduler) -> Hook:
    """
    For DistributedDataParallel.register_comm_hook(None, ddp_hook(scheduler)): the mean over all ranks,
    as without a hook. A bucket has the class of the parameter in it that is needed first; DDP may
    put other parameters into it at any time.

    DDP waits for all buckets before the optimizer's step, so that a job that is alone on its network
    gains nothing from their order: see CrossIteration. One beside other traffic does.
    """
    share = 1.0 / dist.get_world_size()

    def reduce(_: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        if bucket.index() == 0:
            scheduler.step()
        group = scheduler.group_of(bucket.parameters())
        work = dist.all_reduce(bucket.buffer().mul_(share), group=group, async_op=True)
        return work.get_future().then(lambda done: done.value()[0])

    return reduce
