"""Theorem 3: with injective functions, different graphs get different vectors. What is true of it.

A node's state is a function of the tree of all paths that lead to it (its *unfolding*), and no
number of layers shows it more. So at best a model tells graphs apart by the multiset of their
targets' unfoldings, and the epsilon-sum with the sum readout does so exactly; but the proof's step
from equal trees to equal graphs fails where nodes look alike: of u → v1, u → v2 and u1 → v1,
u2 → v2 both targets unfold to the same trees. With constant features, 70 pairs of the 342 DAGs of
up to 5 nodes coincide in one direction; with both directions one pair is left (an edge beside a
triangle 0 → 1 → 2, 0 → 2; and the path 4 ← 0 → 1 → 3 ← 2), whether targets or all nodes are pooled.

The theorem holds where features tell apart what the structure repeats: with distinct features on
the nodes of a graph, all 29,281 labelled DAGs of 5 nodes have different vectors; and all 342
non-isomorphic DAGs are told apart, in one direction and by their targets alone, once every node
knows its number of successors.
"""

from collections import Counter, defaultdict
from functools import cache
from itertools import combinations, permutations
from typing import Any

import pytest
import torch
from torch import Tensor

from dagnn import DAGNN
from tests.graph.strategies import all_dags, disjoint_union

Edges = tuple[tuple[int, int], ...]
EQUAL, DIFFERENT = 1e-12, 1e-9  # rounding errors are below the first, differences above the second


@cache
def dags_up_to_isomorphism(n: int) -> list[Edges]:
    """One DAG of every class, found by comparing all relabellings. Every DAG has a labelling in
    which all edges go up."""
    pairs = list(combinations(range(n), 2))
    found: dict[Edges, Edges] = {}
    for chosen in range(1 << len(pairs)):
        edges = tuple(pair for i, pair in enumerate(pairs) if chosen >> i & 1)
        names = (tuple(sorted((p[u], p[v]) for u, v in edges)) for p in permutations(range(n)))
        found.setdefault(min(names), edges)
    return list(found.values())


SMALL = [(n, edges) for n in range(1, 6) for edges in dags_up_to_isomorphism(n)]


def flip(edges: Edges) -> Edges:
    return tuple((v, u) for u, v in edges)


def unfolding(n: int, edges: Edges, nodes: str, features: list[int]) -> tuple[Any, ...]:
    """The multiset of the unfolding trees of the targets, or of all nodes."""
    predecessors = defaultdict(list)
    for u, v in edges:
        predecessors[v].append(u)

    def tree(v: int) -> tuple[Any, ...]:
        return features[v], tuple(sorted(tree(u) for u in predecessors[v]))

    inner = {u for u, _ in edges} if nodes == "targets" else set()
    return tuple(sorted(tree(v) for v in range(n) if v not in inner))


def vectors(features: list[list[int]], nodes: str, bidirectional: bool, layers: int) -> Tensor:
    """The vector of every small DAG under random weights. [G, out]"""
    start = torch.tensor([0] + [n for n, _ in SMALL]).cumsum(0)
    edges = [
        torch.tensor(e, dtype=torch.long).view(-1, 2).t() + start[g]
        for g, (_, e) in enumerate(SMALL)
    ]
    x = torch.tensor([f for row in features for f in row], dtype=torch.float64).view(-1, 1)
    batch = torch.repeat_interleave(torch.tensor([n for n, _ in SMALL]))
    model = DAGNN(
        1, 8, layers, bidirectional=bidirectional, aggregator="epsilon_sum", readout="sum",
        readout_nodes=nodes, backend="reference",
    ).double()  # fmt: skip
    with torch.no_grad():
        return model(1 + x, torch.cat(edges, dim=1), batch=batch)


def classes(out: Tensor) -> set[frozenset[int]]:
    """Which graphs have the same vector. Every distance must be clearly zero or clearly not."""
    distance = torch.cdist(out, out, p=torch.inf, compute_mode="donot_use_mm_for_euclid_dist")
    same = distance < EQUAL
    assert bool((same | (distance > DIFFERENT)).all())
    return {frozenset(row.nonzero().view(-1).tolist()) for row in same}


def classes_of(keys: list[Any]) -> set[frozenset[int]]:
    members = defaultdict(set)
    for g, key in enumerate(keys):
        members[key].add(g)
    return {frozenset(m) for m in members.values()}


CONSTANT = [[0] * n for n, _ in SMALL]
SUCCESSORS = [[Counter(u for u, _ in edges)[v] for v in range(n)] for n, edges in SMALL]


def test_the_small_dags_are_all_there() -> None:
    assert Counter(n for n, _ in SMALL) == {1: 1, 2: 2, 3: 6, 4: 31, 5: 302}


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize(
    ("features", "nodes", "bidirectional", "number"),
    [
        (CONSTANT, "targets", False, 291),
        (CONSTANT, "all", False, 291),
        (CONSTANT, "targets", True, 341),
        (CONSTANT, "all", True, 341),
        (SUCCESSORS, "targets", False, 342),
    ],
    ids=["targets", "all", "both-targets", "both-all", "successors"],
)
def test_vectors_are_equal_if_and_only_if_unfoldings_are(
    features: list[list[int]], nodes: str, bidirectional: bool, number: int, layers: int
) -> None:
    keys = []
    for (n, edges), f in zip(SMALL, features, strict=True):
        both = [edges, flip(edges)][: 1 + bidirectional]
        keys.append(tuple(unfolding(n, e, nodes, f) for e in both))
    found = classes(vectors(features, nodes, bidirectional, layers))
    assert found == classes_of(keys)
    assert len(found) == number


def test_the_smallest_graphs_that_coincide_in_one_direction() -> None:
    shared, doubled = (3, ((0, 1), (0, 2))), (4, ((0, 3), (1, 2)))
    pairs = [c for c in classes(vectors(CONSTANT, "targets", False, 2)) if len(c) > 1]
    assert {SMALL.index(shared), SMALL.index(doubled)} in pairs
    assert sum(len(c) * (len(c) - 1) // 2 for c in pairs) == 70


def test_the_only_two_graphs_that_coincide_in_both_directions() -> None:
    path = (5, ((0, 1), (0, 4), (1, 3), (2, 3)))
    edge_beside_triangle = (5, ((0, 4), (1, 2), (1, 3), (2, 3)))
    (pair,) = (c for c in classes(vectors(CONSTANT, "targets", True, 2)) if len(c) > 1)
    assert pair == {SMALL.index(path), SMALL.index(edge_beside_triangle)}


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_distinct_features_separate_all_labelled_dags(n: int) -> None:
    """An isomorphism that keeps distinct features is the identity, so every labelled DAG is a
    class of its own."""
    adjacency = all_dags(n)
    model = DAGNN(n, 12, 1, aggregator="epsilon_sum", readout="sum", backend="reference").double()
    graphs = len(adjacency)
    x = torch.eye(n, dtype=torch.float64).repeat(graphs, 1)
    batch = torch.arange(graphs).repeat_interleave(n)
    with torch.no_grad():
        out = model(x, disjoint_union(adjacency), batch=batch)
    # Vectors on different points of the grid are different; on the same, they may be equal.
    assert len((out / DIFFERENT).round().unique(dim=0)) == graphs
