from __future__ import annotations

import itertools

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagnn.bayesnet.dags import ancestors, check_dag, is_acyclic, node_levels, parent_bits
from dagnn.graph.levels import CycleError
from tests.bayesnet.cases import all_dags, dags


@st.composite
def digraphs(draw: st.DrawFn) -> np.ndarray:
    n = draw(st.integers(1, 7))
    adjacency = np.zeros((n, n), dtype=bool)
    for v, u in itertools.product(range(n), repeat=2):
        adjacency[v, u] = draw(st.integers(0, 3)) == 0
    return adjacency


def as_networkx(adjacency: np.ndarray) -> nx.DiGraph:
    return nx.from_numpy_array(adjacency.T, create_using=nx.DiGraph)


@given(digraphs())
def test_as_networkx(adjacency: np.ndarray) -> None:
    graph = as_networkx(adjacency)
    assert is_acyclic(adjacency[None])[0] == nx.is_directed_acyclic_graph(graph)
    reached = ancestors(adjacency)
    for v, u in itertools.product(range(len(adjacency)), repeat=2):
        on_path = u in nx.ancestors(graph, v)
        on_cycle = any(v in c for c in nx.strongly_connected_components(graph) if len(c) > 1)
        assert reached[v, u] == (on_path if u != v else on_cycle or adjacency[v, v])


@given(digraphs())
def test_cycles_are_named(adjacency: np.ndarray) -> None:
    names = [f"n{i}" for i in range(len(adjacency))]
    if nx.is_directed_acyclic_graph(as_networkx(adjacency)):
        assert check_dag(adjacency, names) is adjacency
        return
    with pytest.raises(CycleError) as caught:
        check_dag(adjacency, names)
    cycle = [names.index(name) for name in caught.value.cycle]
    for u, v in zip(cycle, [*cycle[1:], cycle[0]], strict=True):
        assert adjacency[v, u]


@given(dags(6))
def test_levels_are_longest_paths(adjacency: np.ndarray) -> None:
    graph = as_networkx(adjacency)
    for level, generation in enumerate(nx.topological_generations(graph)):
        assert (node_levels(adjacency)[list(generation)] == level).all()


def test_parent_bits() -> None:
    adjacency = np.array([[0, 1, 1], [0, 0, 0], [0, 1, 0]], dtype=bool)
    assert parent_bits(adjacency) == [0b110, 0, 0b010]


def test_wrong_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"shape \[2, 2\], got \[3, 3\] and bool"):
        check_dag(all_dags(3)[0], ["a", "b"])
    with pytest.raises(ValueError, match="int64"):
        check_dag(np.zeros((2, 2), dtype=np.int64), ["a", "b"])
