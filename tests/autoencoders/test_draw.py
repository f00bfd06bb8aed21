"""Pictures."""

from __future__ import annotations

from io import BytesIO

import pytest

from dagnn.autoencoders.draw import draw_dags
from tests.autoencoders.graphs import random_dags

NAMES = ["in", "out", "a", "b", "c"]


def test_every_graph_has_its_nodes_and_title() -> None:
    graphs = random_dags(5)
    figure = draw_dags(graphs, NAMES, [f"graph {g}" for g in range(5)])
    assert len(figure.axes) == 5
    for g, axes in enumerate(figure.axes):
        types = graphs.types[g, : int(graphs.num_nodes[g])].tolist()
        assert [text.get_text() for text in axes.texts] == [NAMES[kind] for kind in types]
        assert len(axes.patches) == int(graphs.adjacency[g].sum())
        assert axes.get_title() == f"graph {g}"
        # An edge goes down.
        heights = {i: text.get_position()[1] for i, text in enumerate(axes.texts)}
        for v, u in graphs.adjacency[g].nonzero().tolist():
            assert heights[u] > heights[v]
    file = BytesIO()
    figure.savefig(file, format="png")
    assert file.getvalue().startswith(b"\x89PNG")


def test_nothing_to_draw() -> None:
    with pytest.raises(ValueError, match="expected graphs to draw, got none"):
        draw_dags(random_dags(3)[:0], NAMES)
