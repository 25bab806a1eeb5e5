#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""
The next forward pass begins before the last gradient has arrived. With a learning rate that falls,
and a checkpoint after each epoch, from which it goes on when it is started again.

    python3 -m mercury.run --nproc_per_node 2 -- train_cross.py --checkpoint shapes.pt
"""

from __future__ import annotations

import argparse
import pathlib

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy

from mercury.torch import CrossIteration, Scheduler
from shapes import accuracy, batches, small_vgg


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--checkpoint", type=pathlib.Path)
    options = parser.parse_args()

    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    inner = small_vgg()
    optimizer = torch.optim.SGD(inner.parameters(), lr=0.01, momentum=0.9)
    scheduler = Scheduler(inner, batches(rank, ranks, 0)[0][0])
    model = CrossIteration(inner, optimizer, scheduler)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.2)
    if rank == 0:
        print(scheduler.status())

    first = 0
    if options.checkpoint and options.checkpoint.exists():
        saved = torch.load(options.checkpoint)
        inner.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        schedule.load_state_dict(saved["schedule"])
        first = saved["epoch"] + 1

    for epoch in range(first, options.epochs):
        for x, y in batches(rank, ranks, epoch):
            optimizer.zero_grad()
            loss = cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
        schedule.step()
        if rank == 0:
            print(f"epoch {epoch}: loss {loss.item():.3f}, accuracy {accuracy(inner):.3f}", flush=True)
            if options.checkpoint:
                state = {"epoch": epoch, "model": inner.state_dict()}
                state |= {"optimizer": optimizer.state_dict(), "schedule": schedule.state_dict()}
                torch.save(state, options.checkpoint)
    if rank == 0:
        waited = sorted(model.waits().items(), key=lambda one: -one[1])[:3]
        print("waited longest for", ", ".join(f"{name} ({time:.3f} s)" for name, time in waited))

    dist.barrier()
    scheduler.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
