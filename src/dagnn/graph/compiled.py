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
    "lay_out",
    "measure",
    "plan",
    "ragged_rows",
    "totals",
]

ZERO, ONE = np.uint64(0), np.uint64(1)


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
def totals(
    graphs: np.ndarray, depths: np.ndarray, num_sinks: np.ndarray
) -> tuple[int, int, int]:  # pragma: no cover - compiled
    """Of some graphs, the most levels, and the number of sinks in both directions."""
    deepest = targets = sources = 0
    for g in graphs:
        deepest = max(deepest, depths[0, g], depths[1, g])
        targets += num_sinks[0, g]
        sources += num_sinks[1, g]
    return deepest, targets, sources


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
def plan(
    graphs: np.ndarray,
    node_ptr: np.ndarray,
    edge_ptr: np.ndarray,
    level_ptr: np.ndarray,
    node_start: np.ndarray,
    edge_start: np.ndarray,
    depths: np.ndarray,
    num_sinks: np.ndarray,
    nodes: int,
    edges: int,
    padded: bool,
    memory: np.ndarray,
) -> tuple[int, int]:  # pragma: no cover - compiled
    """What :mod:`dagnn.graph.device_batch` sends first: nine rows, for each graph of a batch

    - where its nodes, edges, targets and sources start in the batch (behind the last graph, a
      filler's included, where they end);
    - where its nodes, edges and levels start in what is stored;
    - its number of levels, along the edges and against them.

    Returns the number of targets, and of sources.
    """
    count = len(graphs)
    width = count + padded + 1
    out = memory[: 9 * width].reshape((9, width))
    out[2, 0] = out[3, 0] = 0
    for i in range(count):
        g = graphs[i]
        out[0, i], out[1, i] = node_start[i], edge_start[i]
        out[2, i + 1], out[3, i + 1] = out[2, i] + num_sinks[0, g], out[3, i] + num_sinks[1, g]
        out[4, i], out[5, i], out[6, i] = node_ptr[g], edge_ptr[g], level_ptr[g]
        out[7, i], out[8, i] = depths[0, g], depths[1, g]
    out[0, count], out[1, count] = node_start[count], edge_start[count]
    out[4:, count:] = 0  # never read
    if padded:  # a filler, whose free nodes are no ends of edges; see padding.py
        filler = nodes - node_start[count]
        free = filler - min(edges - edge_start[count], filler // 2)
        out[0, count + 1], out[1, count + 1] = nodes, edges
        out[2, count + 1], out[3, count + 1] = out[2, count] + free, out[3, count] + free
    return out[2, -1], out[3, -1]


@numba.njit(cache=True, nogil=True)
def lay_out(
    graphs: np.ndarray,
    node_ptr: np.ndarray,
    edge_ptr: np.ndarray,
    edges: np.ndarray,
    levels: np.ndarray,
    memory: np.ndarray,
    sizes: np.ndarray,
    schedule: bool,
) -> None:  # pragma: no cover - compiled
    """Lay stored graphs side by side, and a filler behind them if there is room.

    Args:
        memory: What is made, part after part: ``ptr``, ``batch``, ``edge_index``, levels in both
            directions, the stored nodes, the stored edges, and the tensors of the schedule.
        sizes: The size of each part.
    """
    ends = sizes.cumsum()
    # Without a sign, since it is asked of every signed index whether it counts from the end.
    out = memory.view(np.uint64)
    ptr, batch = out[: ends[0]], out[ends[0] : ends[1]]
    source, target = _row(out, ends, 2, 0), _row(out, ends, 2, 1)
    level, reverse_level = _row(out, ends, 3, 0), _row(out, ends, 3, 1)
    node_rows, edge_rows = out[ends[3] : ends[4]], out[ends[4] : ends[5]]
    at_node = at_edge = 0
    for i in range(len(graphs)):
        g = graphs[i]
        shift = at_node
        ptr[i] = shift
        for v in range(node_ptr[g], node_ptr[g + 1]):
            batch[at_node] = i
            level[at_node] = levels[0, v]
            reverse_level[at_node] = levels[1, v]
            node_rows[at_node] = v
            at_node += 1
        for e in range(edge_ptr[g], edge_ptr[g + 1]):
            source[at_edge] = shift + edges[0, e]
            target[at_edge] = shift + edges[1, e]
            edge_rows[at_edge] = e
            at_edge += 1
    ptr[len(graphs) :] = at_node
    if at_node < len(batch):
        ptr[-1] = len(batch)
        batch[at_node:] = len(graphs)
        _fill_room(at_node, at_edge, source, target, level, reverse_level)
        node_rows[at_node:] = 0  # the attributes of the first node and the first edge
        edge_rows[at_edge:] = 0
    if schedule:
        ins = np.zeros(len(batch), dtype=np.uint32)
        outs = np.zeros(len(batch), dtype=np.uint32)
        for e in range(len(source)):
            outs[source[e]] += ONE
            ins[target[e]] += ONE
        _level_sort(source, target, level, ins, outs, out, ends, 0)
        _level_sort(target, source, reverse_level, outs, ins, out, ends, 1)


@numba.njit(cache=True, nogil=True)
def _row(
    out: np.ndarray, ends: np.ndarray, part: int, direction: int
) -> np.ndarray:  # pragma: no cover - compiled
    """A row of a part that has two."""
    size = (ends[part] - ends[part - 1]) // 2
    start = ends[part - 1] + direction * size
    return out[start : start + size]


@numba.njit(cache=True, nogil=True)
def _fill_room(
    nodes: int,
    edges: int,
    source: np.ndarray,
    target: np.ndarray,
    level: np.ndarray,
    reverse_level: np.ndarray,
) -> None:  # pragma: no cover - compiled
    """Write the filler's edges and levels behind those of the graphs, which are so many: from the
    first half of its nodes to the second, in turn; see :mod:`dagnn.graph.padding`."""
    level[nodes:] = 0
    reverse_level[nodes:] = 0
    half = (len(level) - nodes) // 2
    for e in range(edges, len(source)):
        v = nodes + (e - edges) % half
        source[e], target[e] = v, v + half
        reverse_level[v] = level[v + half] = 1


@numba.njit(cache=True, nogil=True)
def _level_sort(
    source: np.ndarray,
    target: np.ndarray,
    level: np.ndarray,
    ins: np.ndarray,
    outs: np.ndarray,
    out: np.ndarray,
    ends: np.ndarray,
    direction: int,
) -> None:  # pragma: no cover - compiled
    """What ``torch.ops.dagnn.level_sort`` makes in one direction, in linear time: levels without
    gaps need no comparison, only counting. While a list is filled, its end is where the next entry
    goes. Places for sinks that are too many name the last node.

    Args:
        ins, outs: The number of edges into and out of each node.
        out, ends: All parts, and where each of them ends; those of the schedule from part 6 on.
    """
    order, rank = _row(out, ends, 6, direction), _row(out, ends, 7, direction)
    level_ptr, pred_ptr = _row(out, ends, 8, direction), _row(out, ends, 9, direction)
    pred, pred_edge = _row(out, ends, 10, direction), _row(out, ends, 11, direction)
    succ_ptr, succ = _row(out, ends, 12, direction), _row(out, ends, 13, direction)
    succ_slot = _row(out, ends, 14, direction)
    sinks = out[ends[14 + direction] : ends[15 + direction]]

    level_ptr[:] = 0
    next_position = level_ptr[1:]
    for v in range(len(level)):
        next_position[level[v]] += ONE
    position = ZERO
    for i in range(len(next_position)):
        size = next_position[i]
        next_position[i] = position
        position += size
    for v in range(len(level)):
        p = next_position[level[v]]
        next_position[level[v]] = p + ONE
        order[p] = v
        rank[v] = p

    pred_ptr[0] = succ_ptr[0] = 0
    next_slot, next_place = pred_ptr[1:], succ_ptr[1:]
    slot = place = ZERO
    for p in range(len(order)):
        next_slot[p], next_place[p] = slot, place
        slot += ins[order[p]]
        place += outs[order[p]]
    head = np.empty(len(pred), dtype=np.uint32)  # position at the other end of each slot
    for e in range(len(pred)):
        p = rank[target[e]]
        slot = next_slot[p]
        next_slot[p] = slot + ONE
        head[slot] = p
        pred[slot] = rank[source[e]]
        pred_edge[slot] = e
    # Going through the slots, not the edges, lists successors in level-major order.
    for s in range(len(pred)):
        p = pred[s]
        place = next_place[p]
        next_place[p] = place + ONE
        succ[place] = head[s]
        succ_slot[place] = s

    sinks[:] = len(order) - 1
    i = 0
    for v in range(len(outs)):  # without a branch that half of the nodes would take
        if i < len(sinks):
            sinks[i] = v
        i += outs[v] == 0
