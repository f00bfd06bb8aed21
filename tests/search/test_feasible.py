from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from dagnn.bayesnet.constraints import Constraints
from dagnn.bayesnet.dags import is_acyclic
from dagnn.datasets.bayesian_networks import networks_from_adjacency
from dagnn.datasets.random_dags import random_dags
from dagnn.datasets.small_dags import SmallDags
from dagnn.search.feasible import Structures, make_feasible, read_structures

NAMES = ("a", "b", "c", "d", "e")


def graphs_of(adjacency: np.ndarray) -> SmallDags:
    score = torch.zeros(len(adjacency), dtype=torch.double)
    return networks_from_adjacency(torch.from_numpy(adjacency), score)


@given(seed=st.integers(0, 1000))
def test_networks_are_read_as_they_are(seed: int) -> None:
    adjacency = random_dags(5, 20, order="random", seed=seed)
    (found, rank), valid = read_structures(graphs_of(adjacency))
    assert valid.all()
    assert (found == adjacency).all()
    child, parent = np.nonzero(adjacency[0])
    assert (rank[0, parent] < rank[0, child]).all()


def test_of_doubled_variables_the_first_counts_and_lacking_ones_come_last() -> None:
    types = torch.tensor([[0, 3, 3, 2, 1]])  # variable 1 twice, then 0; 2 is lacking
    edge = torch.zeros(1, 5, 5, dtype=torch.bool)
    for u, v in ((0, 1), (1, 2), (2, 3), (1, 3), (3, 4)):
        edge[0, v, u] = True
    graph = SmallDags(types, edge, torch.tensor([5]), torch.zeros(1, dtype=torch.double), 5)
    (adjacency, rank), valid = read_structures(graph)
    assert not valid.any()
    assert np.argwhere(adjacency[0]).tolist() == [[0, 1]]
    assert rank[0].tolist() == [1, 0, 2]


@given(
    seed=st.integers(0, 10_000),
    required=st.sets(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=4),
    forbidden=st.sets(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=6),
    limit=st.integers(0, 4),
)
def test_what_is_made_feasible_meets_the_constraints(
    seed: int, required: set[tuple[int, int]], forbidden: set[tuple[int, int]], limit: int
) -> None:
    require = [(NAMES[u], NAMES[v]) for u, v in required if u < v]
    forbid = [(NAMES[u], NAMES[v]) for u, v in forbidden - required if u != v]
    parents = [sum(child == name for _, child in require) for name in NAMES]
    constraints = Constraints.over(
        NAMES, require=require, forbid=forbid, max_parents=max(limit, *parents)
    )
    drawn = random_dags(5, 30, order="random", seed=seed)
    structures, _ = read_structures(graphs_of(drawn))
    found = make_feasible(structures, constraints, np.random.default_rng(seed))
    assert constraints.allow(found).all()
    assert is_acyclic(found).all()


def test_feasible_structures_stay() -> None:
    drawn = random_dags(5, 50, order="fixed", seed=1)
    rank = np.tile(np.arange(5), (50, 1))
    found = make_feasible(
        Structures(drawn, rank), Constraints.over(NAMES), np.random.default_rng(0)
    )
    assert (found == drawn).all()
