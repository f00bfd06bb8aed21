"""Pictures of small DAGs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure  # unlike pyplot, it needs no screen
from matplotlib.patches import FancyArrowPatch
from matplotlib.path import Path
from torch import Tensor

from dagnn.bayesnet.layout import Layout, layered_layout
from dagnn.datasets.small_dags import SmallDags

__all__ = ["draw_dags"]

WIDTH, HEIGHT = 0.9, 0.5  # of a node; levels lie 1 apart


def draw_dags(
    graphs: SmallDags, names: Sequence[str], titles: Sequence[str] | None = None, columns: int = 4
) -> Figure:
    """A picture of each graph, its nodes by level from the top down.

    Args:
        graphs: The graphs.
        names: A short name for each node type.
        titles: What to write over each graph.
        columns: Pictures beside each other.
    """
    if not len(graphs):
        raise ValueError("expected graphs to draw, got none")
    columns = min(columns, len(graphs))
    rows = math.ceil(len(graphs) / columns)
    layouts = [_layout(graphs, g) for g in range(len(graphs))]
    lowest = min(float(layout.position[:, 1].min()) for layout in layouts)
    height = 0.42 * (1 - lowest) + 0.3  # inches
    figure = Figure(figsize=(2.6 * columns, height * rows), layout="constrained")
    for g, layout in enumerate(layouts):
        axes = figure.add_subplot(rows, columns, g + 1)
        _draw(axes, layout, [names[kind] for kind in graphs.types[g].tolist()], graphs.types[g])
        axes.set_ylim(lowest - HEIGHT, HEIGHT)  # the same scale for all
        if titles is not None:
            axes.set_title(titles[g], fontsize=8, color="#444444")
    return figure


def _layout(graphs: SmallDags, g: int) -> Layout:
    size = int(graphs.num_nodes[g])
    return layered_layout(graphs.adjacency[g, :size, :size].cpu().numpy(), [WIDTH] * size)


def _draw(axes: Axes, layout: Layout, names: Sequence[str], types: Tensor) -> None:
    for way in layout.ways.values():
        arrow = FancyArrowPatch(
            path=_curve(way), arrowstyle="-|>", mutation_scale=7, color="#777777", lw=0.9, zorder=1
        )
        axes.add_patch(arrow)
    palette = colormaps["Set3"]
    for (x, y), name, kind in zip(layout.position, names, types.tolist(), strict=False):
        color = "#e6e6e6" if kind < 2 else palette((kind - 2) % 12)
        axes.text(
            x,
            y,
            name,
            ha="center",
            va="center",
            fontsize=7,
            zorder=2,
            bbox={"boxstyle": "round,pad=0.35", "facecolor": color, "edgecolor": "#555555"},
        )
    points = np.concatenate([layout.position, *layout.ways.values()])[:, 0]
    middle = (points.min() + points.max()) / 2
    half = max((points.max() - points.min()) / 2 + WIDTH, 1.5)
    axes.set_xlim(middle - half, middle + half)
    axes.set_axis_off()


def _curve(way: np.ndarray) -> Path:
    """A smooth way from a node to the upper edge of another, vertical at every level."""
    points = way.copy()
    points[-1, 1] += HEIGHT / 2
    vertices, codes = [points[0]], [Path.MOVETO]
    for start, end in pairwise(points):
        bend = np.array([0, (end[1] - start[1]) / 2])
        vertices += [start + bend, end - bend, end]
        codes += [Path.CURVE4] * 3
    return Path(np.array(vertices), codes)
