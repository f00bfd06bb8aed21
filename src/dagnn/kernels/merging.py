"""Kernels of :mod:`dagnn.graph.device_batch`: from stored sweeps to a batch and its schedule.

No program reads what another one of the same launch writes, and every entry is written once.
Offsets into what is stored are 64-bit; numbers within a batch are 32-bit, which
:func:`dagnn.graph.stored_sweeps.is_mergeable` sees to.

The filler of a padded batch is not stored: its edges go from the first half of its nodes to the
second, in turn, so that all of its sweeps follow from the numbers of its nodes and edges.
"""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["place_levels", "write_batch"]

# Columns of the plan, a row for each graph of the batch; see compiled.plan.
FIRST_NODE = tl.constexpr(0)
FIRST_EDGE = tl.constexpr(1)
FIRST_SINK = tl.constexpr(2)  # in both directions
STORED_NODE = tl.constexpr(4)
STORED_EDGE = tl.constexpr(5)
STORED_LEVEL = tl.constexpr(6)
DEPTH = tl.constexpr(7)  # in both directions

# What differs from batch to batch: a kernel compiled for each would be compiled often.
_ANY = {
    "do_not_specialize": (
        "graphs", "nodes", "edges", "levels", "targets", "sources", "stored_nodes",
        "stored_edges", "stored_levels", "search_steps",
    ),
    "do_not_specialize_on_alignment": ("plan", "of_node", "of_edge", "of_level", "shift", "out"),
}  # fmt: skip


@triton.jit
def _size_of_filler(plan, row: tl.constexpr, graphs):
    """The filler is the last graph."""
    at = plan + row * (graphs + 1) + graphs
    return (tl.load(at) - tl.load(at - 1)).to(tl.int32)


@triton.jit
def _shared(edges, half, j):
    """Of the filler's edges, how many the first :obj:`j` nodes of either half have."""
    j = tl.minimum(tl.maximum(j, 0), half)
    return j * (edges // half) + tl.minimum(j, edges % half)


@triton.jit(**_ANY)
def place_levels(
    plan,  # [9, G + 1]
    of_level,  # [3, L stored]
    shift,  # [2, 3, levels, G]
    out,  # the batch's level_ptr [2, levels + 1]
    graphs,
    nodes,
    levels,
    stored_levels,
    PADDED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """How far positions, slots and places are shifted, for each level of each graph.

    A level's positions are those of its first graph, then of its second: numbers are added up
    level by level, and within a level graph by graph. Where a program starts, its graph's own
    numbers are taken off. A program goes through one direction of positions, slots or places.
    """
    row = tl.program_id(0)
    direction = row // 3
    what = row % 3  # positions, slots, places
    stride = graphs + 1
    size = levels * graphs
    own = of_level + what * stored_levels.to(tl.int64)
    if PADDED:
        filler_nodes = _size_of_filler(plan, FIRST_NODE, graphs)
        filler_edges = _size_of_filler(plan, FIRST_EDGE, graphs)
        upper = tl.minimum(filler_edges, filler_nodes // 2)  # nodes of its second level
        # All of its edges leave the first level and enter the second.
        end = tl.where(what == 0, filler_nodes, filler_edges)
        middle = tl.where(what == 0, filler_nodes - upper, tl.where(what == 1, 0, filler_edges))
    before = tl.zeros((), dtype=tl.int32)
    for start in range(0, size, BLOCK):
        at = start + tl.arange(0, BLOCK)
        inside = at < size
        level = at // graphs
        i = at % graphs
        stored = inside
        if PADDED:
            stored = inside & (i < graphs - 1)
        depth = tl.load(plan + (DEPTH + direction) * stride + i, mask=stored, other=0)
        first = tl.load(plan + STORED_LEVEL * stride + i, mask=stored, other=0)
        along = tl.load(plan + DEPTH * stride + i, mask=stored, other=0)
        first += tl.where(direction == 1, along + 1, 0) + level
        there = stored & (level < depth)
        low = tl.load(own + first, mask=there, other=0)
        count = tl.load(own + first + 1, mask=there, other=0) - low
        if PADDED:
            is_filler = inside & (i == graphs - 1)
            low = tl.where(is_filler & (level == 1), middle, low)
            count = tl.where(is_filler & (level == 0), middle, count)
            count = tl.where(is_filler & (level == 1), end - middle, count)
        base = before + tl.cumsum(count, 0) - count
        tl.store(shift + row * size + at, base - low, mask=inside)
        is_first = inside & (i == 0) & (what == 0)
        tl.store(out + direction * (levels + 1) + level, base, mask=is_first)
        before += tl.sum(count, 0)
    if what == 0:
        tl.store(out + direction * (levels + 1) + levels, nodes)


@triton.jit
def _graph_of(start, item, graphs, search_steps):
    """The last graph that starts at an item or before; empty ones are passed over."""
    low = tl.zeros_like(item)
    high = low + graphs
    for _ in range(search_steps):
        middle = (low + high) // 2
        reached = tl.load(start + middle) <= item
        low = tl.where(reached, middle, low)
        high = tl.where(reached, high, middle)
    return low


@triton.jit
def _write_nodes(
    item, plan, of_node, shift, out, graphs, nodes, edges, levels, targets, stored_nodes,
    search_steps, SCHEDULE: tl.constexpr, PADDED: tl.constexpr,
):  # fmt: skip
    inside = item < nodes
    stride = graphs + 1
    i = _graph_of(plan + FIRST_NODE * stride, item, graphs, search_steps)
    v = item - tl.load(plan + FIRST_NODE * stride + i).to(tl.int32)
    stored = inside
    if PADDED:
        is_filler = i == graphs - 1
        stored = inside & (i < graphs - 1)
        m = _size_of_filler(plan, FIRST_EDGE, graphs)
        n = _size_of_filler(plan, FIRST_NODE, graphs)
        half = n // 2
        upper = tl.minimum(m, half)
    stored_at = tl.load(plan + STORED_NODE * stride + i, mask=stored, other=0)
    stored_at += tl.where(stored, v, 0)
    n64 = nodes.to(tl.int64)
    e64 = edges.to(tl.int64)
    sn = stored_nodes.to(tl.int64)
    batch = out + stride
    tl.store(batch + item, i, mask=inside)
    tl.store(batch + n64 + item, stored_at, mask=inside)
    # The parts of the output, in the order in which device_batch.merge cuts it.
    level_out = batch + 2 * n64 + e64
    order_out = level_out + 2 * n64
    rank_out = order_out + 2 * n64
    pred_ptr_out = rank_out + 2 * n64 + 10 * e64
    succ_ptr_out = pred_ptr_out + 2 * (n64 + 1)
    sinks_out = succ_ptr_out + 2 * (n64 + 1) + 2 * (levels + 1)
    table = levels * graphs
    for d in tl.static_range(2):
        own = of_node + 5 * d * sn + stored_at
        level = tl.load(own, mask=stored, other=0)
        if PADDED:
            if d == 0:
                is_upper = is_filler & (v >= half) & (v < half + upper)
            else:
                is_upper = is_filler & (v < upper)
            level = tl.where(is_upper, 1, level)
        tl.store(level_out + d * n64 + item, level, mask=inside)
        if SCHEDULE:
            position = tl.load(own + sn, mask=stored, other=0)
            slot = tl.load(own + 2 * sn, mask=stored, other=0)
            place = tl.load(own + 3 * sn, mask=stored, other=0)
            sink = tl.load(own + 4 * sn, mask=stored, other=-1)
            if PADDED:
                if d == 0:
                    before = tl.where(v < half, v, v - upper)
                    at = tl.where(is_upper, n - upper + v - half, before)
                    entered = tl.where(is_upper, _shared(m, half, v - half), 0)
                    left = _shared(m, half, v)
                    number = tl.where(v >= upper, v - upper, -1)
                else:
                    at = tl.where(is_upper, n - upper + v, v - upper)
                    entered = tl.where(is_upper, _shared(m, half, v), 0)
                    left = tl.where(is_upper, m, _shared(m, half, v - half))
                    number = tl.where(v >= half + upper, v - upper, tl.where(v < half, v, -1))
                position = tl.where(is_filler, at, position)
                slot = tl.where(is_filler, entered, slot)
                place = tl.where(is_filler, left, place)
                sink = tl.where(is_filler, number, sink)
            shifts = shift + 3 * d * table + level * graphs + i
            position += tl.load(shifts, mask=inside, other=0)
            slot += tl.load(shifts + table, mask=inside, other=0)
            place += tl.load(shifts + 2 * table, mask=inside, other=0)
            tl.store(order_out + d * n64 + position, item, mask=inside)
            tl.store(rank_out + d * n64 + item, position, mask=inside)
            tl.store(pred_ptr_out + d * (n64 + 1) + position, slot, mask=inside)
            tl.store(succ_ptr_out + d * (n64 + 1) + position, place, mask=inside)
            first_sink = tl.load(plan + (FIRST_SINK + d) * stride + i)
            is_sink = inside & (sink >= 0)
            tl.store(sinks_out + d * targets + first_sink + sink, item, mask=is_sink)


@triton.jit
def _write_edges(
    item, plan, of_node, of_edge, shift, out, graphs, nodes, edges, levels, stored_nodes,
    stored_edges, search_steps, SCHEDULE: tl.constexpr, PADDED: tl.constexpr,
):  # fmt: skip
    inside = item < edges
    stride = graphs + 1
    i = _graph_of(plan + FIRST_EDGE * stride, item, graphs, search_steps)
    e = item - tl.load(plan + FIRST_EDGE * stride + i).to(tl.int32)
    stored = inside
    if PADDED:
        is_filler = i == graphs - 1
        stored = inside & (i < graphs - 1)
        m = _size_of_filler(plan, FIRST_EDGE, graphs)
        n = _size_of_filler(plan, FIRST_NODE, graphs)
        half = n // 2
        upper = tl.minimum(m, half)
    stored_at = tl.load(plan + STORED_EDGE * stride + i, mask=stored, other=0)
    stored_at += tl.where(stored, e, 0)
    n64 = nodes.to(tl.int64)
    e64 = edges.to(tl.int64)
    sn = stored_nodes.to(tl.int64)
    se = stored_edges.to(tl.int64)
    own = of_edge + stored_at
    source = tl.load(own, mask=stored, other=0)
    target = tl.load(own + se, mask=stored, other=0)
    if PADDED:
        j = e % half
        source = tl.where(is_filler, j, source)
        target = tl.where(is_filler, j + half, target)
    first_node = tl.load(plan + FIRST_NODE * stride + i).to(tl.int32)
    edge_rows = out + stride + 2 * n64
    tl.store(edge_rows + item, stored_at, mask=inside)
    edge_out = edge_rows + e64 + 2 * n64
    if SCHEDULE:
        edge_out += 4 * n64
    tl.store(edge_out + item, first_node + source, mask=inside)
    tl.store(edge_out + e64 + item, first_node + target, mask=inside)
    if SCHEDULE:
        pred_out = edge_out + 2 * e64
        pred_edge_out = pred_out + 2 * e64
        succ_out = pred_edge_out + 2 * e64
        succ_slot_out = succ_out + 2 * e64
        table = levels * graphs
        first = tl.load(plan + STORED_NODE * stride + i, mask=stored, other=0)
        for d in tl.static_range(2):
            if d == 0:
                tail, head = first + source, first + target
            else:
                tail, head = first + target, first + source
            node = of_node + 5 * d * sn
            tail_level = tl.load(node + tail, mask=stored, other=0)
            head_level = tl.load(node + head, mask=stored, other=0)
            tail_at = tl.load(node + sn + tail, mask=stored, other=0)
            head_at = tl.load(node + sn + head, mask=stored, other=0)
            slot = tl.load(own + (2 + 2 * d) * se, mask=stored, other=0)
            place = tl.load(own + (3 + 2 * d) * se, mask=stored, other=0)
            if PADDED:
                head_level = tl.where(is_filler, 1, head_level)
                head_at = tl.where(is_filler, n - upper + j, head_at)
                tail_at = tl.where(is_filler, j if d == 0 else half - upper + j, tail_at)
                number = _shared(m, half, j) + e // half
                slot = tl.where(is_filler, number, slot)
                place = tl.where(is_filler, number, place)
            tail_shift = shift + 3 * d * table + tail_level * graphs + i
            head_shift = shift + 3 * d * table + head_level * graphs + i
            tail_at += tl.load(tail_shift, mask=inside, other=0)
            head_at += tl.load(head_shift, mask=inside, other=0)
            slot += tl.load(head_shift + table, mask=inside, other=0)
            place += tl.load(tail_shift + 2 * table, mask=inside, other=0)
            tl.store(pred_out + d * e64 + slot, tail_at, mask=inside)
            tl.store(pred_edge_out + d * e64 + slot, item, mask=inside)
            tl.store(succ_out + d * e64 + place, head_at, mask=inside)
            tl.store(succ_slot_out + d * e64 + place, slot, mask=inside)


@triton.jit
def _write_ends(
    item, plan, out, graphs, nodes, edges, levels, targets, sources,
    SCHEDULE: tl.constexpr, PADDED: tl.constexpr,
):  # fmt: skip
    """Where graphs start, the ends of lists, and the places for sinks that are too many."""
    stride = graphs + 1
    is_start = item <= graphs
    start = tl.load(plan + FIRST_NODE * stride + item, mask=is_start, other=0)
    tl.store(out + item, start, mask=is_start)
    if SCHEDULE:
        n64 = nodes.to(tl.int64)
        # Behind 8 numbers of each node (batch, row, level, order, rank) and 11 of each edge.
        pred_ptr_out = out + stride + 8 * n64 + 11 * edges.to(tl.int64)
        # After each of both directions of pred_ptr, then of succ_ptr.
        ends = pred_ptr_out + n64 + item * (n64 + 1)
        tl.store(ends, tl.zeros_like(item) + edges, mask=item < 4)
        if PADDED:
            sinks_out = pred_ptr_out + 4 * (n64 + 1) + 2 * (levels + 1)
            for d in tl.static_range(2):
                used = tl.load(plan + (FIRST_SINK + d) * stride + graphs)
                size = targets if d == 0 else sources
                at = used + item
                last = tl.zeros_like(item) + (nodes - 1)
                tl.store(sinks_out + d * targets + at, last, mask=at < size)


@triton.jit(**_ANY)
def write_batch(
    plan,  # [9, G + 1]
    of_node,  # [2, 5, N stored]
    of_edge,  # [6, E stored]
    shift,  # [2, 3, levels, G]; None without SCHEDULE
    out,
    graphs,
    nodes,
    edges,
    levels,
    targets,
    sources,
    stored_nodes,
    stored_edges,
    search_steps,
    SCHEDULE: tl.constexpr,
    PADDED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Everything but ``level_ptr``: a program writes what belongs to some nodes, or some edges."""
    program = tl.program_id(0)
    node_programs = tl.cdiv(nodes, BLOCK)
    edge_programs = tl.cdiv(edges, BLOCK)
    lane = tl.arange(0, BLOCK)
    if program < node_programs:
        _write_nodes(
            program * BLOCK + lane, plan, of_node, shift, out, graphs, nodes, edges, levels,
            targets, stored_nodes, search_steps, SCHEDULE, PADDED,
        )  # fmt: skip
    elif program < node_programs + edge_programs:
        _write_edges(
            (program - node_programs) * BLOCK + lane, plan, of_node, of_edge, shift, out, graphs,
            nodes, edges, levels, stored_nodes, stored_edges, search_steps, SCHEDULE, PADDED,
        )  # fmt: skip
    else:
        _write_ends(
            (program - node_programs - edge_programs) * BLOCK + lane, plan, out, graphs, nodes,
            edges, levels, targets, sources, SCHEDULE, PADDED,
        )  # fmt: skip
