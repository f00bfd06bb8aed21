"""The forward pass of one layer, all levels and directions, in one launch.

A program owns a block of ``BN`` hidden units in one direction for the whole launch, so that its
slice of the recurrent weights stays in shared memory, and walks the levels. Before a level it
waits for the tiles of the level before.

A *narrow* level is one step: every program gathers the states of the predecessors of a tile of
``BM`` nodes (whole rows, since the product needs them; the programs of the other blocks do the
same, which costs less than waiting for one another), forms the messages with an online softmax,
multiplies, applies the gates and stores its block of the new states. In a *wide* level, which has
more tiles than there are programs, the messages come first, each row once, and the product takes
larger tiles after a second wait.
"""

from __future__ import annotations

import triton
import triton.language as tl

from dagnn.ops.triton.primitives import (
    arrive,
    dot,
    fresh,
    rows,
    sigmoid,
    split2,
    split4,
    tanh,
    wait,
)

__all__ = ["forward_kernel"]


@triton.jit
def _transposed(weight, row, row_mask, k, H: tl.constexpr):
    """Some rows of a weight matrix as columns. ``[len(k), len(row)]``"""
    mask = row_mask[None, :] & (k < H)[:, None]
    return tl.load(weight + row[None, :] * H + k[:, None], mask=mask, other=0.0)


@triton.jit
def _messages(
    h,
    aggregate,
    edge_score,
    pred,
    start,
    degree,
    row,
    edges,
    k1,
    k2,
    unit,
    key1,
    key2,
    saves,  # whether this program stores the scores
    H: tl.constexpr,
    K1: tl.constexpr,
    K2: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    ATTENTION: tl.constexpr,
    EDGES: tl.constexpr,
    SAVE: tl.constexpr,
):
    """Messages of a tile: whole rows in two pieces, and the block of the program's own units."""
    m = tl.zeros((BM, BN), dtype=tl.float32)
    m1 = tl.zeros((BM, K1), dtype=tl.float32)
    m2 = tl.zeros((BM, K2 if K2 > 0 else 16), dtype=tl.float32)
    top = tl.full((BM,), -float("inf"), dtype=tl.float32)
    total = tl.zeros((BM,), dtype=tl.float32)
    most = tl.max(degree)
    u = tl.load(pred + start, mask=degree > 0, other=0)
    for j in range(0, most):
        live = j < degree
        slot = start + j
        if ATTENTION:
            source = h + u * H
            v1 = fresh(source, k1, live, k1 < H)
            v = fresh(source, unit, live, unit < H)
            if K2 > 0:
                v2 = fresh(source, k2, live, k2 < H)
            u = tl.load(pred + slot + 1, mask=j + 1 < degree, other=0)
            s = tl.sum(v1 * key1[None, :], axis=1)
            if K2 > 0:
                s += tl.sum(v2 * key2[None, :], axis=1)
            if EDGES:
                s += tl.load(edge_score + slot, mask=live, other=0.0)
            if SAVE:
                tl.store(aggregate + slot, s, mask=live & saves)
            # Online softmax; a row that has no predecessor left stays as it is.
            s = tl.where(live, s, -float("inf"))
            new_top = tl.maximum(top, s)
            finite = tl.where(new_top == -float("inf"), 0.0, new_top)
            keep = tl.exp(top - finite)
            weight = tl.exp(s - finite)
            top = new_top
            total = total * keep + weight
            m1 = m1 * keep[:, None] + v1 * weight[:, None]
            m = m * keep[:, None] + v * weight[:, None]
            if K2 > 0:
                m2 = m2 * keep[:, None] + v2 * weight[:, None]
        else:
            source = aggregate + u * (2 * H)
            m1 += fresh(source, k1, live, k1 < H) * fresh(source + H, k1, live, k1 < H)
            m += fresh(source, unit, live, unit < H) * fresh(source + H, unit, live, unit < H)
            if K2 > 0:
                m2 += fresh(source, k2, live, k2 < H) * fresh(source + H, k2, live, k2 < H)
            u = tl.load(pred + slot + 1, mask=j + 1 < degree, other=0)
    if ATTENTION:
        inverse = tl.where(degree > 0, 1 / total, 0.0)
        m1 *= inverse[:, None]
        m2 *= inverse[:, None]
        m *= inverse[:, None]
        if SAVE:
            tl.store(aggregate + edges + row, top + tl.log(total), mask=(degree > 0) & saves)
    return m1, m2, m


@triton.jit
def _product(
    m1, m2, w1, w2, K2: tl.constexpr, M: tl.constexpr, N: tl.constexpr, PRECISION: tl.constexpr
):
    acc = dot(m1, w1, tl.zeros((M, N), dtype=tl.float32), PRECISION)
    if K2 > 0:
        acc = dot(m2, w2, acc, PRECISION)
    return acc


@triton.jit
def _update(
    acc,  # the recurrent product, [M, 4 * BN] or [M, BN]
    m,  # [M, BN]
    gates,
    h,
    message,
    row,
    row_mask,
    unit,
    bias_r,
    bias_z,
    bias_n,
    bias_m,
    H: tl.constexpr,
    M: tl.constexpr,
    BN: tl.constexpr,
    GRU: tl.constexpr,
    SAVE_GATES: tl.constexpr,
    SAVE_MESSAGE: tl.constexpr,
):
    """The cell, for a tile's rows and the program's units."""
    mask = row_mask[:, None] & (unit < H)[None, :]
    at = row[:, None] * H + unit[None, :]
    if GRU:
        gate_row = gates + row * (4 * H)
        gate_at = gates + row[:, None] * (4 * H) + unit[None, :]
        a_r, a_z, a_m, _ = split4(acc, M, BN)
        r = sigmoid(rows(gate_row, unit, row_mask, unit < H) + bias_r[None, :] + a_r)
        z = sigmoid(rows(gate_row + H, unit, row_mask, unit < H) + bias_z[None, :] + a_z)
        n_message = a_m + bias_m[None, :]
        n_input = rows(gate_row + 2 * H, unit, row_mask, unit < H) + bias_n[None, :]
        n = tanh(n_input + r * n_message)
        state = n + z * (m - n)
        if SAVE_GATES:
            tl.store(gate_at, r, mask=mask)
            tl.store(gate_at + H, z, mask=mask)
            tl.store(gate_at + 2 * H, n, mask=mask)
            tl.store(gate_at + 3 * H, n_message, mask=mask)
    else:
        state = rows(gates + row * H, unit, row_mask, unit < H) + bias_n[None, :] + acc
    tl.store(h + at, state, mask=mask)
    if SAVE_MESSAGE:
        tl.store(message + at, m, mask=mask)


@triton.jit
def forward_kernel(
    gates,  # [S, N, 4H] (r, z, n's input part, free) or [S, N, H]: the input product
    weight,  # [S, 3H, H] or [S, H, H]
    bias_ih,  # [S, 3H] or [S, H]
    bias_hh,  # [S, 3H]
    key,  # [S, H] attention
    edge_score,  # [S, E] attention, with edges
    gate_map,  # [S, 2H, H] gated sum
    gate_bias,  # [S, H] gated sum
    h,  # [S, N, H]
    message,  # [S, N, H]
    aggregate,  # attention: [S, E + N] scores by slot, then each node's log-sum-exp;
    # gated sum: [S, N, 2H] the gate and the map
    level_ptr,  # [S, D + 1]
    pred_ptr,  # [S, N + 1]
    pred,  # [S, E]
    done,  # [S, stages, 2] tiles that have arrived
    nodes,
    edges,
    levels,
    first_stage,
    last_stage,
    workers,  # programs per direction, a multiple of the number of blocks
    H: tl.constexpr,
    K1: tl.constexpr,
    K2: tl.constexpr,
    BM: tl.constexpr,
    WM: tl.constexpr,
    BN: tl.constexpr,
    GRU: tl.constexpr,
    ATTENTION: tl.constexpr,
    EDGES: tl.constexpr,
    SAVE: tl.constexpr,
    WAIT: tl.constexpr,
    PRECISION: tl.constexpr,
):
    BLOCKS: tl.constexpr = (H + BN - 1) // BN
    GATES: tl.constexpr = 3 if GRU else 1
    WIDTH: tl.constexpr = 4 * BN if GRU else BN
    # A gated sum needs a node's whole state before its gate and map: a second stage per level.
    PHASES: tl.constexpr = 1 if ATTENTION else 2
    OPERAND: tl.constexpr = (
        tl.bfloat16 if PRECISION == "bf16" else tl.float16 if PRECISION == "fp16" else tl.float32
    )
    worker = tl.program_id(0) % workers
    direction = (tl.program_id(0) // workers).to(tl.int64)
    gates += direction * nodes * (4 * H if GRU else H)
    weight += direction * GATES * H * H
    bias_ih += direction * GATES * H
    h += direction * nodes * H
    message += direction * nodes * H
    level_ptr += direction * (levels + 1)
    pred_ptr += direction * (nodes + 1)
    pred += direction * edges
    done += direction * levels * PHASES * 2

    block = worker % BLOCKS
    groups = workers // BLOCKS
    unit = block * BN + tl.arange(0, BN)
    unit_mask = unit < H
    k1 = tl.arange(0, K1)
    k2 = K1 + tl.arange(0, K2 if K2 > 0 else 16)
    if GRU:  # three gates side by side; the fourth block pads to a power of two
        lane = tl.arange(0, 4 * BN)
        column = (lane // BN) * H + block * BN + lane % BN
        column_mask = (lane < 3 * BN) & (block * BN + lane % BN < H)
        bias_hh += direction * GATES * H
        bias_m = tl.load(bias_hh + 2 * H + unit, mask=unit_mask, other=0.0)
        bias_r = tl.load(bias_hh + unit, mask=unit_mask, other=0.0)
        bias_r += tl.load(bias_ih + unit, mask=unit_mask, other=0.0)
        bias_z = tl.load(bias_hh + H + unit, mask=unit_mask, other=0.0)
        bias_z += tl.load(bias_ih + H + unit, mask=unit_mask, other=0.0)
        bias_n = tl.load(bias_ih + 2 * H + unit, mask=unit_mask, other=0.0)
    else:
        column = unit
        column_mask = unit_mask
        bias_n = tl.load(bias_ih + unit, mask=unit_mask, other=0.0)
        bias_r = bias_n
        bias_z = bias_n
        bias_m = bias_n
    w1 = _transposed(weight, column, column_mask, k1, H).to(OPERAND)
    w2 = w1
    if K2 > 0:
        w2 = _transposed(weight, column, column_mask, k2, H).to(OPERAND)
    if ATTENTION:
        aggregate += direction * (edges + nodes)
        key1 = tl.load(key + direction * H + k1, mask=k1 < H, other=0.0)
        key2 = tl.load(key + direction * H + k2, mask=k2 < H, other=0.0)
        if EDGES:
            edge_score += direction * edges
    else:
        aggregate += direction * nodes * 2 * H
        key1 = k1
        key2 = k2
        gate_map += direction * 2 * H * H
        pair_lane = tl.arange(0, 2 * BN)
        pair_column = (pair_lane // BN) * H + block * BN + pair_lane % BN
        pair_mask = block * BN + pair_lane % BN < H
        p1 = _transposed(gate_map, pair_column, pair_mask, k1, H).to(OPERAND)
        p2 = p1
        if K2 > 0:
            p2 = _transposed(gate_map, pair_column, pair_mask, k2, H).to(OPERAND)
        bias = tl.load(gate_bias + direction * H + unit, mask=unit_mask, other=0.0)

    before = 0  # tiles of the stage before
    for stage in range(first_stage, last_stage):
        level = stage // PHASES
        low = tl.load(level_ptr + level)
        high = tl.load(level_ptr + level + 1)
        row_tiles = tl.cdiv(high - low, BM).to(tl.int32)
        here = done + stage * 2
        own = 0
        wide = row_tiles > groups
        if stage % PHASES == 0:
            if level == 0:
                # No messages: the input alone.
                for tile in range(worker // BLOCKS, row_tiles, groups):
                    row = low + tile * BM + tl.arange(0, BM)
                    _update(
                        tl.zeros((BM, WIDTH), dtype=tl.float32),
                        tl.zeros((BM, BN), dtype=tl.float32),
                        gates, h, message, row, row < high, unit,
                        bias_r, bias_z, bias_n, bias_m, H, BM, BN, GRU, SAVE, SAVE,
                    )  # fmt: skip
                    own += 1
            elif WAIT and WM > 0 and wide:
                if worker < row_tiles:
                    wait(here - 1, before)
                for tile in range(worker, row_tiles, workers):
                    row = low + tile * BM + tl.arange(0, BM)
                    row_mask = row < high
                    start = tl.load(pred_ptr + row, mask=row_mask, other=0)
                    degree = tl.load(pred_ptr + row + 1, mask=row_mask, other=0) - start
                    m1, m2, _ = _messages(
                        h, aggregate, edge_score, pred, start, degree, row, edges, k1, k2, unit,
                        key1, key2, True, H, K1, K2, BM, BN, ATTENTION, EDGES, SAVE,
                    )  # fmt: skip
                    at = message + row[:, None] * H
                    tl.store(at + k1[None, :], m1, mask=row_mask[:, None] & (k1 < H)[None, :])
                    if K2 > 0:
                        tl.store(at + k2[None, :], m2, mask=row_mask[:, None] & (k2 < H)[None, :])
                    own += 1
                if own > 0:
                    arrive(here, own)
                wait(here, row_tiles)
                own = 0
                row_tiles = tl.cdiv(high - low, WM).to(tl.int32)
                for tile in range(worker // BLOCKS, row_tiles, groups):
                    row = low + tile * WM + tl.arange(0, WM)
                    row_mask = row < high
                    source = message + row * H
                    m1 = fresh(source, k1, row_mask, k1 < H)
                    m2 = fresh(source, k2, row_mask, k2 < H)
                    m = fresh(source, unit, row_mask, unit_mask)
                    acc = _product(m1, m2, w1, w2, K2, WM, WIDTH, PRECISION)
                    _update(
                        acc, m, gates, h, message, row, row_mask, unit,
                        bias_r, bias_z, bias_n, bias_m, H, WM, BN, GRU, SAVE, False,
                    )  # fmt: skip
                    own += 1
            else:
                for tile in range(worker // BLOCKS, row_tiles, groups):
                    row = low + tile * BM + tl.arange(0, BM)
                    row_mask = row < high
                    start = tl.load(pred_ptr + row, mask=row_mask, other=0)
                    degree = tl.load(pred_ptr + row + 1, mask=row_mask, other=0) - start
                    if WAIT:
                        if own == 0:
                            wait(here - 1, before)
                    m1, m2, m = _messages(
                        h, aggregate, edge_score, pred, start, degree, row, edges, k1, k2, unit,
                        key1, key2, block == 0, H, K1, K2, BM, BN, ATTENTION, EDGES, SAVE,
                    )  # fmt: skip
                    acc = _product(m1, m2, w1, w2, K2, BM, WIDTH, PRECISION)
                    _update(
                        acc, m, gates, h, message, row, row_mask, unit,
                        bias_r, bias_z, bias_n, bias_m, H, BM, BN, GRU, SAVE, SAVE,
                    )  # fmt: skip
                    own += 1
        if not ATTENTION:
            if stage % PHASES == 1:
                for tile in range(worker // BLOCKS, row_tiles, groups):
                    row = low + tile * BM + tl.arange(0, BM)
                    row_mask = row < high
                    mask = row_mask[:, None] & unit_mask[None, :]
                    if WAIT:
                        if own == 0:
                            wait(here - 1, before)
                    state1 = fresh(h + row * H, k1, row_mask, k1 < H)
                    state2 = fresh(h + row * H, k2, row_mask, k2 < H)
                    pair = _product(state1, state2, p1, p2, K2, BM, 2 * BN, PRECISION)
                    gate, mapped = split2(pair, BM, BN)
                    pair_at = aggregate + row[:, None] * (2 * H) + unit[None, :]
                    tl.store(pair_at, sigmoid(gate + bias[None, :]), mask=mask)
                    tl.store(pair_at + H, mapped, mask=mask)
                    own += 1
        if WAIT:
            if own > 0:
                arrive(here + 1, own)
        before = row_tiles * BLOCKS
