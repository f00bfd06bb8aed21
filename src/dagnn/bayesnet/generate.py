"""Random networks with their scores."""

from __future__ import annotations

import torch

from dagnn.bayesnet.scores import FamilyScores
from dagnn.datasets.bayesian_networks import networks_from_adjacency
from dagnn.datasets.random_dags import Order, random_dags
from dagnn.datasets.small_dags import SmallDags

__all__ = ["generate_networks"]


def generate_networks(
    scores: FamilyScores, count: int, *, order: Order = "fixed", seed: int = 0
) -> SmallDags:
    """Random structures over a table's columns, as :func:`~dagnn.datasets.random_dags.random_dags`
    draws them, scored."""
    adjacency = random_dags(scores.num_variables, count, order=order, seed=seed)
    score = scores.score_graphs(adjacency)
    return networks_from_adjacency(torch.from_numpy(adjacency), torch.from_numpy(score))
