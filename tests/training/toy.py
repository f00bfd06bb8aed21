"""A small module with all that makes resuming hard: dropout, momentum, random order, validation."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn
from torch_geometric.data import Batch, Data

from dagnn import DAGNN, FlatGraphs, FlatLoader
from dagnn.training import FitResult, Plateau, bookkeeper, checkpoints, fit

EPOCHS = 4


def graphs(count: int = 22) -> FlatGraphs:
    generator = torch.Generator().manual_seed(7)
    out = []
    for i in range(count):
        n = 3 + i % 5
        parent = torch.cat([torch.randint(v, (1,), generator=generator) for v in range(1, n)])
        edge_index = torch.stack([parent, torch.arange(1, n)])
        x = torch.randn(n, 3, generator=generator)
        out.append(Data(x=x, edge_index=edge_index, y=torch.randn(1, generator=generator)))
    return FlatGraphs.from_data_list(out)


class Toy(LightningModule):
    def __init__(self, dropout: float = 0.2) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.encoder = DAGNN(3, 8, 2, 4, bidirectional=True, dropout=dropout)
        self.head = nn.Sequential(nn.Dropout(1.5 * dropout), nn.Linear(4, 1))
        self.poison: int | None = None  # the step whose loss is not a number

    def loss(self, batch: Batch) -> Tensor:
        return (self.head(self.encoder(batch)).squeeze(-1) - batch.y).square().mean()

    def training_step(self, batch: Batch, index: int) -> Tensor:
        loss = self.loss(batch)
        return loss * float("nan") if self.global_step == self.poison else loss

    def validation_step(self, batch: Batch, index: int) -> None:
        loss = self.loss(batch)
        self.log("valid_loss", loss, batch_size=batch.num_graphs, sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.01)


def train(
    folder: Path,
    module: LightningModule | None = None,
    loaders: tuple[FlatLoader, FlatLoader] | None = None,
    **changes: Any,
) -> FitResult:
    options: dict[str, Any] = {
        "folder": folder,
        "epochs": EPOCHS,
        "monitor": "valid_loss",
        "patience": 3,
        "plateau": Plateau(0, 0.5),
        "clip": 1.0,
        "seed": 1,
        "config": {"model": {"name": "toy", "layers": 2}},
        "device": "cpu",
        "progress": False,
        "checkpoint_every_steps": 2,
    }
    if loaders is None:
        data = graphs()
        train_loader = FlatLoader(data.select(range(16)), 4, shuffle=True, seed=5)
        loaders = train_loader, FlatLoader(data.select(range(16, 22)), 6)
    return fit(module or Toy(), *loaders, **(options | changes))


def kill_at(moment: str, how: signal.Signals = signal.SIGKILL) -> None:
    """Make this process die, as by a power cut, at the nth time that something happens: a method of
    the bookkeeper, ``half_written`` or ``written``, a moment such as ``written:2``."""
    what, _, count = moment.partition(":")
    left = int(count)

    def die() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), how)

    def before(owner: Any, name: str) -> None:
        original = getattr(owner, name)

        def dying(*args: Any, **options: Any) -> Any:
            die()
            return original(*args, **options)

        setattr(owner, name, dying)

    if what == "half_written":
        before(checkpoints.os, "fsync")
    elif what == "written":
        before(checkpoints.os, "replace")
    else:
        before(bookkeeper.Bookkeeper, what)
