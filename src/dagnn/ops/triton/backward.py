"""The backward pass of one layer, all levels and directions, in one launch.

The mirror of the forward kernel, from the last level to the first. A node pulls gradients over
its successors, so no atomics are needed and the order of every sum is fixed. With ``dm`` the
gradient of a message and ``a`` an attention weight, the gradient of an edge's score is local to
the edge, ``ds = a dm_v · (h_u - m_v)``. Both states are taken relative to an anchor ``c``, the
predecessor of ``v`` with the largest weight: ``a (dm_v · (h_u - c) - dm_v · (m_v - c))``, which are
small where predecessors are alike. The second product needs whole rows of ``dm``, which the program
that makes them does not have, so each leaves its block's share of it for others to add up.

The gates of a GRU under an attention are formed anew, for all nodes at once, before the loop.
Where each row belongs to one program, their gradients take their place (wide levels); where the
programs of all blocks read whole rows, nobody may write, and
:func:`~dagnn.ops.triton.gather.launch_finish` does it after the loop (narrow levels).
"""

from __future__ import annotations

import triton
import triton.language as tl

from dagnn.ops.triton.forward import neighbours
from dagnn.ops.triton.pieces import (
    block_of,
    columns,
    key_pieces,
    largest,
    multiplied,
    operands,
    outer_added,
    row_pieces,
    scaled,
    store_pieces,
    sum_of,
    zero_pieces,
)
from dagnn.ops.triton.primitives import (
    ANY,
    arrive,
    dot,
    fresh,
    rows,
    scales,
    store_each,
    stored,
    wait,
)
from dagnn.ops.triton.weights import cell_weights, pair_weights

__all__ = [
    "backward_kernel",
    "gates_backward",
    "gates_product",
    "gradient_product",
    "kept_pieces",
    "pull",
    "row_slopes",
    "store_gates",
    "successors",
]


@triton.jit
def _accumulated(x, w, acc, P: tl.constexpr, G: tl.constexpr, PRECISION: tl.constexpr):
    x = operands(x, P)
    for i in tl.static_range(G):
        acc = dot(x[i], w[i], acc, PRECISION)
    return acc


@triton.jit
def gradient_product(d, w, of_w, acc, P: tl.constexpr, G: tl.constexpr, PRECISION: tl.constexpr):
    """``acc + d @ w``. A gradient may be of any size, for which fp16 has no exponents: a row is
    multiplied relative to its largest number."""
    part = acc
    if PRECISION == "fp16":
        scale, inverse = scales(largest(d, P))
        d = scaled(d, inverse, P)
        part = tl.zeros_like(acc)
    part = _accumulated(d, w, part, P, G, PRECISION)
    if PRECISION == "fp16":
        part = acc + (scale * of_w)[:, None] * part
    return part


@triton.jit
def gates_product(
    dr,
    dz,
    dn,
    wr,
    wz,
    wn,
    of_r,
    of_z,
    of_n,
    acc,
    P: tl.constexpr,
    G: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """``acc`` and what the gradients of a GRU's pre-activations give to the product's input."""
    part = acc
    if PRECISION == "fp16":  # one scale for all three
        dr = multiplied(dr, of_r, P)
        dz = multiplied(dz, of_z, P)
        dn = multiplied(dn, of_n, P)
        top = tl.maximum(tl.maximum(largest(dr, P), largest(dz, P)), largest(dn, P))
        scale, inverse = scales(top)
        dr = scaled(dr, inverse, P)
        dz = scaled(dz, inverse, P)
        dn = scaled(dn, inverse, P)
        part = tl.zeros_like(acc)
    part = _accumulated(dr, wr, part, P, G, PRECISION)
    part = _accumulated(dz, wz, part, P, G, PRECISION)
    part = _accumulated(dn, wn, part, P, G, PRECISION)
    if PRECISION == "fp16":
        part = acc + scale[:, None] * part
    return part


@triton.jit
def pair_product(
    dh,
    gate,
    value,
    wg,
    wm,
    of_g,
    of_m,
    acc,
    P: tl.constexpr,
    G: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """``acc`` and what a gradient of ``gate * value`` gives to the state, through both."""
    d_gate = ()  # before the sigmoid
    d_value = ()
    for i in tl.static_range(P):
        d_gate = d_gate + (dh[i] * value[i] * gate[i] * (1 - gate[i]),)
        d_value = d_value + (dh[i] * gate[i],)
    part = acc
    if PRECISION == "fp16":  # one scale for both
        d_gate = multiplied(d_gate, of_g, P)
        d_value = multiplied(d_value, of_m, P)
        scale, inverse = scales(tl.maximum(largest(d_gate, P), largest(d_value, P)))
        d_gate = scaled(d_gate, inverse, P)
        d_value = scaled(d_value, inverse, P)
        part = tl.zeros_like(acc)
    part = _accumulated(d_gate, wg, part, P, G, PRECISION)
    part = _accumulated(d_value, wm, part, P, G, PRECISION)
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
def kept_pieces(
    message, gates, row, row_mask, H: tl.constexpr, HP: tl.constexpr,
    W: tl.constexpr, P: tl.constexpr,
):  # fmt: skip
    """The message, r, z, n and n's message part of whole rows, as they are stored."""
    out = ()
    gate_row = gates + row * (4 * HP)
    for i in tl.static_range(P):
        k = columns(i, W)
        one = (stored(message + row * HP, k, row_mask, k < H, False),)
        for j in tl.static_range(4):
            one = one + (stored(gate_row + j * HP, k, row_mask, k < H, False),)
        out = out + (one,)
    return out


@triton.jit
def row_slopes(dh, kept, P: tl.constexpr):
    """Gradients of a GRU's pre-activations r, z, n and of n's message part, and dh z, of whole
    rows."""
    dr = ()
    dz = ()
    dn = ()
    dn_message = ()
    passed = ()
    for i in tl.static_range(P):
        m, r, z, n, n_message = kept[i]
        one = _slopes(
            dh[i],
            m.to(tl.float32),
            r.to(tl.float32),
            z.to(tl.float32),
            n.to(tl.float32),
            n_message.to(tl.float32),
        )
        dr = dr + (one[0],)
        dz = dz + (one[1],)
        dn = dn + (one[2],)
        dn_message = dn_message + (one[3],)
        passed = passed + (one[4],)
    return dr, dz, dn, dn_message, passed


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
def successors(succ, succ_slot, anchor, at, left, AT_ONCE: tl.constexpr, ATTENTION: tl.constexpr):
    """Up to so many successors of each node, from a place in their list on; their anchors and
    their slots."""
    v = neighbours(succ, at, left, AT_ONCE)
    c = ()
    slot = v
    if ATTENTION:
        slot = neighbours(succ_slot, at, left, AT_ONCE)
        for n in tl.static_range(AT_ONCE):
            c = c + (tl.load(anchor + v[n], mask=n < left, other=0),)
    return v, c, slot


@triton.jit
def _weighted(
    a, weight, h, state, c, shares, v, live,
    H: tl.constexpr, W: tl.constexpr, P: tl.constexpr, SHARES: tl.constexpr,
):  # fmt: skip
    """Gradients of scores ``[rows]``, ``weight * (a · (state - h[c]) - shares)``; and
    ``weight * a``, in pieces.

    The weight is used as a column only: the compiler would have it twice otherwise, and exchange
    one of them between warps."""
    k = columns(0, W)
    slope = -weight * fresh(shares + v * SHARES, k, live, k < SHARES)
    for i in tl.static_range(1, (SHARES + W - 1) // W):
        k = columns(i, W)
        slope -= weight * fresh(shares + v * SHARES, k, live, k < SHARES)
    out = ()
    for i in tl.static_range(P):
        k = columns(i, W)
        part = weight * a[i]
        slope += part * (state[i] - rows(h + c * H, k, live, k < H))
        out = out + (part,)
    return tl.sum(slope, axis=1), out


@triton.jit
def pull(
    dh,  # what a node's state receives from outside, to which its successors add: in pieces,
    own,  # and the program's own block
    weights,
    h,
    state,  # the nodes' states, in pieces
    start,  # where their successors start, how many they are,
    degree,
    v,  # the first ones, their anchors and their slots
    c,
    slot,
    d_message,
    d_score,
    key_score,
    shares,
    succ,
    succ_slot,
    anchor,
    row,
    row_mask,
    unit,
    key,  # in pieces
    key_own,
    block,
    saves,  # whether this program stores the gradients of scores
    H: tl.constexpr,
    W: tl.constexpr,
    P: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    AT_ONCE: tl.constexpr,
    SHARES: tl.constexpr,
    ATTENTION: tl.constexpr,
):
    total = tl.zeros((BM,), dtype=tl.float32)
    # Several successors at a time, so that their rows travel together.
    for j in range(0, tl.max(degree), AT_ONCE):
        left = degree - j
        x = ()
        own_x = ()
        for n in tl.static_range(AT_ONCE):
            x = x + (row_pieces(d_message + v[n] * H, n < left, H, W, P, True),)
            if BN != W:
                own_x = own_x + (fresh(d_message + v[n] * H, unit, n < left, unit < H),)
        if ATTENTION:
            slopes = tl.zeros((BM,), dtype=tl.float32)
            for n in tl.static_range(AT_ONCE):
                live = n < left
                weight = tl.load(weights + slot[n], mask=live, other=0.0)[:, None]
                slope, part = _weighted(
                    x[n], weight, h, state, c[n], shares, v[n], live, H, W, P, SHARES
                )
                store_each(d_score + slot[n], slope, live & saves)
                slopes += slope
                dh = sum_of(dh, part, P)
                if BN != W:
                    own += weight * own_x[n]
            total += slopes
            dh = outer_added(dh, slopes, key, P)
            if BN != W:
                own += slopes[:, None] * key_own[None, :]
        else:
            for n in tl.static_range(AT_ONCE):
                dh = sum_of(dh, x[n], P)
                if BN != W:
                    own += own_x[n]
        v, c, slot = successors(
            succ, succ_slot, anchor, start + j + AT_ONCE, left - AT_ONCE, AT_ONCE, ATTENTION
        )
    if ATTENTION:
        store_each(key_score + row, total, row_mask & saves)
    if BN == W:
        own = block_of(dh, block, P)
    return dh, own


@triton.jit(**ANY)
def backward_kernel(
    grad,  # [S, N, H] of the states, from outside; in wide levels it is overwritten
    gates,  # [S, N, 4, HP] (r, z, n, n's message part)
    weight,  # [S, 3H, H] or [S, H, H]
    key,  # [S, H] attention
    gate_map,  # [S, 2H, H] gated sum
    h,  # [S, N, H]
    message,  # [S, N, HP]
    anchor,  # [S, N] attention: the predecessor with the largest weight
    aggregate,  # attention: [S, E] weights by slot; gated sum: [S, N, 2H]
    d_state,  # [S, N, H] out: whole gradient of the states (linear cell, or gated sum)
    d_gates,  # [S, N, 4, HP] out: GRU; under an attention these are gates themselves
    d_message,  # [S, N, H] scratch; under an attention it holds message - h[anchor] before
    d_score,  # [S, E] out: attention
    key_score,  # [S, N] out: attention
    shares,  # [S, N, SHARES] zeros: each block's share of dm · offset
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
    W: tl.constexpr,  # a row is in P pieces of W columns, and in G parts as an operand
    P: tl.constexpr,
    G: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    AT_ONCE: tl.constexpr,  # neighbours whose rows travel together
    EARLY: tl.constexpr,  # whether gates (of a GRU under an attention) are loaded before the wait
    GRU: tl.constexpr,
    ATTENTION: tl.constexpr,
    WAIT: tl.constexpr,
    PHASE: tl.constexpr,  # the only one of this launch, or -1: then no other weights are loaded
    PRECISION: tl.constexpr,
):
    BLOCKS: tl.constexpr = (H + BN - 1) // BN
    SHARES: tl.constexpr = (BLOCKS + 3) // 4 * 4  # padded, so as to be read like a row of states
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
    if GRU:
        gates += direction * nodes * 4 * HP
        d_gates += direction * nodes * 4 * HP
    if PHASE != 0:
        wr, of_r, wz, of_z, wn, of_n = cell_weights(weight, unit, H, W, P, G, GRU, False, PRECISION)
    if not GRU or not ATTENTION:
        d_state += direction * nodes * H
    if ATTENTION:
        aggregate += direction * edges
        d_score += direction * edges
        key_score += direction * nodes
        shares += direction * nodes * SHARES
        anchor += direction * nodes
        keys = key_pieces(key + direction * H, H, W, P)
        key_own = tl.load(key + direction * H + unit, mask=unit_mask, other=0.0)
    else:
        aggregate += direction * nodes * 2 * H
        d_pair += direction * nodes * 2 * H
        gate_map += direction * 2 * H * H
        keys = unit
        key_own = unit
        if PHASE != 1:
            wg, of_g, wm, of_m = pair_weights(gate_map, unit, H, W, P, G, PRECISION)

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
                    dh = row_pieces(grad + row * H, row_mask, H, W, P, False)
                    state = row_pieces(h + row * H, row_mask, H, W, P, False)
                    start = tl.load(succ_ptr + row, mask=row_mask, other=0)
                    degree = tl.load(succ_ptr + row + 1, mask=row_mask, other=0) - start
                    v, c, slot = successors(
                        succ, succ_slot, anchor, start, degree, AT_ONCE, ATTENTION
                    )
                    if EARLY:
                        kept = kept_pieces(message, gates, row, row_mask, H, HP, W, P)
                    unused = tl.zeros((BM, BN), dtype=tl.float32)
                    dh, _ = pull(
                        dh, unused, aggregate, h, state, start, degree, v, c, slot, d_message,
                        d_score, key_score, shares, succ, succ_slot, anchor, row, row_mask,
                        unit, keys, key_own, block, True,
                        H, W, P, BM, BN, AT_ONCE, SHARES, ATTENTION,
                    )  # fmt: skip
                    if not EARLY:
                        kept = kept_pieces(message, gates, row, row_mask, H, HP, W, P)
                    dr, dz, dn, dn_message, passed = row_slopes(dh, kept, P)
                    tl.debug_barrier()  # all threads have read what is overwritten now
                    for i in tl.static_range(P):
                        store_gates(
                            d_gates, row, row_mask, columns(i, W),
                            dr[i], dz[i], dn[i], dn_message[i], HP, False,
                        )  # fmt: skip
                    # In place of the gradient, which nobody else reads.
                    store_pieces(grad + row * H, passed, row_mask, H, W, P)
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
            # What does not depend on the level before is loaded before the wait.
            if ATTENTION:
                own_offset = rows(d_message + row * H, unit, row_mask, unit_mask)
            x = zero_pieces(BM, W, P)
            if EARLY:
                kept = kept_pieces(message, gates, row, row_mask & (not wide), H, HP, W, P)
            if wide:
                if own == 0:
                    wait(here, row_tiles)
                acc = fresh(grad + row * H, unit, row_mask, unit_mask)
            else:
                own_dh = acc
                dh = x
                state = x
                if ATTENTION:
                    if GRU:
                        z = rows(gates + row * (4 * HP) + HP, unit, row_mask, unit_mask)
                    if BN != W:
                        own_dh = rows(grad + row * H, unit, row_mask, unit_mask)
                    dh = row_pieces(grad + row * H, row_mask, H, W, P, False)
                    state = row_pieces(h + row * H, row_mask, H, W, P, False)
                if stage % PHASES == 0:
                    if not ATTENTION and PHASE != 1:
                        # Forward's, and the loss's: nobody writes them here.
                        pair = aggregate + row * (2 * H)
                        own_gate = rows(pair, unit, row_mask, unit_mask)
                        own_value = rows(pair + H, unit, row_mask, unit_mask)
                        gate = row_pieces(pair, row_mask, H, W, P, False)
                        value = row_pieces(pair + H, row_mask, H, W, P, False)
                        out = rows(grad + row * H, unit, row_mask, unit_mask)
                    start = tl.load(succ_ptr + row, mask=row_mask, other=0)
                    degree = tl.load(succ_ptr + row + 1, mask=row_mask, other=0) - start
                    v, c, slot = successors(
                        succ, succ_slot, anchor, start, degree, AT_ONCE, ATTENTION
                    )
                    if WAIT:
                        if own == 0:
                            if stage > 0:
                                wait(here - 1, before)
                    dh, own_dh = pull(
                        dh, own_dh, aggregate, h, state, start, degree, v, c, slot, d_message,
                        d_score, key_score, shares, succ, succ_slot, anchor, row, row_mask,
                        unit, keys, key_own, block, block == 0,
                        H, W, P, BM, BN, AT_ONCE, SHARES, ATTENTION,
                    )  # fmt: skip
                    if ATTENTION and not GRU:
                        tl.store(d_state + at, own_dh, mask=mask)
                    if not ATTENTION and PHASE != 1:
                        # Through the product of gate and map to the state.
                        pair_at = d_pair + row[:, None] * (2 * H) + unit[None, :]
                        slope = own_gate * (1 - own_gate)
                        tl.store(pair_at, own_dh * own_value * slope, mask=mask)
                        tl.store(pair_at + H, own_dh * own_gate, mask=mask)
                        out = pair_product(
                            dh, gate, value, wg, wm, of_g, of_m, out, P, G, PRECISION
                        )
                        tl.store(d_state + at, out, mask=mask)
                if not ATTENTION and PHASE != 0:
                    if stage % PHASES == 1:
                        # Through the cell to the message.
                        if GRU:
                            own_kept = _kept(message, gates, row, row_mask, unit, H, HP)
                            kept = kept_pieces(message, gates, row, row_mask, H, HP, W, P)
                        if WAIT:
                            if own == 0:
                                wait(here - 1, before)
                        own_dh = fresh(d_state + row * H, unit, row_mask, unit_mask)
                        dh = row_pieces(d_state + row * H, row_mask, H, W, P, True)
                        if GRU:
                            dr, dz, dn, dg, acc = _slopes(own_dh, *own_kept)
                            store_gates(d_gates, row, row_mask, unit, dr, dz, dn, dg, HP, False)
                        if level > 0:
                            if GRU:
                                drs, dzs, _, dgs, _ = row_slopes(dh, kept, P)
                                acc = gates_product(
                                    drs, dzs, dgs, wr, wz, wn, of_r, of_z, of_n, acc,
                                    P, G, PRECISION,
                                )  # fmt: skip
                            else:
                                acc = gradient_product(dh, wr, of_r, acc, P, G, PRECISION)
                            tl.store(d_message + at, acc, mask=mask)
                if GRU and ATTENTION:
                    acc = own_dh * z
                x = dh
            if ATTENTION:
                if level > 0:
                    # One place for the product: the weights are in shared memory once.
                    if GRU:
                        if wide:
                            gate_row = d_gates + row * (4 * HP)
                            dr = row_pieces(gate_row, row_mask, H, W, P, True)
                            dz = row_pieces(gate_row + HP, row_mask, H, W, P, True)
                            dn = row_pieces(gate_row + 3 * HP, row_mask, H, W, P, True)
                        else:
                            if not EARLY:
                                kept = kept_pieces(message, gates, row, row_mask, H, HP, W, P)
                            dr, dz, _, dn, _ = row_slopes(x, kept, P)
                        acc = gates_product(
                            dr, dz, dn, wr, wz, wn, of_r, of_z, of_n, acc, P, G, PRECISION
                        )
                    else:
                        acc = gradient_product(x, wr, of_r, acc, P, G, PRECISION)
                    share = tl.sum(acc * own_offset, axis=1)
                    store_each(shares + row * SHARES + block, share, row_mask)
                    tl.debug_barrier()  # all threads have read what is overwritten now
                    tl.store(d_message + at, acc, mask=mask)
            own += 1
        if WAIT:
            if own > 0:
                arrive(here + 1, own)
        before = row_tiles * BLOCKS
