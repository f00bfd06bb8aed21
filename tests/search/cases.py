"""Small tables and autoencoders for the tests of the search."""

from __future__ import annotations

import torch

from dagnn.autoencoders.fitting import AutoencoderConfig
from dagnn.autoencoders.vae import DagVAE
from dagnn.bayesnet.constraints import Constraints
from dagnn.bayesnet.scores import FamilyScores
from dagnn.bayesnet.table import Table
from dagnn.datasets.bayesian_networks import sample_asia
from dagnn.datasets.small_dags import SmallDags

COLUMNS = ["S", "L", "B", "E", "X"]


def asia_scores(rows: int = 500, columns: list[str] | None = None) -> FamilyScores:
    frame = sample_asia(rows, seed=1)
    return FamilyScores(Table.from_frame(frame[columns or COLUMNS]))


def no_constraints(scores: FamilyScores) -> Constraints:
    return Constraints.over(scores.table.names)


def brief_training(graphs: SmallDags, steps: int = 30, task: str = "bn") -> DagVAE:
    """An autoencoder that has seen a few batches."""
    config = AutoencoderConfig(task=task, hidden_channels=12, latent_channels=6)
    model = config.make(graphs.num_types, graphs.max_nodes)
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    generator = torch.Generator().manual_seed(0)
    for step in range(steps):
        index = torch.arange(step * 32, step * 32 + 32) % len(graphs)
        noise = torch.randn(32, 6, generator=generator)
        optimiser.zero_grad()
        model.loss(graphs.index_select(index), noise).total.backward()
        optimiser.step()
    return model.eval()
