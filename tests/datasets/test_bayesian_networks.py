from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from dagnn.datasets.bayesian_networks import (
    adjacency_of_networks,
    load_bayesian_networks,
    networks_from_adjacency,
    parse_bayesian_networks,
    sample_asia,
    save_bayesian_networks,
    valid_bayesian_networks,
)
from dagnn.datasets.random_dags import random_dags
from dagnn.datasets.small_dags import SmallDags

LINE = "[[2], [0, 1], [1, 0, 0]], -12.5"  # 2 → 0, and 1 alone


def some_networks(order: str = "uniform", n: int = 6, count: int = 50) -> SmallDags:
    adjacency = torch.from_numpy(random_dags(n, count, order=order, seed=0))  # type: ignore[arg-type]
    score = torch.randn(count, dtype=torch.float64)
    return networks_from_adjacency(adjacency, score)


def test_a_line_is_a_graph_with_input_and_output() -> None:
    graphs = parse_bayesian_networks([LINE], num_variables=3).check()
    assert graphs.types.tolist() == [[0, 4, 2, 3, 1]]
    edges = graphs.adjacency[0].nonzero().flip(-1).tolist()
    assert edges == [[0, 1], [1, 2], [0, 3], [2, 4], [3, 4]]
    assert graphs.score.tolist() == [-12.5]
    assert graphs.num_types == 5


@pytest.mark.parametrize("order", ["fixed", "random", "uniform"])
def test_structures_survive(order: str) -> None:
    adjacency = torch.from_numpy(random_dags(7, 100, order=order, seed=0))  # type: ignore[arg-type]
    graphs = networks_from_adjacency(adjacency, torch.zeros(100))
    assert bool(valid_bayesian_networks(graphs.check()).all())
    assert bool((adjacency_of_networks(graphs) == adjacency).all())
    if order == "fixed":
        assert bool((graphs.types[:, 1:-1] == torch.arange(2, 9)).all())


def test_files_survive(tmp_path: Path) -> None:
    graphs = some_networks()
    path = tmp_path / "bn.txt"
    save_bayesian_networks(path, graphs)
    again = load_bayesian_networks(path)
    assert torch.equal(again.types, graphs.types)
    assert torch.equal(again.adjacency, graphs.adjacency)
    assert torch.equal(again.score, graphs.score)
    assert again.num_types == graphs.num_types
    assert list(tmp_path.iterdir()) == [path]


def test_a_cycle_is_refused() -> None:
    adjacency = torch.tensor([[[False, False], [False, False]], [[False, True], [True, False]]])
    with pytest.raises(ValueError, match="cycle in graph 1"):
        networks_from_adjacency(adjacency, torch.zeros(2))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[[0], [0, 1], [1, 0, 0]], -1.0", r"every variable from 0 to 2 once, got \[0, 0, 1\]"),
        ("[[3], [0, 1], [1, 0, 0]], -1.0", "line 2: .*labels from 0 to 2"),
        ("[[2], [0, 1], [1, 0]], -1.0", "line 2: .*2 bits in row 2"),
        ("[[2], [0, 1, 1], [1, 0, 0]], -1.0", "line 2: .*earlier row"),
        ("[[2], [0, 2], [1, 0, 0]], -1.0", "line 2: .*bits 0 and 1"),
        ("[[2], [0, 1]], -1.0", "line 2: .*3 rows"),
        ("[[2], [0, 1], [1, 0, 0]], NaN", "line 2: .*finite"),
        (f"[[2], [0, 1], [1, 0, 0]], 1{'0' * 400}", "line 2: .*finite score, got inf"),
        ("[[2], [0, 1], [1, 0, 0]]", "line 2: "),
        ("__import__('os').abort(), 1", "line 2: "),
    ],
)
def test_malformed_lines(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "bn.txt"
    path.write_text(f"{LINE}\n{line}\n")
    with pytest.raises(ValueError, match=message):
        load_bayesian_networks(path)


@pytest.mark.parametrize("text", ["", "\n\n", "hello\n", "7, 1\n"])
def test_files_without_graphs(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bn.txt"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"bn\.txt"):
        load_bayesian_networks(path)


def test_validity() -> None:
    good = some_networks(n=4, count=1)
    assert valid_bayesian_networks(good).tolist() == [True]
    twice = good.types.clone()
    twice[0, 1] = twice[0, 2]
    loose = good.adjacency.clone()
    loose[0, :, 0] = loose[0, -1] = False  # input and output joined to nothing
    free = SmallDags(good.types, loose, good.num_nodes, good.score, 6)
    assert valid_bayesian_networks(free).tolist() == [True]
    assert torch.equal(adjacency_of_networks(free), adjacency_of_networks(good))
    broken = [
        SmallDags(twice, good.adjacency, good.num_nodes, good.score, 6),
        SmallDags(good.types, good.adjacency, good.num_nodes - 1, good.score, 6),
        SmallDags(good.types.flip(-1), good.adjacency, good.num_nodes, good.score, 6),
    ]
    for graphs in broken:
        assert valid_bayesian_networks(graphs).tolist() == [False]


def test_asia_has_the_published_probabilities() -> None:
    yes = sample_asia(200_000, seed=1) == "yes"
    a, s, t, lung, b, e, x, d = (yes[name].to_numpy() for name in "ASTLBEXD")
    assert (e == (t | lung)).all()
    for event, given, chance in (
        (a, a | ~a, 0.01),
        (s, a | ~a, 0.5),
        (t, a, 0.05),
        (t, ~a, 0.01),
        (lung, s, 0.10),
        (lung, ~s, 0.01),
        (b, s, 0.60),
        (b, ~s, 0.30),
        (x, e, 0.98),
        (x, ~e, 0.05),
        (d, b & e, 0.90),
        (d, b & ~e, 0.80),
        (d, ~b & e, 0.70),
        (d, ~b & ~e, 0.10),
    ):
        spread = np.sqrt(chance * (1 - chance) / given.sum())
        assert event[given].mean() == pytest.approx(chance, abs=4 * spread)


def test_asia_is_seeded() -> None:
    assert sample_asia(100, seed=1).equals(sample_asia(100, seed=1))
    assert not sample_asia(100, seed=1).equals(sample_asia(100, seed=2))
    with pytest.raises(ValueError, match="at least 1 row"):
        sample_asia(0)
