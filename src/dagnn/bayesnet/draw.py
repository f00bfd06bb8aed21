"""A picture of a network: nodes by level, edges by confidence."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch
from matplotlib.path import Path

from dagnn.bayesnet.layout import layered_layout

if TYPE_CHECKING:
    from dagnn.bayesnet.network import BayesianNetwork

__all__ = ["draw_network"]

NODE_HEIGHT = 0.3
LETTER = 0.105  # the width of a letter
LONGEST_NAME = 24
LEGEND_WIDTH = 2.4
PALE, STRONG = np.array(to_rgb("#c9d6e2")), np.array(to_rgb("#12406b"))


def draw_network(network: BayesianNetwork) -> Figure:
    """A figure of the structure.

    An edge is the darker and thicker the surer it is, where confidence was measured; it is dashed
    where equivalent networks disagree about its direction, so that data cannot tell.
    """
    labels = [_shorten(name) for name in network.names]
    widths = [max(0.45, 0.25 + LETTER * len(label)) for label in labels]
    layout = layered_layout(network.adjacency, widths)
    position = layout.position
    left = float(min(x - w / 2 for (x, _), w in zip(position, widths, strict=True)))
    right = float(max(x + w / 2 for (x, _), w in zip(position, widths, strict=True)))
    room = max(0.0, LEGEND_WIDTH - (right - left)) / 2
    left, right = left - room, right + room
    low, high = float(position[:, 1].min()) - 0.75, 0.35
    inches = 0.9  # for a unit of width; wide pictures need more height, or edges would lie flat
    level_inches = min(max(inches, 0.1 * (right - left)), 2 * inches)
    figure = Figure(figsize=((right - left + 0.5) * inches, (high - low) * level_inches))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(left - 0.25, right + 0.25)
    axes.set_ylim(low, high)
    axes.set_axis_off()
    undirected, confidence = network.cpdag.undirected, network.edge_confidence
    half_height = NODE_HEIGHT / 2 * inches / level_inches
    for (u, v), way in layout.ways.items():
        sure = 1.0 if confidence is None else float(confidence[v, u])
        axes.add_patch(
            FancyArrowPatch(
                path=_curve(way, half_height),
                arrowstyle="-|>",
                mutation_scale=11,
                color=tuple(PALE + sure * (STRONG - PALE)),
                linewidth=0.8 + 1.6 * sure,
                linestyle=(0, (4, 2.5)) if undirected[v, u] else "solid",
                zorder=1 + sure,
            )
        )
    for (x, y), label in zip(position, labels, strict=True):
        axes.text(
            x,
            y,
            label,
            ha="center",
            va="center",
            fontsize=10,
            zorder=3,
            parse_math=False,
            bbox={"boxstyle": "round,pad=0.35", "facecolor": "#f5f8fb", "edgecolor": "#12406b"},
        )
    legend = _legend(network, bool(undirected.any()))
    axes.text(left - 0.15, low + 0.08, legend, fontsize=7, color="#555555", va="bottom")
    return figure


def _curve(way: np.ndarray, half_height: float) -> Path:
    """A smooth way from under the parent to over the child, vertical at every level."""
    points = way.copy()
    points[0, 1] -= half_height
    points[-1, 1] += half_height + 0.02
    vertices, codes = [points[0]], [Path.MOVETO]
    for start, end in pairwise(points):
        bend = np.array([0, (end[1] - start[1]) / 2])
        vertices += [start + bend, end - bend, end]
        codes += [Path.CURVE4] * 3
    return Path(np.array(vertices), codes)


def _legend(network: BayesianNetwork, some_undirected: bool) -> str:
    parts = []
    if network.score_name is not None:
        parts.append(f"{network.score_name.upper()} {network.score():,.3f}")
    if network.confidence is not None:
        parts.append("darker: surer (bootstrap)")
    if some_undirected:
        parts.append("dashed: data cannot tell the direction")
    return "\n".join(parts)


def _shorten(name: str) -> str:
    name = " ".join(name.split())
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"
