"""Latent points with scores, of which the truth is known."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Case(NamedTuple):
    train_z: Tensor
    train_y: Tensor
    test_z: Tensor
    test_y: Tensor


NOISE = 0.05


def wavy(train: int = 300, test: int = 200, channels: int = 4) -> Case:
    """A smooth function of the first two coordinates, plus noise of deviation 0.05."""
    generator = torch.Generator().manual_seed(3)
    z = torch.randn(train + test, channels, generator=generator, dtype=torch.double)
    z = z * torch.logspace(-2, 1, channels, dtype=torch.double) + 5  # coordinates of any scale
    u = (z - z.mean(dim=0)) / z.std(dim=0)
    noise = NOISE * torch.randn(len(z), generator=generator, dtype=torch.double)
    y = 0.7 + 2 * (torch.sin(1.5 * u[:, 0]) + 0.5 * u[:, 1].square() + noise)
    return Case(z[:train], y[:train], z[train:], y[train:])
