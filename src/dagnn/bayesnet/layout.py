"""Where to draw the nodes of a DAG: by level, with few crossings and short edges."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from dagnn.bayesnet.dags import node_levels

__all__ = ["Layout", "layered_layout"]

GAP = 0.5  # between neighbours of a level
SWEEPS = 24  # down and up again


class Layout(NamedTuple):
    """Places for nodes, and ways for edges; levels lie 1 apart, the first on top."""

    position: np.ndarray  # float64 [n, 2]
    ways: dict[tuple[int, int], np.ndarray]  # by (parent, child): points [P, 2], ends included


def layered_layout(adjacency: np.ndarray, widths: Sequence[float]) -> Layout:
    """Places in the manner of Sugiyama: an edge that skips levels passes between their nodes.

    Args:
        adjacency: ``adjacency[v, u]`` for u → v. bool ``[n, n]``
        widths: The width that each node needs.
    """
    rows = _rows(adjacency)
    level = {v: depth for depth, row in enumerate(rows) for v in row}
    width = dict(enumerate(map(float, widths)))
    chains: dict[tuple[int, int], list[int]] = {}
    for v, u in np.argwhere(adjacency).tolist():
        bends = range(len(level), len(level) + level[v] - level[u] - 1)
        for depth, bend in enumerate(bends, start=level[u] + 1):
            rows[depth].append(bend)
            level[bend], width[bend] = depth, 0.0
        chains[u, v] = [u, *bends, v]
    above: dict[int, list[int]] = {v: [] for v in level}
    below: dict[int, list[int]] = {v: [] for v in level}
    for chain in chains.values():
        for upper, lower in pairwise(chain):
            below[upper].append(lower)
            above[lower].append(upper)
    x = _untangle(rows, above, below, width)
    point = {v: np.array([x[v], -float(level[v])]) for v in level}
    return Layout(
        np.array([point[v] for v in range(len(adjacency))]).reshape(-1, 2),
        {edge: np.array([point[v] for v in chain]) for edge, chain in chains.items()},
    )


def _rows(adjacency: np.ndarray) -> list[list[int]]:
    """Nodes by level; sources come down to their children, nodes without edges to the end."""
    level = node_levels(adjacency)
    lonely = ~adjacency.any(axis=0) & ~adjacency.any(axis=1)
    for u in np.flatnonzero((level == 0) & ~lonely):
        level[u] = level[adjacency[:, u]].min() - 1
    rows = [np.flatnonzero((level == i) & ~lonely).tolist() for i in range(level.max() + 1)]
    rows = [row for row in rows if row]
    alone = np.flatnonzero(lonely).tolist()
    per_row = max([6, *map(len, rows)])
    return rows + [alone[i : i + per_row] for i in range(0, len(alone), per_row)]


def _untangle(
    rows: list[list[int]],
    above: dict[int, list[int]],
    below: dict[int, list[int]],
    width: dict[int, float],
) -> dict[int, float]:
    """Order the nodes of each row and place them, by turns under and over their neighbours."""
    x: dict[int, float] = {}
    for row in rows:
        x |= _place(row, [0.0] * len(row), width)
    best, fewest = dict(x), np.inf
    for _ in range(SWEEPS):
        for ordered, neighbours in ((rows[1:], above), (rows[-2::-1], below)):
            for row in ordered:
                row.sort(key=lambda v: _mean(x, neighbours[v], x[v]))
                x |= _place(row, [_mean(x, neighbours[v], x[v]) for v in row], width)
        length = sum(abs(x[v] - x[w]) for v in x for w in below[v])
        cost = 10 * _crossings(x, rows, below) + length
        if cost < fewest:
            best, fewest = dict(x), cost
    return best


def _mean(x: dict[int, float], nodes: list[int], otherwise: float) -> float:
    return float(np.mean([x[v] for v in nodes])) if nodes else otherwise


def _place(row: list[int], wish: list[float], width: dict[int, float]) -> dict[int, float]:
    """Places as near to the wishes as widths allow (least squares, by pooling neighbours)."""
    needed = [0.0]
    for left, right in pairwise(row):
        needed.append(needed[-1] + (width[left] + width[right]) / 2 + GAP)
    pools: list[tuple[float, int]] = []  # mean and size of runs that touch each other
    for i, place in enumerate(wish):
        mean, size = place - needed[i], 1
        while pools and pools[-1][0] > mean:
            before, count = pools.pop()
            mean, size = (before * count + mean * size) / (count + size), count + size
        pools.append((mean, size))
    shift = [mean for mean, size in pools for _ in range(size)]
    return {v: shift[i] + needed[i] for i, v in enumerate(row)}


def _crossings(x: dict[int, float], rows: list[list[int]], below: dict[int, list[int]]) -> int:
    total = 0
    for row in rows:
        ends = np.array([[x[v], x[w]] for v in row for w in below[v]]).reshape(-1, 2)
        order = np.sign(ends[:, None] - ends[None])  # [E, E, 2]
        total += int((order[:, :, 0] * order[:, :, 1] < 0).sum()) // 2
    return total
