from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dagnn.bayesnet.layout import GAP, layered_layout
from tests.bayesnet.cases import dags


@given(dags(7), st.lists(st.floats(0.3, 3), min_size=7, max_size=7))
def test_nodes_do_not_overlap_and_edges_go_down(adjacency: np.ndarray, widths: list[float]) -> None:
    position, ways = layered_layout(adjacency, widths)
    for i in range(7):
        for j in range(i):
            if position[i, 1] == position[j, 1]:
                apart = abs(position[i, 0] - position[j, 0])
                assert apart >= (widths[i] + widths[j]) / 2 + GAP - 1e-9
    assert set(ways) == {(u, v) for v, u in np.argwhere(adjacency)}
    for (u, v), way in ways.items():
        assert (way[0] == position[u]).all()
        assert (way[-1] == position[v]).all()
        assert (np.diff(way[:, 1]) == -1).all()
        for bend in way[1:-1]:  # passes between the nodes of the level
            for i in np.flatnonzero(position[:, 1] == bend[1]):
                assert abs(bend[0] - position[i, 0]) >= widths[i] / 2 + GAP - 1e-9


def test_a_ladder_has_no_crossings() -> None:
    adjacency = np.zeros((6, 6), dtype=bool)
    for u, v in ((0, 5), (1, 4), (2, 3)):
        adjacency[v, u] = True
    position, _ = layered_layout(adjacency, [1] * 6)
    order = np.argsort(position[:3, 0])
    assert (np.array([5, 4, 3])[order] == np.array([3, 4, 5])[np.argsort(position[3:, 0])]).all()


def test_many_lonely_nodes_wrap() -> None:
    position, ways = layered_layout(np.zeros((20, 20), dtype=bool), [1] * 20)
    assert ways == {}
    assert len(np.unique(position[:, 1])) == 4
