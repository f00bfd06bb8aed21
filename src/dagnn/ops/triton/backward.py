"""The backward pass of one layer, all levels and directions, in one launch.

The mirror of the forward kernel, from the last level to the first. A node pulls gradients over
its successors, so no atomics are needed and the order of every sum is fixed. With ``dm`` the
gradient of a message and ``a`` an attention weight, the gradient of an edge's score is local to
the edge, ``ds = a (dm_v · h_u - dm_v · m_v)``; the second product needs whole rows of ``dm``,
which no program has, so each program leaves its block's share of it for others to add up.
"""

from __future__ import annotations

import triton
import triton.language as tl

from dagnn.ops.triton.primitives import arrive, dot, fresh, pin, wait

__all__ = ["backward_kernel"]


@triton.jit
def _rows(weight, first, k, unit, unit_mask, H: tl.constexpr):
    """Rows ``first + k`` of a weight matrix, a program's columns of it. ``[len(k), BN]``"""
    mask = (k < H)[:, None] & unit_mask[None, :]
    return tl.load(weight + (first + k)[:, None] * H + unit[None, :], mask=mask, other=0.0)


@triton.jit
def _saved(row_ptr, column, row_mask, column_mask):
    """Rows that the forward pass left. ``[BM, len(column)]``"""
    return tl.load(
        row_ptr[:, None] + column[None, :],
        mask=row_mask[:, None] & column_mask[None, :],
        other=0.0,
    )


@triton.jit
def _gates_backward(dh, m, gate_ptr, column, row_mask, column_mask, H: tl.constexpr):
    """Gradients of a GRU's pre-activations: ``dn, dr, dz, dn's message part``, and z."""
    n = _saved(gate_ptr, column, row_mask, column_mask)
    r = _saved(gate_ptr + H, column, row_mask, column_mask)
    z = _saved(gate_ptr + 2 * H, column, row_mask, column_mask)
    n_message = _saved(gate_ptr + 3 * H, column, row_mask, column_mask)
    dn = dh * (1 - z) * (1 - n * n)
    return dn, dn * n_message * r * (1 - r), dh * (m - n) * z * (1 - z), dn * r, z


@triton.jit
def backward_kernel(
    grad,  # [S, N, H] of the states, from outside
    gates,  # [S, N, 4H] as the forward pass left them
    recurrent,  # [S, 3H, H] or [S, H, H]
    key,  # [S, H] attention
    gate_map,  # [S, 2H, H] gated sum
    h,  # [S, N, H]
    message,  # [S, N, H]
    aggregate,  # attention: [S, E + N]; gated sum: [S, N, 2H]
    d_state,  # [S, N, H] out: whole gradient of the states (linear cell, or gated sum)
    d_gates,  # [S, N, 4H] out: GRU
    d_message,  # [S, N, H] scratch
    d_score,  # [S, E] out: attention
    key_score,  # [S, N] out: attention
    shares,  # [S, N, BLOCKS] scratch: each block's share of dm · m
    d_pair,  # [S, N, 2H] out: gated sum
    level_ptr,  # [S, D + 1]
    succ_ptr,  # [S, N + 1]
    succ,  # [S, E]
    succ_slot,  # [S, E]
    done,  # [S, stages]
    nodes,
    edges,
    levels,
    first_stage,
    last_stage,
    workers,
    H: tl.constexpr,
    K1: tl.constexpr,
    K2: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    PADDED_BLOCKS: tl.constexpr,
    GRU: tl.constexpr,
    ATTENTION: tl.constexpr,
    WAIT: tl.constexpr,
    PRECISION: tl.constexpr,
):
    BLOCKS: tl.constexpr = (H + BN - 1) // BN
    PHASES: tl.constexpr = 1 if ATTENTION else 2
    OPERAND: tl.constexpr = (
        tl.bfloat16 if PRECISION == "bf16" else tl.float16 if PRECISION == "fp16" else tl.float32
    )
    worker = tl.program_id(0) % workers
    direction = (tl.program_id(0) // workers).to(tl.int64)
    grad += direction * nodes * H
    recurrent += direction * (3 if GRU else 1) * H * H
    h += direction * nodes * H
    message += direction * nodes * H
    d_message += direction * nodes * H
    level_ptr += direction * (levels + 1)
    succ_ptr += direction * (nodes + 1)
    succ += direction * edges
    succ_slot += direction * edges
    done += direction * levels * PHASES

    block = worker % BLOCKS
    unit = block * BN + tl.arange(0, BN)
    unit_mask = unit < H
    k1 = tl.arange(0, K1)
    k1_mask = k1 < H
    w1 = _rows(recurrent, 0, k1, unit, unit_mask, H).to(OPERAND)
    if GRU:
        gates += direction * nodes * 4 * H
        d_gates += direction * nodes * 4 * H
        wz1 = _rows(recurrent, H, k1, unit, unit_mask, H).to(OPERAND)
        wn1 = _rows(recurrent, 2 * H, k1, unit, unit_mask, H).to(OPERAND)
    if K2 > 0:
        k2 = K1 + tl.arange(0, K2)
        k2_mask = k2 < H
        w2 = _rows(recurrent, 0, k2, unit, unit_mask, H).to(OPERAND)
        if GRU:
            wz2 = _rows(recurrent, H, k2, unit, unit_mask, H).to(OPERAND)
            wn2 = _rows(recurrent, 2 * H, k2, unit, unit_mask, H).to(OPERAND)
    if not GRU or not ATTENTION:
        d_state += direction * nodes * H
    if ATTENTION:
        aggregate += direction * (edges + nodes)
        d_score += direction * edges
        key_score += direction * nodes
        shares += direction * nodes * BLOCKS
        share = tl.arange(0, PADDED_BLOCKS)
        key1 = tl.load(key + direction * H + k1, mask=k1_mask, other=0.0)
        key_own = tl.load(key + direction * H + unit, mask=unit_mask, other=0.0)
        if K2 > 0:
            key2 = tl.load(key + direction * H + k2, mask=k2_mask, other=0.0)
    else:
        aggregate += direction * nodes * 2 * H
        d_pair += direction * nodes * 2 * H
        gate_map += direction * 2 * H * H
        pg1 = _rows(gate_map, 0, k1, unit, unit_mask, H).to(OPERAND)
        pm1 = _rows(gate_map, H, k1, unit, unit_mask, H).to(OPERAND)
        if K2 > 0:
            pg2 = _rows(gate_map, 0, k2, unit, unit_mask, H).to(OPERAND)
            pm2 = _rows(gate_map, H, k2, unit, unit_mask, H).to(OPERAND)

    before = 0  # tiles of the stage before
    for stage in range(first_stage, last_stage):
        level = levels - 1 - stage // PHASES
        low = tl.load(level_ptr + level)
        high = tl.load(level_ptr + level + 1)
        row_tiles = tl.cdiv(high - low, BM).to(tl.int32)
        own = 0
        for tile in range(worker // BLOCKS, row_tiles, workers // BLOCKS):
            row = low + tile * BM + tl.arange(0, BM)
            row_mask = row < high
            mask = row_mask[:, None] & unit_mask[None, :]
            at = row[:, None] * H + unit[None, :]
            # What a node pulls from its successors: in full rows, and the program's own block.
            dh = tl.zeros((BM, BN), dtype=tl.float32)
            dh1 = tl.zeros((BM, K1), dtype=tl.float32)
            if K2 > 0:
                dh2 = tl.zeros((BM, K2), dtype=tl.float32)
            if ATTENTION:
                dh = _saved(grad + row * H, unit, row_mask, unit_mask)
                dh1 = _saved(grad + row * H, k1, row_mask, k1_mask)
                h1 = _saved(h + row * H, k1, row_mask, k1_mask)
                if K2 > 0:
                    dh2 = _saved(grad + row * H, k2, row_mask, k2_mask)
                    h2 = _saved(h + row * H, k2, row_mask, k2_mask)
            if stage % PHASES == 0:
                start = tl.load(succ_ptr + row, mask=row_mask, other=0)
                degree = tl.load(succ_ptr + row + 1, mask=row_mask, other=0) - start
                most = tl.max(degree)
                v = tl.load(succ + start, mask=degree > 0, other=0)
                if WAIT:
                    if own == 0:
                        if stage > 0:
                            wait(done + stage - 1, before)
                total = tl.zeros((BM,), dtype=tl.float32)
                for j in range(0, most):
                    live = j < degree
                    target = d_message + v * H
                    dm = fresh(target, unit, live, unit_mask)
                    dm1 = fresh(target, k1, live, k1_mask)
                    if K2 > 0:
                        dm2 = fresh(target, k2, live, k2_mask)
                    if ATTENTION:
                        slot = tl.load(succ_slot + start + j, mask=live, other=0)
                        score = tl.load(aggregate + slot, mask=live, other=0.0)
                        norm = tl.load(aggregate + edges + v, mask=live, other=0.0)
                        a = tl.where(live, tl.exp(score - norm), 0.0)
                        inner = tl.sum(dm1 * h1, axis=1)
                        if K2 > 0:
                            inner += tl.sum(dm2 * h2, axis=1)
                        inner -= tl.sum(fresh(shares + v * BLOCKS, share, live, share < BLOCKS), 1)
                        ds = a * inner
                        tl.store(d_score + slot, ds, mask=live & (block == 0))
                        total += ds
                        dh += a[:, None] * dm + ds[:, None] * key_own[None, :]
                        dh1 += a[:, None] * dm1 + ds[:, None] * key1[None, :]
                        if K2 > 0:
                            dh2 += a[:, None] * dm2 + ds[:, None] * key2[None, :]
                    else:
                        dh += dm
                        dh1 += dm1
                        if K2 > 0:
                            dh2 += dm2
                    v = tl.load(succ + start + j + 1, mask=j + 1 < degree, other=0)
                if ATTENTION:
                    tl.store(key_score + row, total, mask=row_mask & (block == 0))
                    if not GRU:
                        tl.store(d_state + at, dh, mask=mask)
            if not ATTENTION:
                if stage % PHASES == 0:
                    # Through the product of gate and map to the state.
                    pair = aggregate + row * (2 * H)
                    gate = _saved(pair, unit, row_mask, unit_mask)
                    value = _saved(pair + H, unit, row_mask, unit_mask)
                    pair_at = d_pair + row[:, None] * (2 * H) + unit[None, :]
                    tl.store(pair_at, dh * value * gate * (1 - gate), mask=mask)
                    tl.store(pair_at + H, dh * gate, mask=mask)
                    gate1 = _saved(pair, k1, row_mask, k1_mask)
                    value1 = _saved(pair + H, k1, row_mask, k1_mask)
                    acc = _saved(grad + row * H, unit, row_mask, unit_mask)
                    acc = dot(dh1 * value1 * gate1 * (1 - gate1), pg1, acc, PRECISION)
                    acc = dot(dh1 * gate1, pm1, acc, PRECISION)
                    if K2 > 0:
                        gate2 = _saved(pair, k2, row_mask, k2_mask)
                        value2 = _saved(pair + H, k2, row_mask, k2_mask)
                        acc = dot(dh2 * value2 * gate2 * (1 - gate2), pg2, acc, PRECISION)
                        acc = dot(dh2 * gate2, pm2, acc, PRECISION)
                    tl.store(d_state + at, acc, mask=mask)
                else:
                    if WAIT:
                        if own == 0:
                            wait(done + stage - 1, before)
                    dh = fresh(d_state + row * H, unit, row_mask, unit_mask)
                    dh1 = fresh(d_state + row * H, k1, row_mask, k1_mask)
                    if K2 > 0:
                        dh2 = fresh(d_state + row * H, k2, row_mask, k2_mask)
            if stage % PHASES == PHASES - 1:
                m = _saved(message + row * H, unit, row_mask, unit_mask)
                if GRU:
                    gate_row = gates + row * (4 * H)
                    dn, dr, dz, dn_message, z = _gates_backward(
                        dh, m, gate_row, unit, row_mask, unit_mask, H
                    )
                    gate_at = d_gates + row[:, None] * (4 * H) + unit[None, :]
                    tl.store(gate_at, dn, mask=mask)
                    tl.store(gate_at + H, dr, mask=mask)
                    tl.store(gate_at + 2 * H, dz, mask=mask)
                    tl.store(gate_at + 3 * H, dn_message, mask=mask)
                if level > 0:
                    if GRU:
                        acc = dh * z
                        m1 = _saved(message + row * H, k1, row_mask, k1_mask)
                        _, dr1, dz1, dn1, _ = _gates_backward(
                            dh1, m1, gate_row, k1, row_mask, k1_mask, H
                        )
                        acc = dot(pin(dr1), w1, acc, PRECISION)
                        acc = dot(pin(dz1), wz1, acc, PRECISION)
                        acc = dot(pin(dn1), wn1, acc, PRECISION)
                        if K2 > 0:
                            m2 = _saved(message + row * H, k2, row_mask, k2_mask)
                            _, dr2, dz2, dn2, _ = _gates_backward(
                                dh2, m2, gate_row, k2, row_mask, k2_mask, H
                            )
                            acc = dot(pin(dr2), w2, acc, PRECISION)
                            acc = dot(pin(dz2), wz2, acc, PRECISION)
                            acc = dot(pin(dn2), wn2, acc, PRECISION)
                    else:
                        acc = tl.zeros((BM, BN), dtype=tl.float32)
                        acc = dot(dh1, w1, acc, PRECISION)
                        if K2 > 0:
                            acc = dot(dh2, w2, acc, PRECISION)
                    tl.store(d_message + at, acc, mask=mask)
                    if ATTENTION:
                        tl.store(shares + row * BLOCKS + block, tl.sum(acc * m, 1), mask=row_mask)
            own += 1
        if WAIT:
            if own > 0:
                arrive(done + stage, own)
        before = row_tiles * BLOCKS
