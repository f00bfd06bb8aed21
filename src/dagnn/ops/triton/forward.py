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

from dagnn.ops.triton.pieces import (
    added,
    block_of,
    columns,
    key_pieces,
    largest,
    multiplied,
    operands,
    row_pieces,
    row_sums,
    scaled,
    store_pieces,
    zero_pieces,
)
from dagnn.ops.triton.primitives import (
    ANY,
    arrive,
    dot,
    fresh,
    scales,
    sigmoid,
    store_each,
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
    "neighbours",
    "predecessors",
    "product",
    "relative",
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
def neighbours(of, at, left, AT_ONCE: tl.constexpr):
    """Up to so many neighbours of each node, from a place in their list on."""
    out = ()
    for n in tl.static_range(AT_ONCE):
        out = out + (tl.load(of + at + n, mask=n < left, other=0),)
    return out


@triton.jit
def predecessors(pred_ptr, pred, row, row_mask, AT_ONCE: tl.constexpr):
    """Where the predecessors of a tile's nodes start, how many they are, and the first ones."""
    start = tl.load(pred_ptr + row, mask=row_mask, other=0)
    degree = tl.load(pred_ptr + row + 1, mask=row_mask, other=0) - start
    return start, degree, neighbours(pred, start, degree, AT_ONCE)


@triton.jit
def messages(
    h,
    aggregate,
    edge_score,
    pred,
    start,
    degree,
    u,  # the first predecessors
    unit,
    key,  # in pieces
    block,
    saves,  # whether this program stores the scores
    H: tl.constexpr,
    W: tl.constexpr,
    P: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    AT_ONCE: tl.constexpr,
    ATTENTION: tl.constexpr,
    EDGES: tl.constexpr,
    SAVE: tl.constexpr,
):
    """Messages of a tile: whole rows in pieces, and the block of the program's own units."""
    own = tl.zeros((BM, BN), dtype=tl.float32)
    m = zero_pieces(BM, W, P)
    top = tl.full((BM,), -float("inf"), dtype=tl.float32)
    total = tl.zeros((BM,), dtype=tl.float32)
    # Several predecessors at a time, so that their rows travel together.
    for j in range(0, tl.max(degree), AT_ONCE):
        slot = start + j
        left = degree - j
        if ATTENTION:
            x = ()
            own_x = ()
            for n in tl.static_range(AT_ONCE):
                x = x + (row_pieces(h + u[n] * H, n < left, H, W, P, True),)
                if BN != W:
                    own_x = own_x + (fresh(h + u[n] * H, unit, n < left, unit < H),)
            # Online softmax; a row that has no predecessor left stays as it is.
            score = ()
            new_top = top
            for n in tl.static_range(AT_ONCE):
                s = row_sums(x[n], key, P)
                if EDGES:
                    s += tl.load(edge_score + slot + n, mask=n < left, other=0.0)
                if SAVE:
                    store_each(aggregate + slot + n, s, (n < left) & saves)
                s = tl.where(n < left, s, -float("inf"))
                new_top = tl.maximum(new_top, s)
                score = score + (s,)
            finite = tl.where(new_top == -float("inf"), 0.0, new_top)
            keep = tl.exp(top - finite)
            top = new_top
            total *= keep
            m = scaled(m, keep, P)
            if BN != W:
                own *= keep[:, None]
            for n in tl.static_range(AT_ONCE):
                weight = tl.exp(score[n] - finite)
                total += weight
                m = added(m, x[n], weight, P)
                if BN != W:
                    own += own_x[n] * weight[:, None]
        else:
            for n in tl.static_range(AT_ONCE):
                live = n < left
                gate = aggregate + u[n] * (2 * H)
                sums = ()
                for i in tl.static_range(P):
                    k = columns(i, W)
                    pair = fresh(gate, k, live, k < H) * fresh(gate + H, k, live, k < H)
                    sums = sums + (m[i] + pair,)
                m = sums
                if BN != W:
                    own += fresh(gate, unit, live, unit < H) * fresh(gate + H, unit, live, unit < H)
        u = neighbours(pred, slot + AT_ONCE, left - AT_ONCE, AT_ONCE)
    if ATTENTION:
        inverse = tl.where(degree > 0, 1 / total, 0.0)
        m = scaled(m, inverse, P)
        if BN != W:
            own *= inverse[:, None]
    if BN == W:
        own = block_of(m, block, P)
    return m, own


@triton.jit
def product(x, of_x, w, of_w, acc, G: tl.constexpr, PRECISION: tl.constexpr):
    """``acc + x @ w``, of rows as :func:`relative` has them, and a matrix as :func:`cell_weights`
    has it."""
    part = acc
    if PRECISION == "fp16":
        part = tl.zeros_like(acc)
    for i in tl.static_range(G):
        part = dot(x[i], w[i], part, PRECISION)
    if PRECISION == "fp16":
        # In this order, rows' scales are brought to the product's layout once for three matrices.
        part = acc + of_x * (of_w * part)
    return part


@triton.jit
def relative(x, BOUNDED: tl.constexpr, P: tl.constexpr, PRECISION: tl.constexpr):
    """Rows as operands, and the numbers that they are relative to. Sums are of any size,
    and so are states that they enter, for which fp16 has no exponents. A GRU's states under an
    attention, and messages, which are averages of them, are :obj:`BOUNDED` by 1: one scale serves
    all of them, with which small ones keep their bits."""
    scale = 1.0
    if PRECISION == "fp16":
        if BOUNDED:
            scale = 1 / 16384
            x = multiplied(x, 16384.0, P)
        else:
            scale, inverse = scales(largest(x, P))
            scale = scale[:, None]
            x = scaled(x, inverse, P)
    return operands(x, P), scale


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
    aggregate,  # attention: [S, E] scores by slot; gated sum: [S, N, 2H] the gate and the map
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
    W: tl.constexpr,  # a row is in P pieces of W columns, and in G parts as an operand
    P: tl.constexpr,
    G: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    AT_ONCE: tl.constexpr,  # neighbours whose rows travel together
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
    if PHASE != 1:
        wr, of_r, wz, of_z, wn, of_n = cell_weights(weight, unit, H, W, P, G, GRU, True, PRECISION)
        if GRU:
            bias_hh += direction * GATES * H
        bias_r, bias_z, bias_n, bias_m = cell_biases(bias_ih, bias_hh, unit, H, GRU)
    if ATTENTION:
        aggregate += direction * edges
        keys = key_pieces(key + direction * H, H, W, P)
        if EDGES:
            edge_score += direction * edges
    else:
        aggregate += direction * nodes * 2 * H
        keys = unit
        gate_map += direction * 2 * H * H
        if PHASE != 0:
            lane = tl.arange(0, 2 * BN)
            is_gate = lane < BN
            pair = block * BN + tl.where(is_gate, lane, lane - BN)
            pair_mask = pair < H
            pair_row = tl.where(pair_mask, pair + tl.where(is_gate, 0, H), 2 * H)
            pair_weight, of_p = side_by_side(gate_map, pair_row, H, W, P, G, PRECISION)
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
                            start, degree, u = predecessors(pred_ptr, pred, row, row_mask, AT_ONCE)
                            m, _ = messages(
                                h, aggregate, edge_score, pred, start, degree, u,
                                unit, keys, block, True,
                                H, W, P, BM, BN, AT_ONCE, ATTENTION, EDGES, SAVE,
                            )  # fmt: skip
                            store_pieces(message + row * HP, m, row_mask, H, W, P)
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
                    own_m = tl.zeros((BM, BN), dtype=tl.float32)
                    if level > 0:
                        start, degree, u = predecessors(pred_ptr, pred, row, row_mask, AT_ONCE)
                        if WAIT:
                            if own == 0:
                                if wide:
                                    wait(here, row_tiles)
                                else:
                                    wait(here - 1, before)
                        # One place for the product: the weights are in shared memory once.
                        if wide:
                            m = row_pieces(message + row * HP, row_mask, H, W, P, True)
                            own_m = fresh(message + row * HP, unit, row_mask, unit_mask)
                        else:
                            m, own_m = messages(
                                h, aggregate, edge_score, pred, start, degree, u,
                                unit, keys, block, block == 0,
                                H, W, P, BM, BN, AT_ONCE, ATTENTION, EDGES, SAVE,
                            )  # fmt: skip
                        m, of_m = relative(m, ATTENTION and GRU, P, PRECISION)
                        if GRU:
                            g_r = product(m, of_m, wr, of_r, g_r, G, PRECISION)
                            g_z = product(m, of_m, wz, of_z, g_z, G, PRECISION)
                            g_m = product(m, of_m, wn, of_n, g_m, G, PRECISION)
                        else:
                            g_n = product(m, of_m, wn, of_n, g_n, G, PRECISION)
                    update(
                        g_r, g_z, g_n, g_m, own_m, gates, h, h_half, message, row, row_mask, unit,
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
                    state = row_pieces(h + row * H, row_mask, H, W, P, True)
                    # Not even a GRU's are bounded: a part of them is the message.
                    state, of_state = relative(state, False, P, PRECISION)
                    out = tl.zeros((BM, 2 * BN), dtype=tl.float32) + bias[None, :]
                    out = product(state, of_state, pair_weight, of_p, out, G, PRECISION)
                    out = tl.where(is_gate[None, :], sigmoid(out), out)
                    mask = row_mask[:, None] & pair_mask[None, :]
                    tl.store(aggregate + row[:, None] * (2 * H) + pair_row[None, :], out, mask=mask)
                    own += 1
        if WAIT:
            if own > 0:
                arrive(here + 1, own)
        before = row_tiles * BLOCKS
