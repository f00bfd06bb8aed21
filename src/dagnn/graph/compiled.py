"""Loops over nodes and edges, compiled: how a batch of stored graphs and its schedule are made.

Indices inside a graph are counted from zero and stored as 32-bit integers; what is made here are
64-bit indices of the batch. Nothing is checked but in :func:`first_bad_edge` and
:func:`measure`, which every data set passes once. The loops hold no lock: they run beside Python.
"""

from __future__ import annotations

import numba
import numpy as np

__all__ = [
    "batch_pointer",
    "first_bad_edge",
    "gather_structure",
    "level_sort",
    "measure",
    "ragged_rows",
]


@numba.njit(cache=True, nogil=True)
def first_bad_edge(
    node_ptr: np.ndarray, edge_ptr: np.ndarray, edges: np.ndarray
) -> int:  # pragma: no cover - compiled
    """The first edge with an end outside of its graph, or -1."""
    for g in range(len(node_ptr) - 1):
        size = node_ptr[g + 1] - node_ptr[g]
        for e in range(edge_ptr[g], edge_ptr[g + 1]):
            u, v = edges[0, e], edges[1, e]
            if u < 0 or v < 0 or u >= size or v >= size:
                return e
    return -1


@numba.njit(cache=True, nogil=True)
def measure(
    node_ptr: np.ndarray, edge_ptr: np.ndarray, edges: np.ndarray, levels: np.ndarray
) -> tuple[np.ndarray, np.ndarray, int]:  # pragma: no cover - compiled
    """Of every graph and direction, the number of levels and of sinks, ``[2, G]`` each.

    The third value is the first graph whose levels do not rise along its edges (fall, in reverse)
    or leave a level between 0 and the highest without a node; -1 if there is none.
    """
    num_graphs = len(node_ptr) - 1
    depth = np.zeros((2, num_graphs), dtype=np.int64)
    sinks = np.zeros((2, num_graphs), dtype=np.int64)
    largest = 0
    for g in range(num_graphs):
        largest = max(largest, node_ptr[g + 1] - node_ptr[g])
    seen = np.full((2, largest), -1, dtype=np.int64)  # the last graph that has this level
    inner = np.full((2, largest), -1, dtype=np.int64)  # the last graph where the node is no sink
    for g in range(num_graphs):
        first, size = node_ptr[g], node_ptr[g + 1] - node_ptr[g]
        for e in range(edge_ptr[g], edge_ptr[g + 1]):
            u, v = edges[0, e], edges[1, e]
            if levels[0, first + u] >= levels[0, first + v]:
                return depth, sinks, g
            if levels[1, first + v] >= levels[1, first + u]:
                return depth, sinks, g
            inner[0, u] = g
            inner[1, v] = g
        for d in range(2):
            used = 0
            highest = -1
            for v in range(size):
                level = levels[d, first + v]
                if level < 0 or level >= size:
                    return depth, sinks, g
                if seen[d, level] != g:
                    seen[d, level] = g
                    used += 1
                highest = max(highest, level)
                if inner[d, v] != g:
                    sinks[d, g] += 1
            if used != highest + 1:
                return depth, sinks, g
            depth[d, g] = used
    return depth, sinks, -1


@numba.njit(cache=True, nogil=True)
def batch_pointer(
    pointer: np.ndarray, graphs: np.ndarray
) -> np.ndarray:  # pragma: no cover - compiled
    """Where the rows of each of some graphs start when they are laid side by side."""
    out = np.zeros(len(graphs) + 1, dtype=np.int64)
    for i in range(len(graphs)):
        out[i + 1] = out[i] + pointer[graphs[i] + 1] - pointer[graphs[i]]
    return out


@numba.njit(cache=True, nogil=True)
def ragged_rows(
    pointer: np.ndarray, graphs: np.ndarray, rows: np.ndarray
) -> None:  # pragma: no cover - compiled
    """Where the rows of some graphs are stored."""
    i = 0
    for g in graphs:
        for row in range(pointer[g], pointer[g + 1]):
            rows[i] = row
            i += 1


@numba.njit(cache=True, nogil=True)
def gather_structure(
    graphs: np.ndarray,
    node_ptr: np.ndarray,
    edge_ptr: np.ndarray,
    edges: np.ndarray,
    levels: np.ndarray,
    ptr: np.ndarray,
    batch: np.ndarray,
    edge_index: np.ndarray,
    level: np.ndarray,
) -> None:  # pragma: no cover - compiled
    """Lay graphs side by side; :obj:`ptr`, where each starts, is given, the rest is filled."""
    at_edge = 0
    for i in range(len(graphs)):
        g = graphs[i]
        shift = ptr[i]
        first = node_ptr[g]
        for v in range(ptr[i + 1] - shift):
            batch[shift + v] = i
            level[0, shift + v] = levels[0, first + v]
            level[1, shift + v] = levels[1, first + v]
        for e in range(edge_ptr[g], edge_ptr[g + 1]):
            edge_index[0, at_edge] = edges[0, e] + shift
            edge_index[1, at_edge] = edges[1, e] + shift
            at_edge += 1


@numba.njit(cache=True, nogil=True)
def level_sort(
    edge_index: np.ndarray,
    level: np.ndarray,
    order: np.ndarray,
    rank: np.ndarray,
    level_ptr: np.ndarray,
    pred_ptr: np.ndarray,
    pred: np.ndarray,
    pred_edge: np.ndarray,
    succ_ptr: np.ndarray,
    succ: np.ndarray,
    succ_slot: np.ndarray,
    targets: np.ndarray,
    sources: np.ndarray,
) -> None:  # pragma: no cover - compiled
    """What ``torch.ops.dagnn.level_sort`` makes, in linear time: levels without gaps need no
    comparison, only counting. :obj:`level_ptr` is as long as the deeper direction asks."""
    num_nodes = level.shape[1]
    num_edges = edge_index.shape[1]
    target = np.empty(num_edges, dtype=np.int64)  # position of each edge's head
    fill = np.empty(max(num_nodes, level_ptr.shape[1]), dtype=np.int64)
    for d in range(2):
        level_ptr[d] = 0
        for v in range(num_nodes):
            level_ptr[d, level[d, v] + 1] += 1
        for i in range(level_ptr.shape[1] - 1):
            fill[i] = level_ptr[d, i]
            level_ptr[d, i + 1] += level_ptr[d, i]
        for v in range(num_nodes):
            p = fill[level[d, v]]
            fill[level[d, v]] = p + 1
            order[d, p] = v
            rank[d, v] = p

        pred_ptr[d] = 0
        succ_ptr[d] = 0
        for e in range(num_edges):
            target[e] = rank[d, edge_index[1 - d, e]]
            pred_ptr[d, target[e] + 1] += 1
            succ_ptr[d, rank[d, edge_index[d, e]] + 1] += 1
        for p in range(num_nodes):
            fill[p] = pred_ptr[d, p]
            pred_ptr[d, p + 1] += pred_ptr[d, p]
            succ_ptr[d, p + 1] += succ_ptr[d, p]
        for e in range(num_edges):
            slot = fill[target[e]]
            fill[target[e]] = slot + 1
            pred[d, slot] = rank[d, edge_index[d, e]]
            pred_edge[d, slot] = e

        # Going through the slots, not the edges, lists successors in level-major order.
        for p in range(num_nodes):
            fill[p] = succ_ptr[d, p]
        for p in range(num_nodes):
            for slot in range(pred_ptr[d, p], pred_ptr[d, p + 1]):
                place = fill[pred[d, slot]]
                fill[pred[d, slot]] = place + 1
                succ[d, place] = p
                succ_slot[d, place] = slot

        sinks = targets if d == 0 else sources
        i = 0
        for v in range(num_nodes):
            p = rank[d, v]
            if succ_ptr[d, p] == succ_ptr[d, p + 1]:
                sinks[i] = v
                i += 1
