#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""
DistributedDataParallel whose buckets travel in the class of their layers: two lines more.

    python3 -m mercury.run --nproc_per_node 2 -- train_ddp.py
"""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from mercury.torch import Scheduler, ddp_hook
from shapes import accuracy, batches, small_vgg


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    options = parser.parse_args()

    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    inner = small_vgg()
    model = DistributedDataParallel(inner)
    scheduler = Scheduler(inner, batches(rank, ranks, 0)[0][0])
    model.register_comm_hook(None, ddp_hook(scheduler))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    if rank == 0:
        print(scheduler.status())

    for epoch in range(options.epochs):
        for x, y in batches(rank, ranks, epoch):
            optimizer.zero_grad()
            loss = cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch}: loss {loss.item():.3f}, accuracy {accuracy(inner):.3f}", flush=True)

    dist.barrier()
    scheduler.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
