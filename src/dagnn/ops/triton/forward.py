"""The forward pass of one layer, all levels and directions, in one launch.

A program owns a block of ``BN`` hidden units in one direction for the whole launch, so that its
slice of the recurrent weights stays in shared memory, and walks the levels. Before a level it
waits for the tiles of the level before.

A *narrow* level is one step: every program gathers the states of the predecessors of a tile of
``BM`` nodes (whole rows, since the product needs them; the programs of the other blocks do the
same, which costs less than waiting for one another), forms the messages with an online softmax,
multiplies, applies the gates and stores its block of the new states. In a *wide* level, which has
more tiles than there are programs, the messages come first, each row once, and the products after
a second wait.
"""

from __future__ import annotations

import triton
import triton.language as tl

from dagnn.ops.triton.primitives import (
    ANY,
    arrive,
    dot,
    fresh,
    pin,
    scales,
    sigmoid,
    stored,
    tanh,
    wait,
)
from dagnn.ops.triton.weights import cell_weights, side_by_side

__all__ = [
    "cell_biases",
    "forward_kernel",
    "input_part",
    "messages",
    "predecessors",
    "product",
    "update",
]


@triton.jit
def cell_biases(bias_ih, bias_hh, unit, H: tl.constexpr, GRU: tl.constexpr):
    """Of r, z, n and n's message part (of a linear cell: four times its only one)."""
    mask = unit < H
    bias_n = tl.load(bias_ih + (2 * H if GRU else 0) + unit, mask=mask, other=0.0)
    bias_r = bias_n
    bias_z = bias_n
    bias_m = bias_n
    if GRU:
        bias_m = tl.load(bias_hh + 2 * H + unit, mask=mask, other=0.0)
        bias_r = tl.load(bias_hh + unit, mask=mask, other=0.0)
        bias_r += tl.load(bias_ih + unit, mask=mask, other=0.0)
        bias_z = tl.load(bias_hh + H + unit, mask=mask, other=0.0)
        bias_z += tl.load(bias_ih + H + unit, mask=mask, other=0.0)
    return bias_r, bias_z, bias_n, bias_m


@triton.jit
def predecessors(pred_ptr, pred, row, row_mask):
    """Where the predecessors of a tile's nodes start, how many they are, and the first two."""
    start = tl.load(pred_ptr + row, mask=row_mask, other=0)
    degree = tl.load(pred_ptr + row + 1, mask=row_mask, other=0) - start
    u = tl.load(pred + start, mask=degree > 0, other=0)
    w = tl.load(pred + start + 1, mask=degree > 1, other=0)
    return start, degree, u, w


@triton.jit
def messages(
    h,
    aggregate,
    edge_score,
    pred,
    start,
    degree,
    u,  # the first two predecessors
    w,
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
    # Two predecessors at a time, so that their rows travel together.
    for j in range(0, tl.max(degree), 2):
        live = j < degree
        also = j + 1 < degree
        slot = start + j
        if ATTENTION:
            source = h + u * H
            other = h + w * H
            a1 = fresh(source, k1, live, k1 < H)
            b1 = fresh(other, k1, also, k1 < H)
            a = fresh(source, unit, live, unit < H)
            b = fresh(other, unit, also, unit < H)
            s = tl.sum(a1 * key1[None, :], axis=1)
            t = tl.sum(b1 * key1[None, :], axis=1)
            if K2 > 0:
                a2 = fresh(source, k2, live, k2 < H)
                b2 = fresh(other, k2, also, k2 < H)
                s += tl.sum(a2 * key2[None, :], axis=1)
                t += tl.sum(b2 * key2[None, :], axis=1)
            if EDGES:
                s += tl.load(edge_score + slot, mask=live, other=0.0)
                t += tl.load(edge_score + slot + 1, mask=also, other=0.0)
            if SAVE:
                tl.store(aggregate + slot, s, mask=live & saves)
                tl.store(aggregate + slot + 1, t, mask=also & saves)
            # Online softmax; a row that has no predecessor left stays as it is.
            s = tl.where(live, s, -float("inf"))
            t = tl.where(also, t, -float("inf"))
            new_top = tl.maximum(top, tl.maximum(s, t))
            finite = tl.where(new_top == -float("inf"), 0.0, new_top)
            keep = tl.exp(top - finite)
            s = tl.exp(s - finite)
            t = tl.exp(t - finite)
            top = new_top
            total = total * keep + s + t
            m1 = m1 * keep[:, None] + a1 * s[:, None] + b1 * t[:, None]
            m = m * keep[:, None] + a * s[:, None] + b * t[:, None]
            if K2 > 0:
                m2 = m2 * keep[:, None] + a2 * s[:, None] + b2 * t[:, None]
        else:
            source = aggregate + u * (2 * H)
            other = aggregate + w * (2 * H)
            m1 += fresh(source, k1, live, k1 < H) * fresh(source + H, k1, live, k1 < H)
            m1 += fresh(other, k1, also, k1 < H) * fresh(other + H, k1, also, k1 < H)
            m += fresh(source, unit, live, unit < H) * fresh(source + H, unit, live, unit < H)
            m += fresh(other, unit, also, unit < H) * fresh(other + H, unit, also, unit < H)
            if K2 > 0:
                m2 += fresh(source, k2, live, k2 < H) * fresh(source + H, k2, live, k2 < H)
                m2 += fresh(other, k2, also, k2 < H) * fresh(other + H, k2, also, k2 < H)
        u = tl.load(pred + slot + 2, mask=j + 2 < degree, other=0)
        w = tl.load(pred + slot + 3, mask=j + 3 < degree, other=0)
    if ATTENTION:
        inverse = tl.where(degree > 0, 1 / total, 0.0)
        m1 *= inverse[:, None]
        m2 *= inverse[:, None]
        m *= inverse[:, None]
        if SAVE:
            tl.store(aggregate + edges + row, top + tl.log(total), mask=(degree > 0) & saves)
    return m1, m2, m


@triton.jit
def product(x1, x2, w1, w2, scale, acc, K2: tl.constexpr, PRECISION: tl.constexpr):
    """``acc + x @ w``, of rows in two pieces and a matrix as :func:`cell_weights` has it."""
    part = acc
    if PRECISION == "fp16":
        part = tl.zeros_like(acc)
    part = dot(x1, w1, part, PRECISION)
    if K2 > 0:
        part = dot(x2, w2, part, PRECISION)
    if PRECISION == "fp16":
        part = acc + scale * part
    return part


@triton.jit
def relative(x, BOUNDED: tl.constexpr, PRECISION: tl.constexpr):
    """A piece of rows as an operand, and the numbers that it is relative to. Sums are of any size,
    and so are states that they enter, for which fp16 has no exponents. An attention's messages are
    :obj:`BOUNDED`, as averages of states in [-1, 1]."""
    scale = 1.0
    if PRECISION == "fp16" and not BOUNDED:
        scale, inverse = scales(tl.max(tl.abs(x), axis=1))
        scale = scale[:, None]
        x *= inverse[:, None]
    return pin(x), scale


@triton.jit
def relative_product(
    x1, x2, of_1, of_2, w1, w2, of_w, acc,
    K2: tl.constexpr, BOUNDED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The same as :func:`product`, of rows that are :func:`relative`. Each piece has a scale of its
    own: a common one would have the compiler move whole rows to where it is."""
    if PRECISION != "fp16" or BOUNDED:
        acc = product(x1, x2, w1, w2, of_w, acc, K2, PRECISION)
    else:
        part = of_1 * dot(x1, w1, tl.zeros_like(acc), PRECISION)
        if K2 > 0:
            part += of_2 * dot(x2, w2, tl.zeros_like(acc), PRECISION)
        acc += of_w * part
    return acc


@triton.jit
def input_part(
    gates,
    row,
    row_mask,
    unit,
    H: tl.constexpr,
    HP: tl.constexpr,
    GRU: tl.constexpr,
    BUFFER: tl.constexpr,  # blocks of a row of gates
    FRESH: tl.constexpr,  # written by other programs of this launch
):
    """The input product's part of r, z and n (of a linear cell: three times its only part), in
    the precision that it is in."""
    if GRU:
        at = gates + row * (BUFFER * HP)
        r = stored(at, unit, row_mask, unit < H, FRESH)
        z = stored(at + HP, unit, row_mask, unit < H, FRESH)
        n = stored(at + 2 * HP, unit, row_mask, unit < H, FRESH)
    else:
        n = stored(gates + row * HP, unit, row_mask, unit < H, FRESH)
        r = n
        z = n
    return r, z, n


@triton.jit
def update(
    r,  # pre-activations [BM, BN]; of a linear cell, n alone
    z,
    n,
    n_message,
    m,
    gates,
    h,
    h_half,
    message,
    row,
    row_mask,
    unit,
    H: tl.constexpr,
    HP: tl.constexpr,
    GRU: tl.constexpr,
    SAVE: tl.constexpr,  # activated gates and messages
    HALF: tl.constexpr,
):
    """The cell, for a tile's rows and the program's units. Padding is stored too."""
    mask = row_mask[:, None] & (unit < H)[None, :]
    padded = row_mask[:, None] & (unit < HP)[None, :]
    state = n
    if GRU:
        gate_at = gates + row[:, None] * (4 * HP) + unit[None, :]
        r = sigmoid(r)
        z = sigmoid(z)
        n = tanh(n + r * n_message)
        state = n + z * (m - n)
        if SAVE:
            tl.store(gate_at, r, mask=padded)
            tl.store(gate_at + HP, z, mask=padded)
            tl.store(gate_at + 2 * HP, n, mask=padded)
            tl.store(gate_at + 3 * HP, n_message, mask=padded)
    tl.store(h + row[:, None] * H + unit[None, :], state, mask=mask)
    if HALF:
        tl.store(h_half + row[:, None] * HP + unit[None, :], state, mask=padded)
    if SAVE:
        tl.store(message + row[:, None] * HP + unit[None, :], m, mask=padded)


@triton.jit(**ANY)
def forward_kernel(
    gates,  # the input product: attention: [S, N, 3, HP] (r, z, n's input part) or [S, N, HP];
    # gated sum: [S, N, 4, HP], the last block free, or [S, N, HP]
    weight,  # [S, 3H, H] or [S, H, H]
    bias_ih,  # [S, 3H] or [S, H]
    bias_hh,  # [S, 3H]
    key,  # [S, H] attention
    edge_score,  # [S, E] attention, with edges
    gate_map,  # [S, 2H, H] gated sum
    gate_bias,  # [S, H] gated sum
    h,  # [S, N, H]
    h_half,  # [S, N, HP] the same, as the operand of the next layer's input product
    message,  # [S, N, HP] out: gated sum; scratch of wide levels
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
    HP: tl.constexpr,  # H, padded so that rows of half precision are aligned
    K1: tl.constexpr,
    K2: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    GRU: tl.constexpr,
    ATTENTION: tl.constexpr,
    EDGES: tl.constexpr,
    SAVE: tl.constexpr,
    HALF: tl.constexpr,
    WAIT: tl.constexpr,
    PHASE: tl.constexpr,  # the only one of this launch, or -1: then no other weights are loaded
    PRECISION: tl.constexpr,
):
    BLOCKS: tl.constexpr = (H + BN - 1) // BN
    GATES: tl.constexpr = 3 if GRU else 1
    BUFFER: tl.constexpr = 4 if GRU and not ATTENTION else GATES  # blocks of a row of gates
    # A gated sum needs a node's whole state before its gate and map: a second stage per level.
    PHASES: tl.constexpr = 1 if ATTENTION else 2
    worker = tl.program_id(0) % workers
    direction = (tl.program_id(0) // workers).to(tl.int64)
    gates += direction * nodes * (BUFFER * HP)
    weight += direction * GATES * H * H
    bias_ih += direction * GATES * H
    h += direction * nodes * H
    h_half += direction * nodes * HP
    message += direction * nodes * HP
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
    if PHASE != 1:
        wr1, wr2, of_r, wz1, wz2, of_z, wn1, wn2, of_n = cell_weights(
            weight, unit, k1, k2, H, K2, GRU, True, PRECISION
        )
        if GRU:
            bias_hh += direction * GATES * H
        bias_r, bias_z, bias_n, bias_m = cell_biases(bias_ih, bias_hh, unit, H, GRU)
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
        if PHASE != 0:
            lane = tl.arange(0, 2 * BN)
            is_gate = lane < BN
            pair = block * BN + tl.where(is_gate, lane, lane - BN)
            pair_mask = pair < H
            pair_row = tl.where(pair_mask, pair + tl.where(is_gate, 0, H), 2 * H)
            p1, p2, of_p = side_by_side(gate_map, pair_row, k1, k2, H, K2, PRECISION)
            bias_at = gate_bias + direction * H + pair
            bias = tl.load(bias_at, mask=pair_mask & is_gate, other=0.0)

    before = 0  # tiles of the stage before
    for stage in range(first_stage, last_stage):
        level = stage // PHASES
        low = tl.load(level_ptr + level)
        high = tl.load(level_ptr + level + 1)
        row_tiles = tl.cdiv(high - low, BM).to(tl.int32)
        here = done + stage * 2
        own = 0
        if PHASE != 1:
            if stage % PHASES == 0:
                wide = WAIT and level > 0 and row_tiles > groups
                if WAIT:
                    if wide:
                        # The messages first, each row by one program.
                        if worker < row_tiles:
                            wait(here - 1, before)
                        for tile in range(worker, row_tiles, workers):
                            row = low + tile * BM + tl.arange(0, BM)
                            row_mask = row < high
                            start, degree, u, w = predecessors(pred_ptr, pred, row, row_mask)
                            m1, m2, _ = messages(
                                h, aggregate, edge_score, pred, start, degree, u, w, row, edges,
                                k1, k2, unit, key1, key2, True,
                                H, K1, K2, BM, BN, ATTENTION, EDGES, SAVE,
                            )  # fmt: skip
                            at = message + row[:, None] * HP
                            tl.store(
                                at + k1[None, :], m1, mask=row_mask[:, None] & (k1 < H)[None, :]
                            )
                            if K2 > 0:
                                tl.store(
                                    at + k2[None, :], m2, mask=row_mask[:, None] & (k2 < H)[None, :]
                                )
                            own += 1
                        if own > 0:
                            arrive(here, own)
                        own = 0
                for tile in range(worker // BLOCKS, row_tiles, groups):
                    row = low + tile * BM + tl.arange(0, BM)
                    row_mask = row < high
                    # What does not depend on the level before is loaded before the wait.
                    g_r, g_z, g_n = input_part(
                        gates, row, row_mask, unit, H, HP, GRU, BUFFER, False
                    )
                    g_n += bias_n[None, :]
                    g_m = g_n
                    if GRU:
                        g_r += bias_r[None, :]
                        g_z += bias_z[None, :]
                        g_m = tl.zeros((BM, BN), dtype=tl.float32) + bias_m[None, :]
                    m = tl.zeros((BM, BN), dtype=tl.float32)
                    if level > 0:
                        start, degree, u, w = predecessors(pred_ptr, pred, row, row_mask)
                        if WAIT:
                            if own == 0:
                                if wide:
                                    wait(here, row_tiles)
                                else:
                                    wait(here - 1, before)
                        # One place for the product: the weights are in shared memory once.
                        if wide:
                            source = message + row * HP
                            m1 = fresh(source, k1, row_mask, k1 < H)
                            m2 = fresh(source, k2, row_mask, k2 < H)
                            m = fresh(source, unit, row_mask, unit_mask)
                        else:
                            m1, m2, m = messages(
                                h, aggregate, edge_score, pred, start, degree, u, w, row, edges,
                                k1, k2, unit, key1, key2, block == 0,
                                H, K1, K2, BM, BN, ATTENTION, EDGES, SAVE,
                            )  # fmt: skip
                        m1, of_1 = relative(m1, ATTENTION, PRECISION)
                        m2, of_2 = relative(m2, ATTENTION, PRECISION)
                        if GRU:
                            g_r = relative_product(
                                m1, m2, of_1, of_2, wr1, wr2, of_r, g_r, K2, ATTENTION, PRECISION
                            )
                            g_z = relative_product(
                                m1, m2, of_1, of_2, wz1, wz2, of_z, g_z, K2, ATTENTION, PRECISION
                            )
                            g_m = relative_product(
                                m1, m2, of_1, of_2, wn1, wn2, of_n, g_m, K2, ATTENTION, PRECISION
                            )
                        else:
                            g_n = relative_product(
                                m1, m2, of_1, of_2, wn1, wn2, of_n, g_n, K2, ATTENTION, PRECISION
                            )
                    update(
                        g_r, g_z, g_n, g_m, m, gates, h, h_half, message, row, row_mask, unit,
                        H, HP, GRU, SAVE and not ATTENTION, HALF,
                    )  # fmt: skip
                    own += 1
        if not ATTENTION and PHASE != 0:
            if stage % PHASES == 1:
                for tile in range(worker // BLOCKS, row_tiles, groups):
                    row = low + tile * BM + tl.arange(0, BM)
                    row_mask = row < high
                    if WAIT:
                        if own == 0:
                            wait(here - 1, before)
                    state1 = fresh(h + row * H, k1, row_mask, k1 < H)
                    state2 = fresh(h + row * H, k2, row_mask, k2 < H)
                    # Not even a GRU's are bounded: a part of them is the message.
                    state1, of_1 = relative(state1, False, PRECISION)
                    state2, of_2 = relative(state2, False, PRECISION)
                    out = tl.zeros((BM, 2 * BN), dtype=tl.float32) + bias[None, :]
                    out = relative_product(
                        state1, state2, of_1, of_2, p1, p2, of_p, out, K2, False, PRECISION
                    )
                    out = tl.where(is_gate[None, :], sigmoid(out), out)
                    mask = row_mask[:, None] & pair_mask[None, :]
                    tl.store(aggregate + row[:, None] * (2 * H) + pair_row[None, :], out, mask=mask)
                    own += 1
        if WAIT:
            if own > 0:
                arrive(here + 1, own)
        before = row_tiles * BLOCKS
