from __future__ import annotations

import numpy as np
import pytest
from matplotlib.patches import FancyArrowPatch

from dagnn.bayesnet.draw import draw_network
from dagnn.bayesnet.network import BayesianNetwork
from dagnn.bayesnet.scores import FamilyScores
from dagnn.bayesnet.table import Table
from dagnn.bayesnet.variables import Variable
from tests.bayesnet.cases import dependent_table


def network(confidence: np.ndarray | None = None) -> BayesianNetwork:
    plain = dependent_table(4, 50, seed=0)
    names = ("a", "$b_c", "a very long name of a variable", "d")
    table = Table(tuple(map(Variable, names, plain.levels)), plain.codes)
    adjacency = np.zeros((4, 4), dtype=bool)
    adjacency[2, [0, 1]] = adjacency[3, 0] = True  # 0 → 2 ← 1, and 0 – 3
    return BayesianNetwork.fit(FamilyScores(table), adjacency, confidence=confidence)


def test_shows_nodes_edges_and_what_is_certain() -> None:
    figure = draw_network(network())
    axes = figure.axes[0]
    texts = [text.get_text() for text in axes.texts]
    assert texts[:4] == ["a", "$b_c", "a very long name of a v…", "d"]
    assert "BIC" in texts[-1]
    assert "dashed" in texts[-1]
    assert "surer" not in texts[-1]
    arrows = [patch for patch in axes.patches if isinstance(patch, FancyArrowPatch)]
    assert len(arrows) == 3
    assert sum(arrow.get_linestyle() not in ("-", "solid") for arrow in arrows) == 1


def test_surer_edges_are_thicker() -> None:
    confidence = np.zeros((4, 4))
    confidence[2, 0], confidence[2, 1], confidence[3, 0] = 0.2, 0.9, 0.5
    figure = draw_network(network(confidence))
    arrows = [p for p in figure.axes[0].patches if isinstance(p, FancyArrowPatch)]
    widths = sorted(arrow.get_linewidth() for arrow in arrows)
    assert widths == pytest.approx([0.8 + 1.6 * share for share in (0.2, 0.5, 0.9)])
    assert "surer" in figure.axes[0].texts[-1].get_text()
