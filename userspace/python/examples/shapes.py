# SPDX-License-Identifier: MIT
"""
What the examples train: a small VGG that tells circles, squares and crosses apart. The pictures are
drawn here, with noise, so that nothing needs to be downloaded.
"""

from __future__ import annotations

import torch
from torch import nn

SIDE = 16


def pictures(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Grey pictures, and the class of each."""
    random = torch.Generator().manual_seed(seed)
    classes = torch.randint(3, (count,), generator=random)
    centre = torch.rand(count, 2, 1, 1, generator=random) * 6 + 5
    size = torch.rand(count, 1, 1, generator=random) * 2 + 3
    grid = torch.stack(torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij"))
    x, y = (grid[None] - centre).unbind(1)
    circle = (x**2 + y**2).sqrt() - size
    square = torch.maximum(x.abs(), y.abs()) - size
    cross = torch.maximum(torch.minimum(x.abs(), y.abs()) - 1, square)
    distance = torch.stack([circle, square, cross])[classes, torch.arange(count)]
    noise = torch.randn(count, SIDE, SIDE, generator=random) / 4
    return ((distance < 0) + noise)[:, None], classes


def small_vgg() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.Flatten(),
        nn.Linear(64 * SIDE, 64), nn.ReLU(), nn.Linear(64, 3),
    )  # fmt: skip


def batches(rank: int, ranks: int, epoch: int, size: int = 32) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Of this rank, all of the same size, in another order in each epoch."""
    x, y = pictures(2048, seed=1)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(epoch))
    mine = order[rank::ranks][: len(x) // ranks // size * size]
    return [(x[part], y[part]) for part in mine.split(size)]


def accuracy(model: nn.Module) -> float:
    """On pictures that were not trained on."""
    x, y = pictures(512, seed=2)
    model.eval()
    with torch.no_grad():
        right = (model(x).argmax(1) == y).float().mean().item()
    model.train()
    return right
