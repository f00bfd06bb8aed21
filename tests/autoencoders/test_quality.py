"""Measures of a generator, on graphs where they are known."""

from __future__ import annotations

import pytest
import torch

from dagnn.autoencoders.models import make_autoencoder
from dagnn.autoencoders.quality import (
    measure_quality,
    prior_quality,
    reconstruction_accuracy,
    same_graphs,
)
from dagnn.datasets.architectures import parse_architectures
from dagnn.datasets.bayesian_networks import parse_bayesian_networks
from dagnn.datasets.small_dags import SmallDags
from tests.autoencoders.graphs import random_dags

ROWS = [
    "[[1], [4, 0], [5, 0, 0], [0, 1, 1, 1], [2, 1, 1, 1, 1], [3, 0, 0, 0, 0, 1]], 0.7302",
    "[[5], [3, 1], [2, 1, 1], [3, 1, 1, 0], [5, 0, 0, 0, 1], [2, 0, 1, 1, 1, 0]], 0.7234",
    "[[0], [3, 1], [2, 1, 1], [3, 1, 1, 0], [5, 0, 0, 0, 1], [2, 0, 1, 1, 1, 0]], 0.7234",
]


def test_prior_quality_counts() -> None:
    a, b, c = ROWS
    graphs = parse_architectures([a, a, b, b, b, c, a])
    graphs.adjacency[-1, 3, 2] = False  # not valid
    share, unique, novel, decoded, invalid = prior_quality("na", graphs, parse_architectures([b]))
    assert share == pytest.approx(6 / 7)
    assert unique == pytest.approx(3 / 6)
    assert novel == pytest.approx(3 / 6)
    assert (decoded, invalid) == (7, 1)


def test_networks_are_told_apart_by_their_structure_alone() -> None:
    chain, other_order = "[[0], [1, 1], [2, 0, 0]]", "[[2], [0, 0], [1, 0, 1]]"
    another = "[[1], [0, 1], [2, 0, 0]]"
    lines = [f"{row}, 0.0" for row in (chain, other_order, another, chain)]
    graphs = parse_bayesian_networks(lines, num_variables=3)
    graphs.adjacency[3, :, 0] = False  # joined to the input or not, it is the same network
    known = parse_bayesian_networks(lines[:1], num_variables=3)
    share, unique, novel, decoded, invalid = prior_quality("bn", graphs, known)
    assert (share, decoded, invalid) == (1.0, 4, 0)
    assert unique == 2 / 4
    assert novel == 1 / 4


def test_nothing_valid() -> None:
    graphs = parse_architectures(ROWS)
    graphs.adjacency[:, 3, 2] = False
    assert prior_quality("na", graphs, graphs) == (0.0, 0.0, 0.0, 3, 3)


def test_same_graphs() -> None:
    graphs, others = random_dags(4), random_dags(4)
    others.types[1, 1] += 1
    others.adjacency[2, 1, 0] = ~others.adjacency[2, 1, 0]
    others.num_nodes[3] -= 1
    assert same_graphs(graphs, others).tolist() == [True, False, False, False]


class Memory:
    """An autoencoder that keeps graphs: a latent point is a number, and one in four is lost."""

    latent_channels = 1

    def __init__(self, graphs: SmallDags) -> None:
        self.graphs = graphs
        self.calls = 0

    def encode(self, graphs: SmallDags) -> tuple[torch.Tensor, torch.Tensor]:
        mean = torch.arange(len(graphs), dtype=torch.double).unsqueeze(-1)
        return mean, torch.full_like(mean, -20.0)

    def decode(self, z: torch.Tensor, generator: torch.Generator) -> SmallDags:
        found = self.graphs.index_select(z.squeeze(-1).round().long())
        found.num_nodes[::4] += 1
        return found


def test_reconstruction_accuracy_is_the_share_of_equal_graphs() -> None:
    graphs = random_dags(8)
    model = Memory(graphs)
    assert reconstruction_accuracy(model, graphs, times=3) == 0.75  # type: ignore[arg-type]


def test_all_measures_of_a_model() -> None:
    graphs = parse_architectures(ROWS)
    model = make_autoencoder("d-vae", "na", hidden_channels=6, latent_channels=2)
    quality = [measure_quality(model, "na", graphs, graphs, points=20, times=2) for _ in range(2)]
    assert quality[0] == quality[1]  # the seed decides
    assert quality[0].decoded == 40
    assert 0 <= quality[0].reconstruction <= 1
