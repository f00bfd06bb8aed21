"""Graphs from columns, against graphs made edge by edge with networkx."""

from __future__ import annotations

import itertools

import networkx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagnn.datasets.code_columns import CodeColumns
from dagnn.datasets.code_vocabulary import CodeVocabulary

NODE_TYPES = ["Module", "FunctionDef", "Name"]
ATTRIBUTES = ["_mask_", "x", "y", "z"]
VOCABULARY = CodeVocabulary.of(NODE_TYPES, {"_mask_": 5, "x": 3, "y": 2}, {"get": 2, "x": 1})

Tree = list[tuple[int, int]]  # of each node but the first: parent and attribute


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    size = draw(st.integers(2, 40))
    return [
        (draw(st.integers(0, v - 1)), draw(st.integers(-1, len(ATTRIBUTES) - 1)))
        for v in range(1, size)
    ]


def columns_of(functions: list[Tree]) -> CodeColumns:
    sizes = [len(tree) + 1 for tree in functions]
    offset = [o for tree in functions for o in (-1, *(v + 1 - p for v, (p, _) in enumerate(tree)))]
    attribute = [a for tree in functions for a in (-1, *(a for _, a in tree))]
    return CodeColumns(
        np.cumsum([0, *sizes], dtype=np.int64),
        np.array([v % 3 for size in sizes for v in range(size)], dtype=np.uint8),
        np.array(offset, dtype=np.int16),
        np.array(attribute, dtype=np.int32),
        NODE_TYPES,
        ATTRIBUTES,
        [["get", "z"] for _ in functions],
    )


@given(st.lists(trees(), min_size=1, max_size=4), st.sampled_from(["full", "ast"]))
def test_graphs_are_those_made_edge_by_edge(functions: list[Tree], edges: str) -> None:
    flat = columns_of(functions).graphs(VOCABULARY, edges)
    assert len(flat) == len(functions)
    for data, tree in zip((flat[g] for g in range(len(flat))), functions, strict=True):
        parents = [(p, v + 1) for v, (p, _) in enumerate(tree)]
        attributed = [v + 1 for v, (_, a) in enumerate(tree) if a >= 0]
        tokens = list(itertools.pairwise(attributed)) if edges == "full" else []
        found = list(zip(data.edge_index.t().tolist(), data.edge_type.tolist(), strict=True))
        assert found == [([*e], 0) for e in parents] + [([*e], 1) for e in tokens]

        graph = networkx.MultiDiGraph(parents + tokens)
        levels = dict.fromkeys(graph, 0)
        for v in networkx.topological_sort(graph):
            for u in graph.predecessors(v):
                levels[v] = max(levels[v], levels[u] + 1)
        assert data.level.tolist() == [levels[v] for v in range(len(tree) + 1)]
        longest = networkx.dag_longest_path_length(networkx.DiGraph(graph)) + 1
        assert data.longest_path.item() == longest
        backwards = dict.fromkeys(graph, 0)
        for v in reversed(list(networkx.topological_sort(graph))):
            for u in graph.successors(v):
                backwards[v] = max(backwards[v], backwards[u] + 1)
        assert data.reverse_level.tolist() == [backwards[v] for v in range(len(tree) + 1)]

        tree_graph = networkx.DiGraph(parents)
        depth = networkx.single_source_shortest_path_length(tree_graph, 0)
        assert data.depth.tolist() == [min(depth[v], 20) for v in range(len(tree) + 1)]
        words = [None, *(ATTRIBUTES[a] if a >= 0 else None for _, a in tree)]
        known = {"_mask_": 0, "x": 1, "y": 2, "z": 3, None: 4}  # z is unknown, None is none
        assert data.attribute.tolist() == [known[word] for word in words]
        assert data.second_attribute.item() == known[words[1]]
        assert data.node_type.tolist() == [v % 3 for v in range(len(tree) + 1)]


def test_targets() -> None:
    columns = columns_of([[(0, 0)]] * 3)
    names = [["get"], ["x", "unheard", "get", "x", "get", "get", "later"], []]
    flat = CodeColumns(**{**vars(columns), "words": names}).graphs(VOCABULARY, "full")
    unknown, eos = 2, 3
    assert flat.column("tokens").tolist() == [
        [0, eos, eos, eos, eos],
        [1, unknown, 0, 1, 0],
        [eos] * 5,
    ]
    assert [flat[g].name_tokens.tolist() for g in range(3)] == [[0], [1, -1, 0, -1], []]


def test_depth_is_clamped() -> None:
    flat = columns_of([[(v, -1) for v in range(30)]]).graphs(VOCABULARY, "ast")
    assert flat[0].depth.tolist() == [min(v, 20) for v in range(31)]
    assert flat[0].longest_path.item() == 31


def test_select_and_vocabulary() -> None:
    columns = columns_of([[(0, 1)], [(0, 2), (0, 2)], [(0, 1)]])
    some = columns.select(np.array([1, 0]))
    assert np.diff(some.node_ptr).tolist() == [3, 2]
    assert some.attribute.tolist() == [-1, 2, 2, -1, 1]
    assert some.vocabulary().attributes == ["y", "x", "__UNK__", "__NONE__"]
    assert some.vocabulary().tokens[:2] == ["get", "z"]
    assert some.vocabulary().node_types == [*NODE_TYPES, "__UNK__"]


def test_no_functions() -> None:
    none = columns_of([[(0, 1)]]).select(np.array([], dtype=np.int64))
    assert len(none.graphs(VOCABULARY, "full")) == 0


@pytest.mark.parametrize(
    "change",
    [
        {"parent_offset": np.array([-1, 2])},
        {"parent_offset": np.array([-1, 0])},
        {"node_type": np.array([0, 7])},
        {"attribute": np.array([-1, 4])},
        {"node_ptr": np.array([0, 1, 2])},
    ],
)
def test_damaged_columns_are_refused(change: dict[str, np.ndarray]) -> None:
    columns = columns_of([[(0, 1)]])
    with pytest.raises(ValueError, match="expected"):
        CodeColumns(**{**vars(columns), **change})


def test_unknown_edges_are_refused() -> None:
    with pytest.raises(ValueError, match="full, ast"):
        columns_of([[(0, 1)]]).graphs(VOCABULARY, "both")
