r"""The supervised alternative to a latent space: a DAGNN trained end to end on the score."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn
from torch_geometric.data import Batch

from dagnn.autoencoders.latent_scoring import regression_measures
from dagnn.datasets.small_dags import SmallDags
from dagnn.graph.flat import FlatGraphs
from dagnn.graph.loader import FlatLoader
from dagnn.nn.dagnn import DAGNN
from dagnn.training import Plateau, fit, load_weights, read_checkpoint, run_record, write_json

__all__ = ["ScoreRegressor", "flat_graphs", "load_regressor", "train_regressor"]


class ScoreRegressor(LightningModule):
    """A graph's score from its DAGNN vector, by two linear layers.

    Args:
        num_types: The number of node types.
        hidden_channels: The width of the states.
        num_layers: The number of DAGNN's layers.
        bidirectional: Whether DAGNN also walks against the edges.
        rate: Adam's learning rate.
        score_mean: Mean of the scores trained on, which the loss subtracts.
        score_deviation: Their standard deviation, by which it divides.
    """

    score_mean: Tensor
    score_deviation: Tensor

    def __init__(
        self,
        num_types: int,
        hidden_channels: int = 128,
        num_layers: int = 2,
        *,
        bidirectional: bool = True,
        rate: float = 1e-3,
        score_mean: float = 0.0,
        score_deviation: float = 1.0,
    ) -> None:
        super().__init__()
        if not rate > 0:
            raise ValueError(f"expected a learning rate above 0, got {rate}")
        if not score_deviation > 0:
            raise ValueError(f"expected score_deviation > 0, got {score_deviation}")
        self.encoder = DAGNN(
            num_types, hidden_channels, num_layers, hidden_channels, bidirectional=bidirectional
        )
        self.head = nn.Sequential(
            nn.Linear(hidden_channels, hidden_channels), nn.ReLU(), nn.Linear(hidden_channels, 1)
        )
        self.rate = rate
        self.register_buffer("score_mean", torch.tensor(score_mean, dtype=torch.double))
        self.register_buffer("score_deviation", torch.tensor(score_deviation, dtype=torch.double))

    def forward(self, batch: Batch) -> Tensor:
        """Standardised scores. ``[B]``"""
        return self.head(self.encoder(batch)).squeeze(-1)

    def training_step(self, batch: Batch) -> Tensor:
        return self._loss(batch)

    def validation_step(self, batch: Batch) -> None:
        self.log("valid_loss", self._loss(batch), batch_size=batch.num_graphs)

    def transfer_batch_to_device(
        self, batch: Batch, device: torch.device, dataloader_idx: int
    ) -> Batch:
        return batch  # FlatLoader makes it where it is used

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=self.rate)

    def _loss(self, batch: Batch) -> Tensor:
        target = (batch.score - self.score_mean) / self.score_deviation
        return nn.functional.mse_loss(self(batch), target.float())

    @torch.no_grad()
    def predict(self, graphs: SmallDags, batch_size: int = 1024) -> Tensor:
        """Scores of graphs, in the units of the training scores. float64 ``[G]``"""
        loader = FlatLoader(flat_graphs(graphs), batch_size, device=self.score_mean.device)
        self.eval()
        scores = torch.cat([self(batch) for batch in loader])
        return scores.double() * self.score_deviation + self.score_mean


def train_regressor(
    train: SmallDags,
    test: SmallDags,
    folder: str | os.PathLike[str],
    *,
    hidden_channels: int = 128,
    num_layers: int = 2,
    bidirectional: bool = True,
    rate: float = 1e-3,
    epochs: int = 100,
    patience: int | None = 20,
    batch_size: int = 64,
    clip: float = 0.25,
    valid_share: float = 0.05,
    seed: int = 0,
    device: str = "auto",
    progress: bool = True,
    data: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Train a :class:`ScoreRegressor`, and measure the best epoch's weights on the test graphs.

    The folder is that of :func:`dagnn.training.fit`, with a ``record.json`` that is also returned.
    Called again, it goes on.

    Args:
        train: The training graphs.
        test: The test graphs.
        folder: Where the run is kept.
        hidden_channels: See :class:`ScoreRegressor`, as the next three.
        num_layers: The number of layers.
        bidirectional: Whether both directions are used.
        rate: Adam's learning rate, divided by 10 after 10 epochs without improvement.
        epochs: The largest number of epochs.
        patience: Stop after this many epochs without improvement.
        batch_size: The number of graphs in a step.
        clip: The largest norm of the gradient.
        valid_share: The share of the training graphs, its last, that chooses the epoch.
        seed: Of the weights and the order of the graphs.
        device: ``"auto"``, ``"cpu"`` or ``"cuda"``.
        progress: Whether to show it.
        data: What is recorded of the data, such as its name and fingerprint.
    """
    size = int(len(train) * (1 - valid_share))
    if not 0 < size < len(train):
        raise ValueError(
            f"expected graphs to train and to validate, got {size} of {len(train)} to train"
        )
    where = device if device != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
    model: dict[str, Any] = {
        "num_types": train.num_types,
        "hidden_channels": hidden_channels,
        "num_layers": num_layers,
        "bidirectional": bidirectional,
        "rate": rate,
        "score_mean": train.score[:size].mean().item(),
        "score_deviation": train.score[:size].std(correction=0).item(),
    }
    torch.manual_seed(seed)
    module = ScoreRegressor(**model)
    config: dict[str, Any] = {
        "task": "score regression",
        "model": model,
        "batch_size": batch_size,
        "valid_share": valid_share,
        "data": dict(data or {}),
    }
    result = fit(
        module,
        FlatLoader(flat_graphs(train[:size]).to(where), batch_size, shuffle=True, seed=seed),
        FlatLoader(flat_graphs(train[size:]).to(where), 1024),
        folder=folder,
        epochs=epochs,
        monitor="valid_loss",
        patience=patience,
        plateau=Plateau(),
        clip=clip,
        seed=seed,
        config=config,
        device=where,
        progress=progress,
    )
    load_weights(module, result.best_checkpoint)
    module.to(where)
    deviation = train.score.std(correction=0).item()  # the unit of all models of a data set
    metrics = {
        **regression_measures(module.predict(test), test.score, deviation),
        "epochs": len(result.history),
        "best_epoch": result.best["epoch"],
    }
    record = run_record(
        config,
        metrics,
        seed=seed,
        seconds=result.seconds,
        data=config["data"],
        origins=result.origins,
    )
    write_json(Path(folder) / "record.json", record)
    return record


def load_regressor(folder: str | os.PathLike[str]) -> ScoreRegressor:
    """The model of a folder that :func:`train_regressor` wrote, with its best weights."""
    checkpoint = read_checkpoint(Path(folder) / "best.ckpt")
    config = checkpoint.get("config", {})
    if config.get("task") != "score regression":
        raise ValueError(
            f"expected a run of dagnn train predictor in {os.fspath(folder)}, got one of task "
            f"{config.get('task')!r}"
        )
    module = ScoreRegressor(**config["model"])
    module.load_state_dict(checkpoint["state_dict"])
    return module.eval()


def flat_graphs(graphs: SmallDags) -> FlatGraphs:
    """Small DAGs as the core's models take them: ``x``, types one-hot, and ``score``."""
    node = graphs.is_node  # [G, n]
    first = torch.zeros(1, dtype=torch.long, device=graphs.device)
    graph, target, source = graphs.adjacency.nonzero(as_tuple=True)
    num_edges = torch.bincount(graph, minlength=len(graphs))
    x = nn.functional.one_hot(graphs.types[node], graphs.num_types).float()
    flat = FlatGraphs(
        torch.cat([first, graphs.num_nodes.cumsum(0)]).cpu(),
        torch.cat([first, num_edges.cumsum(0)]).cpu(),
        torch.stack([source, target]).cpu(),
        node={"x": x.cpu()},
        graph={"score": graphs.score.cpu()},
    )
    return flat.to(graphs.device)
