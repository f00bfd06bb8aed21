from __future__ import annotations

from collections import Counter

import networkx as nx
import numpy as np
import pytest

from dagnn.datasets.random_dags import random_dags


def is_dag(adjacency: np.ndarray) -> bool:
    return nx.is_directed_acyclic_graph(nx.from_numpy_array(adjacency, create_using=nx.DiGraph))


@pytest.mark.parametrize("order", ["fixed", "random", "uniform"])
@pytest.mark.parametrize("n", [1, 2, 6, 30])
def test_acyclic_and_seeded(order: str, n: int) -> None:
    graphs = random_dags(n, 20, order=order, seed=1)  # type: ignore[arg-type]
    assert graphs.shape == (20, n, n)
    assert graphs.dtype == bool
    assert all(is_dag(graph) for graph in graphs)
    assert (graphs == random_dags(n, 20, order=order, seed=1)).all()  # type: ignore[arg-type]
    if n == 6:
        assert (graphs != random_dags(n, 20, order=order, seed=2)).any()  # type: ignore[arg-type]


def test_fixed_order() -> None:
    graphs = random_dags(8, 20_000)
    assert not np.triu(graphs).any()
    assert graphs[:, 7, 0].mean() == pytest.approx(2 / 7, abs=0.015)


def test_random_order_has_no_favourite_direction() -> None:
    graphs = random_dags(8, 20_000, order="random")
    shares = graphs.mean(axis=0)[~np.eye(8, dtype=bool)]
    np.testing.assert_allclose(shares, 1 / 7, atol=0.015)


@pytest.mark.parametrize(("n", "number"), [(2, 3), (3, 25), (4, 543)])
def test_uniform_over_labelled_dags(n: int, number: int) -> None:
    per_graph = 200
    graphs = random_dags(n, per_graph * number, order="uniform", seed=3)
    counts = Counter(graph.tobytes() for graph in graphs)
    assert len(counts) == number
    chi_square = sum((count - per_graph) ** 2 / per_graph for count in counts.values())
    # its mean is number - 1, its variance twice that
    assert chi_square < number - 1 + 4 * np.sqrt(2 * (number - 1))


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="order of fixed, random, uniform, got 'any'"):
        random_dags(3, 1, order="any")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least 1 node"):
        random_dags(0, 1)
    with pytest.raises(ValueError, match="-1 graphs"):
        random_dags(3, -1)
