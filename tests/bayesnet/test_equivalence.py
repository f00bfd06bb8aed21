from __future__ import annotations

import itertools

import numpy as np
import pytest

from dagnn.bayesnet.equivalence import cpdag, equivalent
from tests.bayesnet.cases import all_dags


def independences(adjacency: np.ndarray) -> frozenset[tuple[int, int, tuple[int, ...]]]:
    """All statements "u and v are d-separated by S", by the moral graph of their ancestors."""
    n = len(adjacency)
    reached = np.linalg.matrix_power(adjacency.astype(int) + np.eye(n, dtype=int), n) > 0
    found = set()
    for u, v in itertools.combinations(range(n), 2):
        others = [w for w in range(n) if w not in (u, v)]
        for size in range(len(others) + 1):
            for given in itertools.combinations(others, size):
                kept = reached[[u, v, *given]].any(axis=0)
                edges = adjacency & kept & kept[:, None]
                moral = edges | edges.T | (edges.astype(int).T @ edges.astype(int) > 0)
                moral[list(given)] = moral[:, list(given)] = False
                joined = np.linalg.matrix_power(moral.astype(int) + np.eye(n, dtype=int), n)
                if not joined[u, v]:
                    found.add((u, v, given))
    return frozenset(found)


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_classes_by_enumeration(n: int) -> None:
    """Classes by d-separation alone: their CPDAG is what all members have in common."""
    graphs = all_dags(n)
    classes: dict[frozenset[tuple[int, int, tuple[int, ...]]], list[np.ndarray]] = {}
    for graph in graphs:
        classes.setdefault(independences(graph), []).append(graph)
    assert len(classes) == {1: 1, 2: 2, 3: 11, 4: 185}[n]
    for members in classes.values():
        always = np.logical_and.reduce(members)
        sometimes = np.logical_or.reduce(members)
        for member in members:
            made = cpdag(member)
            assert (made.directed == always).all()
            assert (made.undirected == (sometimes & sometimes.T)).all()
            assert equivalent(member, members[0])


def test_classes_differ() -> None:
    graphs = all_dags(3)
    statements = [independences(graph) for graph in graphs]
    for i, j in itertools.combinations(range(len(graphs)), 2):
        assert equivalent(graphs[i], graphs[j]) == (statements[i] == statements[j])


def test_larger_graphs_have_stable_classes() -> None:
    """Reversing an edge that all other parents cover stays in the class, and in its CPDAG."""
    generator = np.random.default_rng(0)
    for _ in range(50):
        graph = np.tril(generator.random((9, 9)) < 0.35, -1)
        before = cpdag(graph)
        for _ in range(10):
            covered = [
                (v, u)
                for v, u in np.argwhere(graph)
                if {*np.flatnonzero(graph[u]), u} == {*np.flatnonzero(graph[v])}
            ]
            if not covered:
                break
            v, u = covered[generator.integers(len(covered))]
            graph = graph.copy()
            graph[v, u], graph[u, v] = False, True
            after = cpdag(graph)
            assert (after.directed == before.directed).all()
            assert (after.undirected == before.undirected).all()
