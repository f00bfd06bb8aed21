"""Draws the pictures of the documentation: python docs/make_images.py [FOLDER]"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure  # unlike pyplot, it needs no screen
from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch
from torch import Tensor

from dagnn import topological_levels

INK, GREY = "#1f2933", "#7b8794"
FORWARD = ["#c5f6fa", "#99e9f2", "#66d9e8", "#3bc9db"]  # one shade per level
REVERSE = ["#ffe8cc", "#ffd8a8", "#ffc078", "#ffa94d"]
RADIUS = 0.21

NAMES = "abcdefghi"
EDGES = ["ad", "bd", "be", "af", "df", "ef", "ei", "cg", "fh", "gh"]
# By hand, so that no edge runs through a node: the heights of the nodes, and how edges over
# several levels bend. Places from left to right are the levels.
HEIGHTS = [
    dict(zip(NAMES, [3.0, 1.9, 0.3, 2.3, 1.35, 2.2, 0.4, 1.5, 1.1], strict=True)),
    dict(zip(NAMES, [3.0, 1.7, 0.2, 2.1, 1.15, 2.4, 0.6, 1.9, 0.9], strict=True)),
]
BENDS = [{"af": -0.17, "gh": 0.2}, {"fa": -0.12, "ie": -0.12}]


def draw_batching(path: Path) -> None:
    """A DAG level by level, along its edges and against them (Figure 2 of the paper)."""
    edge_index = torch.tensor([[NAMES.index(end) for end in edge] for edge in EDGES]).t()
    figure = Figure(figsize=(10, 3.9), layout="constrained")
    axes = figure.subplots(1, 2)
    directions = [
        (edge_index, "Along the edges", r"$\mathcal{B}$", FORWARD, 0),
        (edge_index.flip(0), "Against them", r"$\widetilde{\mathcal{B}}$", REVERSE, 1),
    ]
    for ax, (edges, title, batch, shades, d) in zip(axes, directions, strict=True):
        draw_levels(ax, edges, HEIGHTS[d], BENDS[d], shades, batch)
        ax.set_title(title, loc="left", color=INK, fontsize=13, weight="bold", x=0.02)
    figure.savefig(path, dpi=150)


def draw_levels(
    ax: Axes,
    edge_index: Tensor,
    heights: dict[str, float],
    bends: dict[str, float],
    shades: list[str],
    batch: str,
) -> None:
    level = topological_levels(edge_index, len(NAMES)).tolist()
    place = [(1.25 * level[v], heights[name]) for v, name in enumerate(NAMES)]
    for i in range(max(level) + 1):
        # A band is what is computed at once.
        band = FancyBboxPatch((1.25 * i - 0.3, -0.12), 0.6, 3.44, boxstyle="round,pad=0.06",
                              facecolor=shades[i], edgecolor="none", alpha=0.45)  # fmt: skip
        ax.add_patch(band)
        ax.text(1.25 * i, -0.36, f"{batch}$_{i}$", ha="center", va="top", color=INK, fontsize=13)
    for u, v in edge_index.t().tolist():
        bend = bends.get(NAMES[u] + NAMES[v], 0.0)
        arrow = FancyArrowPatch(place[u], place[v], arrowstyle="-|>,head_length=5,head_width=2.6",
                                connectionstyle=f"arc3,rad={bend}", color=GREY, linewidth=1.4,
                                shrinkA=15, shrinkB=15)  # fmt: skip
        ax.add_patch(arrow)
    for v, name in enumerate(NAMES):
        ax.add_patch(Circle(place[v], RADIUS, facecolor=shades[level[v]], edgecolor=INK,
                            linewidth=1.3, zorder=3))  # fmt: skip
        ax.text(*place[v], name, ha="center", va="center_baseline", color=INK, fontsize=12,
                zorder=4)  # fmt: skip
    ax.set_xlim(-0.5, 1.25 * max(level) + 0.5)
    ax.set_ylim(-0.75, 3.45)
    ax.set_aspect("equal")
    ax.set_axis_off()


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    draw_batching(folder / "batching.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "images")
