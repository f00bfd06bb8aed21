"""The forward pass of one layer, all levels and directions, in one launch.

A program owns a block of ``BN`` hidden units in one direction for the whole launch, so that its
slice of the recurrent weights stays in registers, and walks the levels. In each level it takes
tiles of ``BM`` nodes: it gathers their predecessors' states (full rows, since the product needs
them), forms the messages with an online softmax, multiplies, applies the gates, and stores its
block of the new states. Before a level it waits for the tiles of the level before.
"""

from __future__ import annotations

import triton
import triton.language as tl

from dagnn.ops.triton.primitives import arrive, dot, fresh, sigmoid, split2, split4, tanh, wait

__all__ = ["forward_kernel"]


@triton.jit
def _transposed(weight, row, row_mask, k, H: tl.constexpr):
    """Some rows of a weight matrix as columns. ``[len(k), len(row)]``"""
    mask = row_mask[None, :] & (k < H)[:, None]
    return tl.load(weight + row[None, :] * H + k[:, None], mask=mask, other=0.0)


@triton.jit
def forward_kernel(
    gates,  # [S, N, 4H] or [S, N, H]
    recurrent,  # [S, 3H, H] or [S, H, H]
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
    done,  # [S, stages] tiles that have arrived
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
    BN: tl.constexpr,
    GRU: tl.constexpr,
    ATTENTION: tl.constexpr,
    EDGES: tl.constexpr,
    SAVE: tl.constexpr,
    WAIT: tl.constexpr,
    PRECISION: tl.constexpr,
):
    BLOCKS: tl.constexpr = (H + BN - 1) // BN
    WIDTH: tl.constexpr = 4 * H if GRU else H
    # A gated sum needs a node's whole state before its gate and map: a second stage per level.
    PHASES: tl.constexpr = 1 if ATTENTION else 2
    OPERAND: tl.constexpr = (
        tl.bfloat16 if PRECISION == "bf16" else tl.float16 if PRECISION == "fp16" else tl.float32
    )
    worker = tl.program_id(0) % workers
    direction = (tl.program_id(0) // workers).to(tl.int64)
    gates += direction * nodes * WIDTH
    recurrent += direction * (3 if GRU else 1) * H * H
    h += direction * nodes * H
    message += direction * nodes * H
    level_ptr += direction * (levels + 1)
    pred_ptr += direction * (nodes + 1)
    pred += direction * edges
    done += direction * levels * PHASES

    block = worker % BLOCKS
    unit = block * BN + tl.arange(0, BN)
    unit_mask = unit < H
    k1 = tl.arange(0, K1)
    k1_mask = k1 < H
    if GRU:  # three gates side by side; the fourth block pads to a power of two
        lane = tl.arange(0, 4 * BN)
        column = (lane // BN) * H + block * BN + lane % BN
        column_mask = (lane < 3 * BN) & (block * BN + lane % BN < H)
    else:
        column = unit
        column_mask = unit_mask
    w1 = _transposed(recurrent, column, column_mask, k1, H).to(OPERAND)
    if K2 > 0:
        k2 = K1 + tl.arange(0, K2)
        k2_mask = k2 < H
        w2 = _transposed(recurrent, column, column_mask, k2, H).to(OPERAND)
    if ATTENTION:
        aggregate += direction * (edges + nodes)
        key1 = tl.load(key + direction * H + k1, mask=k1_mask, other=0.0)
        if K2 > 0:
            key2 = tl.load(key + direction * H + k2, mask=k2_mask, other=0.0)
        if EDGES:
            edge_score += direction * edges
    else:
        aggregate += direction * nodes * 2 * H
        gate_map += direction * 2 * H * H
        pair_lane = tl.arange(0, 2 * BN)
        pair_column = (pair_lane // BN) * H + block * BN + pair_lane % BN
        pair_mask = block * BN + pair_lane % BN < H
        p1 = _transposed(gate_map, pair_column, pair_mask, k1, H).to(OPERAND)
        if K2 > 0:
            p2 = _transposed(gate_map, pair_column, pair_mask, k2, H).to(OPERAND)
        bias = tl.load(gate_bias + direction * H + unit, mask=unit_mask, other=0.0)

    before = 0  # tiles of the stage before
    for stage in range(first_stage, last_stage):
        level = stage // PHASES
        low = tl.load(level_ptr + level)
        high = tl.load(level_ptr + level + 1)
        row_tiles = tl.cdiv(high - low, BM).to(tl.int32)
        own = 0
        for tile in range(worker // BLOCKS, row_tiles, workers // BLOCKS):
            row = low + tile * BM + tl.arange(0, BM)
            row_mask = row < high
            mask = row_mask[:, None] & unit_mask[None, :]
            at = row[:, None] * H + unit[None, :]
            if stage % PHASES == 0:
                # What does not depend on the level before is loaded before the wait.
                gate_at = gates + row[:, None] * WIDTH + unit[None, :]
                g0 = tl.load(gate_at, mask=mask, other=0.0)
                if GRU:
                    g1 = tl.load(gate_at + H, mask=mask, other=0.0)
                    g2 = tl.load(gate_at + 2 * H, mask=mask, other=0.0)
                    g3 = tl.load(gate_at + 3 * H, mask=mask, other=0.0)
                m = tl.zeros((BM, BN), dtype=tl.float32)  # the program's own block of the message
                if level > 0:
                    start = tl.load(pred_ptr + row, mask=row_mask, other=0)
                    degree = tl.load(pred_ptr + row + 1, mask=row_mask, other=0) - start
                    most = tl.max(degree)
                    u = tl.load(pred + start, mask=degree > 0, other=0)
                    if WAIT:
                        if own == 0:
                            wait(done + stage - 1, before)
                    m1 = tl.zeros((BM, K1), dtype=tl.float32)
                    if K2 > 0:
                        m2 = tl.zeros((BM, K2), dtype=tl.float32)
                    top = tl.full((BM,), -float("inf"), dtype=tl.float32)
                    total = tl.zeros((BM,), dtype=tl.float32)
                    for j in range(0, most):
                        live = j < degree
                        slot = start + j
                        if ATTENTION:
                            source = h + u * H
                            v1 = fresh(source, k1, live, k1_mask)
                            v = fresh(source, unit, live, unit_mask)
                            s = tl.sum(v1 * key1[None, :], axis=1)
                            if K2 > 0:
                                v2 = fresh(source, k2, live, k2_mask)
                                s += tl.sum(v2 * key2[None, :], axis=1)
                            if EDGES:
                                s += tl.load(edge_score + slot, mask=live, other=0.0)
                            if SAVE:
                                tl.store(aggregate + slot, s, mask=live & (block == 0))
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
                            m1 += fresh(source, k1, live, k1_mask) * fresh(
                                source + H, k1, live, k1_mask
                            )
                            m += fresh(source, unit, live, unit_mask) * fresh(
                                source + H, unit, live, unit_mask
                            )
                            if K2 > 0:
                                m2 += fresh(source, k2, live, k2_mask) * fresh(
                                    source + H, k2, live, k2_mask
                                )
                        u = tl.load(pred + slot + 1, mask=j + 1 < degree, other=0)
                    if ATTENTION:
                        inverse = tl.where(degree > 0, 1 / total, 0.0)
                        m1 *= inverse[:, None]
                        m *= inverse[:, None]
                        if K2 > 0:
                            m2 *= inverse[:, None]
                        if SAVE:
                            tl.store(
                                aggregate + edges + row,
                                top + tl.log(total),
                                mask=(degree > 0) & (block == 0),
                            )
                    acc = tl.zeros((BM, 4 * BN if GRU else BN), dtype=tl.float32)
                    acc = dot(m1, w1, acc, PRECISION)
                    if K2 > 0:
                        acc = dot(m2, w2, acc, PRECISION)
                    if GRU:
                        a1, a2, a3, _ = split4(acc, BM, BN)
                        g1 += a1
                        g2 += a2
                        g3 += a3
                    else:
                        g0 += acc
                if GRU:
                    r = sigmoid(g1)
                    z = sigmoid(g2)
                    n = tanh(g0 + r * g3)
                    state = n + z * (m - n)
                    if SAVE:
                        tl.store(gate_at, n, mask=mask)
                        tl.store(gate_at + H, r, mask=mask)
                        tl.store(gate_at + 2 * H, z, mask=mask)
                        tl.store(gate_at + 3 * H, g3, mask=mask)
                else:
                    state = g0
                tl.store(h + at, state, mask=mask)
                if SAVE:
                    tl.store(message + at, m, mask=mask)
            if not ATTENTION:
                if stage % PHASES == 1:
                    if WAIT:
                        if own == 0:
                            wait(done + stage - 1, before)
                    pair = tl.zeros((BM, 2 * BN), dtype=tl.float32)
                    pair = dot(fresh(h + row * H, k1, row_mask, k1_mask), p1, pair, PRECISION)
                    if K2 > 0:
                        pair = dot(fresh(h + row * H, k2, row_mask, k2_mask), p2, pair, PRECISION)
                    gate, mapped = split2(pair, BM, BN)
                    pair_at = aggregate + row[:, None] * (2 * H) + unit[None, :]
                    tl.store(pair_at, sigmoid(gate + bias[None, :]), mask=mask)
                    tl.store(pair_at + H, mapped, mask=mask)
            own += 1
        if WAIT:
            if own > 0:
                arrive(done + stage, own)
        before = row_tiles * BLOCKS
