"""The backward pass of one layer, all levels and directions, in one launch.

The mirror of the forward kernel, from the last level to the first. A node pulls gradients over
its successors, so no atomics are needed and the order of every sum is fixed. With ``dm`` the
gradient of a message and ``a`` an attention weight, the gradient of an edge's score is local to
the edge, ``ds = a dm_v · (h_u - m_v)``. Both states are taken relative to an anchor ``c``, the
first predecessor of ``v``: ``a (dm_v · (h_u - c) - dm_v · (m_v - c))``, which are small where
predecessors are alike. The second product needs whole rows of ``dm``, which the program that makes
them does not have, so each leaves its block's share of it for others to add up.

The gates of a GRU under an attention are formed anew, for all nodes at once, before the loop.
Where each row belongs to one program, their gradients take their place (wide levels); where the
programs of all blocks read whole rows, nobody may write, and
:func:`~dagnn.ops.triton.gather.launch_finish` does it after the loop (narrow levels).
"""

from __future__ import annotations

import triton
import triton.language as tl

from dagnn.ops.triton.primitives import ANY, arrive, dot, fresh, pin, rows, scales, wait
from dagnn.ops.triton.weights import cell_weights, pair_weights

__all__ = [
    "backward_kernel",
    "gates_backward",
    "gates_product",
    "gradient_product",
    "pull",
    "store_gates",
    "successors",
    "weight_of",
]


@triton.jit
def gradient_product(d, w, of_w, acc, PRECISION: tl.constexpr):
    """``acc + d @ w``. A gradient may be of any size, for which fp16 has no exponents: a row is
    multiplied relative to its largest number."""
    part = acc
    if PRECISION == "fp16":
        scale, inverse = scales(tl.max(tl.abs(d), axis=1))
        d *= inverse[:, None]
        part = tl.zeros_like(acc)
    part = dot(pin(d), w, part, PRECISION)
    if PRECISION == "fp16":
        part = acc + (scale * of_w)[:, None] * part
    return part


@triton.jit
def gates_product(dr, dz, dn, wr, wz, wn, of_r, of_z, of_n, acc, PRECISION: tl.constexpr):
    """``acc`` and what the gradients of a GRU's pre-activations give to the product's input."""
    part = acc
    if PRECISION == "fp16":  # one scale for all three
        dr *= of_r
        dz *= of_z
        dn *= of_n
        top = tl.maximum(tl.maximum(tl.abs(dr), tl.abs(dz)), tl.abs(dn))
        scale, inverse = scales(tl.max(top, axis=1))
        dr *= inverse[:, None]
        dz *= inverse[:, None]
        dn *= inverse[:, None]
        part = tl.zeros_like(acc)
    part = dot(pin(dr), wr, part, PRECISION)
    part = dot(pin(dz), wz, part, PRECISION)
    part = dot(pin(dn), wn, part, PRECISION)
    if PRECISION == "fp16":
        part = acc + scale[:, None] * part
    return part


@triton.jit
def pair_product(dh, gate, value, wg, wm, of_g, of_m, acc, PRECISION: tl.constexpr):
    """``acc`` and what a gradient of ``gate * value`` gives to the state, through both."""
    d_gate = dh * value * gate * (1 - gate)  # before the sigmoid
    d_value = dh * gate
    part = acc
    if PRECISION == "fp16":  # one scale for both
        d_gate *= of_g
        d_value *= of_m
        top = tl.maximum(tl.abs(d_gate), tl.abs(d_value))
        scale, inverse = scales(tl.max(top, axis=1))
        d_gate *= inverse[:, None]
        d_value *= inverse[:, None]
        part = tl.zeros_like(acc)
    part = dot(pin(d_gate), wg, part, PRECISION)
    part = dot(pin(d_value), wm, part, PRECISION)
    if PRECISION == "fp16":
        part = acc + scale[:, None] * part
    return part


@triton.jit
def _kept(message, gates, row, row_mask, k, H: tl.constexpr, HP: tl.constexpr):
    """The message, r, z, n and n's message part."""
    gate_row = gates + row * (4 * HP)
    m = rows(message + row * HP, k, row_mask, k < H)
    r = rows(gate_row, k, row_mask, k < H)
    z = rows(gate_row + HP, k, row_mask, k < H)
    n = rows(gate_row + 2 * HP, k, row_mask, k < H)
    n_message = rows(gate_row + 3 * HP, k, row_mask, k < H)
    return m, r, z, n, n_message


@triton.jit
def gates_backward(dh, message, gates, row, row_mask, k, H: tl.constexpr, HP: tl.constexpr):
    """Gradients of a GRU's pre-activations r, z, n and of n's message part; and dh z."""
    m, r, z, n, n_message = _kept(message, gates, row, row_mask, k, H, HP)
    return _slopes(dh, m, r, z, n, n_message)


@triton.jit
def _slopes(dh, m, r, z, n, n_message):
    dn = dh * (1 - z) * (1 - n * n)
    return dn * n_message * r * (1 - r), dh * (m - n) * z * (1 - z), dn, dn * r, dh * z


@triton.jit
def store_gates(
    d_gates, row, row_mask, k, dr, dz, dn, dn_message, HP: tl.constexpr, IN_PLACE: tl.constexpr
):
    """Padding included, where all of them are zero."""
    if IN_PLACE:
        tl.debug_barrier()  # all threads have read what is overwritten now
    mask = row_mask[:, None] & (k < HP)[None, :]
    at = d_gates + row[:, None] * (4 * HP) + k[None, :]
    tl.store(at, dr, mask=mask)
    tl.store(at + HP, dz, mask=mask)
    tl.store(at + 2 * HP, dn, mask=mask)
    tl.store(at + 3 * HP, dn_message, mask=mask)


@triton.jit
def weight_of(aggregate, slot, v, live, edges):
    """Attention weights from the scores and the log-sum-exp that the forward pass left."""
    score = tl.load(aggregate + slot, mask=live, other=0.0)
    norm = tl.load(aggregate + edges + v, mask=live, other=0.0)
    return tl.where(live, tl.exp(score - norm), 0.0)


@triton.jit
def successors(succ, succ_slot, anchor, aggregate, start, left, edges, ATTENTION: tl.constexpr):
    """Two successors of each node, their anchors, their slots and their attention weights."""
    v = tl.load(succ + start, mask=left > 0, other=0)
    w = tl.load(succ + start + 1, mask=left > 1, other=0)
    c = v
    d = w
    slot = v
    next_slot = w
    s = left.to(tl.float32)
    t = s
    if ATTENTION:
        c = tl.load(anchor + v, mask=left > 0, other=0)
        d = tl.load(anchor + w, mask=left > 1, other=0)
        slot = tl.load(succ_slot + start, mask=left > 0, other=0)
        next_slot = tl.load(succ_slot + start + 1, mask=left > 1, other=0)
        s = weight_of(aggregate, slot, v, left > 0, edges)
        t = weight_of(aggregate, next_slot, w, left > 1, edges)
    return v, w, c, d, slot, next_slot, s, t


@triton.jit
def pull(
    dh1,  # what a node's state receives from outside, to which its successors add:
    dh2,  # whole rows in two pieces,
    dh,  # and the program's own block
    aggregate,
    h,
    h1,  # the nodes' states, whole rows
    h2,
    start,  # where their successors start, how many they are,
    degree,
    v,  # the first two, their anchors, their slots and their attention weights
    w,
    c,
    d,
    slot,
    next_slot,
    s,
    t,
    d_message,
    d_score,
    key_score,
    shares,
    succ,
    succ_slot,
    anchor,
    row,
    row_mask,
    edges,
    k1,
    k2,
    unit,
    key1,
    key2,
    key_own,
    saves,  # whether this program stores the gradients of scores
    H: tl.constexpr,
    K2: tl.constexpr,
    BM: tl.constexpr,
    BLOCKS: tl.constexpr,
    PADDED_BLOCKS: tl.constexpr,
    ATTENTION: tl.constexpr,
):
    share = tl.arange(0, PADDED_BLOCKS)
    total = tl.zeros((BM,), dtype=tl.float32)
    # Two successors at a time, so that their rows travel together.
    for j in range(0, tl.max(degree), 2):
        live = j < degree
        also = j + 1 < degree
        a1 = fresh(d_message + v * H, k1, live, k1 < H)
        b1 = fresh(d_message + w * H, k1, also, k1 < H)
        a = fresh(d_message + v * H, unit, live, unit < H)
        b = fresh(d_message + w * H, unit, also, unit < H)
        if K2 > 0:
            a2 = fresh(d_message + v * H, k2, live, k2 < H)
            b2 = fresh(d_message + w * H, k2, also, k2 < H)
        if ATTENTION:
            ds = -tl.sum(fresh(shares + v * BLOCKS, share, live, share < BLOCKS), axis=1)
            dt = -tl.sum(fresh(shares + w * BLOCKS, share, also, share < BLOCKS), axis=1)
            ds += tl.sum(a1 * (h1 - rows(h + c * H, k1, live, k1 < H)), axis=1)
            dt += tl.sum(b1 * (h1 - rows(h + d * H, k1, also, k1 < H)), axis=1)
            if K2 > 0:
                ds += tl.sum(a2 * (h2 - rows(h + c * H, k2, live, k2 < H)), axis=1)
                dt += tl.sum(b2 * (h2 - rows(h + d * H, k2, also, k2 < H)), axis=1)
            ds *= s
            dt *= t
            tl.store(d_score + slot, ds, mask=live & saves)
            tl.store(d_score + next_slot, dt, mask=also & saves)
            both = ds + dt
            total += both
            dh += s[:, None] * a + t[:, None] * b + both[:, None] * key_own[None, :]
            dh1 += s[:, None] * a1 + t[:, None] * b1 + both[:, None] * key1[None, :]
            if K2 > 0:
                dh2 += s[:, None] * a2 + t[:, None] * b2 + both[:, None] * key2[None, :]
        else:
            dh += a + b
            dh1 += a1 + b1
            if K2 > 0:
                dh2 += a2 + b2
        v, w, c, d, slot, next_slot, s, t = successors(
            succ, succ_slot, anchor, aggregate, start + j + 2, degree - j - 2, edges, ATTENTION
        )
    if ATTENTION:
        tl.store(key_score + row, total, mask=row_mask & saves)
    return dh1, dh2, dh


@triton.jit(**ANY)
def backward_kernel(
    grad,  # [S, N, H] of the states, from outside; in wide levels it is overwritten
    gates,  # [S, N, 4, HP] (r, z, n, n's message part)
    weight,  # [S, 3H, H] or [S, H, H]
    key,  # [S, H] attention
    gate_map,  # [S, 2H, H] gated sum
    h,  # [S, N, H]
    message,  # [S, N, HP]
    anchor,  # [S, N] attention: the first predecessor
    aggregate,  # attention: [S, E + N]; gated sum: [S, N, 2H]
    d_state,  # [S, N, H] out: whole gradient of the states (linear cell, or gated sum)
    d_gates,  # [S, N, 4, HP] out: GRU; under an attention these are gates themselves
    d_message,  # [S, N, H] scratch; under an attention it holds message - h[anchor] before
    d_score,  # [S, E] out: attention
    key_score,  # [S, N] out: attention
    shares,  # [S, N, BLOCKS] scratch: each block's share of dm · offset
    d_pair,  # [S, N, 2H] out: gated sum
    level_ptr,  # [S, D + 1]
    succ_ptr,  # [S, N + 1]
    succ,  # [S, E]
    succ_slot,  # [S, E]
    done,  # [S, stages, 2]
    nodes,
    edges,
    levels,
    first_stage,
    last_stage,
    workers,
    H: tl.constexpr,
    HP: tl.constexpr,  # H, padded so that rows of half precision are aligned
    K1: tl.constexpr,
    K2: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    PADDED_BLOCKS: tl.constexpr,
    GRU: tl.constexpr,
    ATTENTION: tl.constexpr,
    WAIT: tl.constexpr,
    PHASE: tl.constexpr,  # the only one of this launch, or -1: then no other weights are loaded
    PRECISION: tl.constexpr,
):
    BLOCKS: tl.constexpr = (H + BN - 1) // BN
    PHASES: tl.constexpr = 1 if ATTENTION else 2
    worker = tl.program_id(0) % workers
    direction = (tl.program_id(0) // workers).to(tl.int64)
    grad += direction * nodes * H
    weight += direction * (3 if GRU else 1) * H * H
    h += direction * nodes * H
    message += direction * nodes * HP
    d_message += direction * nodes * H
    level_ptr += direction * (levels + 1)
    succ_ptr += direction * (nodes + 1)
    succ += direction * edges
    succ_slot += direction * edges
    done += direction * levels * PHASES * 2

    block = worker % BLOCKS
    groups = workers // BLOCKS
    unit = block * BN + tl.arange(0, BN)
    unit_mask = unit < H
    k1 = tl.arange(0, K1)
    k2 = K1 + tl.arange(0, K2 if K2 > 0 else 16)
    if GRU:
        gates += direction * nodes * 4 * HP
        d_gates += direction * nodes * 4 * HP
    if PHASE != 0:
        wr1, wr2, of_r, wz1, wz2, of_z, wn1, wn2, of_n = cell_weights(
            weight, unit, k1, k2, H, K2, GRU, False, PRECISION
        )
    if not GRU or not ATTENTION:
        d_state += direction * nodes * H
    if ATTENTION:
        aggregate += direction * (edges + nodes)
        d_score += direction * edges
        key_score += direction * nodes
        shares += direction * nodes * BLOCKS
        anchor += direction * nodes
        key1 = tl.load(key + direction * H + k1, mask=k1 < H, other=0.0)
        key2 = tl.load(key + direction * H + k2, mask=k2 < H, other=0.0)
        key_own = tl.load(key + direction * H + unit, mask=unit_mask, other=0.0)
    else:
        aggregate += direction * nodes * 2 * H
        d_pair += direction * nodes * 2 * H
        gate_map += direction * 2 * H * H
        key1 = k1
        key2 = k2
        key_own = unit
        if PHASE != 1:
            pg1, pg2, of_g, pm1, pm2, of_m = pair_weights(gate_map, unit, k1, k2, H, K2, PRECISION)

    before = 0  # tiles of the stage before
    for stage in range(first_stage, last_stage):
        level = levels - 1 - stage // PHASES
        low = tl.load(level_ptr + level)
        high = tl.load(level_ptr + level + 1)
        row_tiles = tl.cdiv(high - low, BM).to(tl.int32)
        here = done + stage * 2
        own = 0
        wide = WAIT and GRU and ATTENTION and row_tiles > groups
        if WAIT and GRU and ATTENTION:
            if wide:
                # Whole rows first, each by one program: all but the product.
                if stage > 0:
                    if worker < row_tiles:
                        wait(here - 1, before)
                for tile in range(worker, row_tiles, workers):
                    row = low + tile * BM + tl.arange(0, BM)
                    row_mask = row < high
                    dh1 = rows(grad + row * H, k1, row_mask, k1 < H)
                    dh2 = rows(grad + row * H, k2, row_mask, k2 < H)
                    dh = tl.zeros((BM, BN), dtype=tl.float32)
                    h1 = rows(h + row * H, k1, row_mask, k1 < H)
                    h2 = rows(h + row * H, k2, row_mask, k2 < H)
                    start = tl.load(succ_ptr + row, mask=row_mask, other=0)
                    degree = tl.load(succ_ptr + row + 1, mask=row_mask, other=0) - start
                    v, w, c, d, slot, next_slot, s, t = successors(
                        succ, succ_slot, anchor, aggregate, start, degree, edges, ATTENTION
                    )
                    dh1, dh2, dh = pull(
                        dh1, dh2, dh, aggregate, h, h1, h2, start, degree, v, w, c, d, slot,
                        next_slot, s, t, d_message, d_score, key_score, shares, succ, succ_slot,
                        anchor, row, row_mask, edges, k1, k2, unit, key1, key2, key_own, True,
                        H, K2, BM, BLOCKS, PADDED_BLOCKS, ATTENTION,
                    )  # fmt: skip
                    dr, dz, dn, dn_message, passed = gates_backward(
                        dh1, message, gates, row, row_mask, k1, H, HP
                    )
                    store_gates(d_gates, row, row_mask, k1, dr, dz, dn, dn_message, HP, True)
                    # In place of the gradient, which nobody else reads.
                    at = grad + row[:, None] * H
                    tl.store(at + k1[None, :], passed, mask=row_mask[:, None] & (k1 < H)[None, :])
                    if K2 > 0:
                        dr, dz, dn, dn_message, passed = gates_backward(
                            dh2, message, gates, row, row_mask, k2, H, HP
                        )
                        store_gates(d_gates, row, row_mask, k2, dr, dz, dn, dn_message, HP, True)
                        tl.store(
                            at + k2[None, :], passed, mask=row_mask[:, None] & (k2 < H)[None, :]
                        )
                    own += 1
                if own > 0:
                    arrive(here, own)
                own = 0
                if level == 0:
                    row_tiles = 0  # no messages, nothing left to do
        for tile in range(worker // BLOCKS, row_tiles, groups):
            row = low + tile * BM + tl.arange(0, BM)
            row_mask = row < high
            mask = row_mask[:, None] & unit_mask[None, :]
            at = row[:, None] * H + unit[None, :]
            acc = tl.zeros((BM, BN), dtype=tl.float32)
            x1 = tl.zeros((BM, K1), dtype=tl.float32)
            x2 = tl.zeros((BM, K2 if K2 > 0 else 16), dtype=tl.float32)
            # What does not depend on the level before is loaded before the wait.
            if ATTENTION:
                own_offset = rows(d_message + row * H, unit, row_mask, unit_mask)
            if wide:
                if own == 0:
                    wait(here, row_tiles)
                acc = fresh(grad + row * H, unit, row_mask, unit_mask)
            else:
                dh = acc
                dh1 = x1
                dh2 = x2
                h1 = x1
                h2 = x2
                if ATTENTION:
                    if GRU:
                        z = rows(gates + row * (4 * HP) + HP, unit, row_mask, unit_mask)
                    dh = rows(grad + row * H, unit, row_mask, unit_mask)
                    dh1 = rows(grad + row * H, k1, row_mask, k1 < H)
                    dh2 = rows(grad + row * H, k2, row_mask, k2 < H)
                    h1 = rows(h + row * H, k1, row_mask, k1 < H)
                    h2 = rows(h + row * H, k2, row_mask, k2 < H)
                if stage % PHASES == 0:
                    if not ATTENTION and PHASE != 1:
                        # Forward's, and the loss's: nobody writes them here.
                        pair = aggregate + row * (2 * H)
                        gate = rows(pair, unit, row_mask, unit_mask)
                        value = rows(pair + H, unit, row_mask, unit_mask)
                        gate1 = rows(pair, k1, row_mask, k1 < H)
                        value1 = rows(pair + H, k1, row_mask, k1 < H)
                        gate2 = rows(pair, k2, row_mask, k2 < H)
                        value2 = rows(pair + H, k2, row_mask, k2 < H)
                        out = rows(grad + row * H, unit, row_mask, unit_mask)
                    start = tl.load(succ_ptr + row, mask=row_mask, other=0)
                    degree = tl.load(succ_ptr + row + 1, mask=row_mask, other=0) - start
                    v, w, c, d, slot, next_slot, s, t = successors(
                        succ, succ_slot, anchor, aggregate, start, degree, edges, ATTENTION
                    )
                    if WAIT:
                        if own == 0:
                            if stage > 0:
                                wait(here - 1, before)
                    dh1, dh2, dh = pull(
                        dh1, dh2, dh, aggregate, h, h1, h2, start, degree, v, w, c, d, slot,
                        next_slot, s, t, d_message, d_score, key_score, shares, succ, succ_slot,
                        anchor, row, row_mask, edges, k1, k2, unit, key1, key2, key_own, block == 0,
                        H, K2, BM, BLOCKS, PADDED_BLOCKS, ATTENTION,
                    )  # fmt: skip
                    if ATTENTION and not GRU:
                        tl.store(d_state + at, dh, mask=mask)
                    if not ATTENTION and PHASE != 1:
                        # Through the product of gate and map to the state.
                        pair_at = d_pair + row[:, None] * (2 * H) + unit[None, :]
                        tl.store(pair_at, dh * value * gate * (1 - gate), mask=mask)
                        tl.store(pair_at + H, dh * gate, mask=mask)
                        out = pair_product(dh1, gate1, value1, pg1, pm1, of_g, of_m, out, PRECISION)
                        if K2 > 0:
                            out = pair_product(
                                dh2, gate2, value2, pg2, pm2, of_g, of_m, out, PRECISION
                            )
                        tl.store(d_state + at, out, mask=mask)
                if not ATTENTION and PHASE != 0:
                    if stage % PHASES == 1:
                        # Through the cell to the message.
                        if GRU:
                            m, r, z, n, g = _kept(message, gates, row, row_mask, unit, H, HP)
                            m1, r1, z1, n1, g1 = _kept(message, gates, row, row_mask, k1, H, HP)
                            m2, r2, z2, n2, g2 = _kept(message, gates, row, row_mask, k2, H, HP)
                        if WAIT:
                            if own == 0:
                                wait(here - 1, before)
                        dh = fresh(d_state + row * H, unit, row_mask, unit_mask)
                        dh1 = fresh(d_state + row * H, k1, row_mask, k1 < H)
                        dh2 = fresh(d_state + row * H, k2, row_mask, k2 < H)
                        if GRU:
                            dr, dz, dn, dg, acc = _slopes(dh, m, r, z, n, g)
                            store_gates(d_gates, row, row_mask, unit, dr, dz, dn, dg, HP, False)
                        if level > 0:
                            if GRU:
                                dr1, dz1, _, dg1, _ = _slopes(dh1, m1, r1, z1, n1, g1)
                                acc = gates_product(
                                    dr1, dz1, dg1, wr1, wz1, wn1, of_r, of_z, of_n, acc, PRECISION
                                )
                                if K2 > 0:
                                    dr2, dz2, _, dg2, _ = _slopes(dh2, m2, r2, z2, n2, g2)
                                    acc = gates_product(
                                        dr2, dz2, dg2, wr2, wz2, wn2, of_r, of_z, of_n, acc,
                                        PRECISION,
                                    )  # fmt: skip
                            else:
                                acc = gradient_product(dh1, wr1, of_r, acc, PRECISION)
                                if K2 > 0:
                                    acc = gradient_product(dh2, wr2, of_r, acc, PRECISION)
                            tl.store(d_message + at, acc, mask=mask)
                if GRU and ATTENTION:
                    acc = dh * z
                x1 = dh1
                x2 = dh2
            if ATTENTION:
                if level > 0:
                    # One place for the product: the weights are in shared memory once.
                    if GRU:
                        gate_row = d_gates + row * (4 * HP)
                        if wide:
                            dr1 = fresh(gate_row, k1, row_mask, k1 < H)
                            dz1 = fresh(gate_row + HP, k1, row_mask, k1 < H)
                            dn1 = fresh(gate_row + 3 * HP, k1, row_mask, k1 < H)
                        else:
                            dr1, dz1, _, dn1, _ = gates_backward(
                                x1, message, gates, row, row_mask, k1, H, HP
                            )
                        acc = gates_product(
                            dr1, dz1, dn1, wr1, wz1, wn1, of_r, of_z, of_n, acc, PRECISION
                        )
                        if K2 > 0:
                            if wide:
                                dr2 = fresh(gate_row, k2, row_mask, k2 < H)
                                dz2 = fresh(gate_row + HP, k2, row_mask, k2 < H)
                                dn2 = fresh(gate_row + 3 * HP, k2, row_mask, k2 < H)
                            else:
                                dr2, dz2, _, dn2, _ = gates_backward(
                                    x2, message, gates, row, row_mask, k2, H, HP
                                )
                            acc = gates_product(
                                dr2, dz2, dn2, wr2, wz2, wn2, of_r, of_z, of_n, acc, PRECISION
                            )
                    else:
                        acc = gradient_product(x1, wr1, of_r, acc, PRECISION)
                        if K2 > 0:
                            acc = gradient_product(x2, wr2, of_r, acc, PRECISION)
                    share = tl.sum(acc * own_offset, axis=1)
                    tl.store(shares + row * BLOCKS + block, share, mask=row_mask)
                    tl.debug_barrier()  # all threads have read what is overwritten now
                    tl.store(d_message + at, acc, mask=mask)
            own += 1
        if WAIT:
            if own > 0:
                arrive(here + 1, own)
        before = row_tiles * BLOCKS
