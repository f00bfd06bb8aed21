"""The backward pass of two layers at once, all levels and directions, in one launch.

The mirror of :mod:`~dagnn.ops.triton.wave_forward`, from the last level to the first: while the
upper layer is at level ``l``, so is the gradient of its input, and the lower layer is at level
``l + 1``. The gradient of the input needs what the layer itself needs, and not its result: both
pull from the successors, and multiply the same gradients of gates, with other weights. It is added
to what the lower layer's states receive from outside.

As in narrow levels of :mod:`~dagnn.ops.triton.backward`, gates are left as they are;
:func:`~dagnn.ops.triton.gather.launch_finish` replaces them after the loop.
"""

from __future__ import annotations

import triton
import triton.language as tl

from dagnn.ops.triton.backward import (
    gates_product,
    gradient_product,
    kept_pieces,
    pull,
    row_slopes,
    successors,
)
from dagnn.ops.triton.pieces import key_pieces, row_pieces
from dagnn.ops.triton.primitives import (
    ANY,
    arrive,
    fresh,
    has_tile,
    level_bounds,
    of_pair,
    rows,
    store_each,
    wait,
)
from dagnn.ops.triton.weights import cell_weights

__all__ = ["wave_backward_kernel"]


@triton.jit(**ANY)
def wave_backward_kernel(
    input_weight,  # [S, 3H, H] or [S, H, H] of the upper layer
    # From here on, one of the upper layer and one of the lower:
    weights,  # [S, 3H, H] or [S, H, H]
    keys,  # [S, H]
    grads,  # [S, N, H] of the states, from outside; to the lower one, the upper layer adds
    gates,  # [S, N, 4, HP] (r, z, n, n's message part)
    states,  # [S, N, H]
    messages,  # [S, N, HP]
    edge_weights,  # [S, E] attention, by slot
    d_states,  # [S, N, H] out: whole gradient of the states (linear cell)
    d_messages,  # [S, N, H] in: message - h[anchor]; out: gradients of messages
    d_scores,  # [S, E] out
    key_scores,  # [S, N] out
    shares,  # [S, N, SHARES] zeros: each block's share of dm · offset
    anchors,  # [S, N] the predecessor with the highest score
    # From here on, the same for both layers:
    level_ptr,  # [S, D + 1]
    succ_ptr,  # [S, N + 1]
    succ,  # [S, E]
    succ_slot,  # [S, E]
    done,  # [S, steps, 2] tiles that have arrived, for the upper layer and for the lower one
    nodes,
    edges,
    levels,
    first_step,
    last_step,
    workers,  # programs per direction and role, a multiple of the number of blocks
    H: tl.constexpr,
    HP: tl.constexpr,  # H, padded so that rows of half precision are aligned
    W: tl.constexpr,  # a row is in P pieces of W columns, and in G parts as an operand
    P: tl.constexpr,
    G: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    AT_ONCE: tl.constexpr,  # neighbours whose rows travel together
    EARLY: tl.constexpr,  # whether gates are loaded before the wait
    GRU: tl.constexpr,
    PRECISION: tl.constexpr,
):
    BLOCKS: tl.constexpr = (H + BN - 1) // BN
    SHARES: tl.constexpr = (BLOCKS + 3) // 4 * 4  # padded, so as to be read like a row of states
    worker = tl.program_id(0) % workers
    role = tl.program_id(0) // workers % 3  # upper layer, its input, lower layer
    direction = (tl.program_id(0) // (3 * workers)).to(tl.int64)
    block = worker % BLOCKS
    groups = workers // BLOCKS
    level_ptr += direction * (levels + 1)
    if last_step - first_step == 1:
        level = levels - 1 - first_step + role // 2
        if not has_tile(level_ptr, level, levels, worker // BLOCKS, BM):
            return  # rather than load weights for nothing
    of_input = role == 1
    lower = role == 2
    weight = of_pair(weights, lower)
    if of_input:
        weight = input_weight
    weight += direction * (3 if GRU else 1) * H * H
    grad = of_pair(grads, lower) + direction * nodes * H
    h = of_pair(states, lower) + direction * nodes * H
    attention = of_pair(edge_weights, lower) + direction * edges
    d_message = of_pair(d_messages, lower) + direction * nodes * H
    d_score = of_pair(d_scores, lower) + direction * edges
    key_score = of_pair(key_scores, lower) + direction * nodes
    share_of = of_pair(shares, lower) + direction * nodes * SHARES
    # Whose own block a program replaces: the offset of the message by the message's gradient, or
    # the gradient from outside by the sum of it and the layer's own.
    target = d_message
    if of_input:
        target = grads[1] + direction * nodes * H
    gate = h
    message = h
    d_state = h
    if GRU:
        gate = of_pair(gates, lower) + direction * nodes * 4 * HP
        message = of_pair(messages, lower) + direction * nodes * HP
    else:
        d_state = of_pair(d_states, lower) + direction * nodes * H
    anchor = of_pair(anchors, lower) + direction * nodes
    succ_ptr += direction * (nodes + 1)
    succ += direction * edges
    succ_slot += direction * edges
    done += direction * (levels + 1) * 2

    unit = block * BN + tl.arange(0, BN)
    unit_mask = unit < H
    wr, of_r, wz, of_z, wn, of_n = cell_weights(weight, unit, H, W, P, G, GRU, False, PRECISION)
    key = of_pair(keys, lower) + direction * H
    key_rows = key_pieces(key, H, W, P)
    key_own = tl.load(key + unit, mask=unit_mask, other=0.0)

    before = 0  # tiles of the program's own role, one step before
    for step in range(first_step, last_step):
        level = levels - 1 - step + role // 2
        low, high = level_bounds(level_ptr, level, levels)
        row_tiles = tl.cdiv(high - low, BM).to(tl.int32)
        # The layer's own level after, and what the upper layer has given to this level.
        needed = before + tl.where(lower, row_tiles, 0)
        own = 0
        for tile in range(worker // BLOCKS, row_tiles, groups):
            row = low + tile * BM + tl.arange(0, BM)
            row_mask = row < high
            mask = row_mask[:, None] & unit_mask[None, :]
            at = row[:, None] * H + unit[None, :]
            # What does not depend on the step before is loaded before the wait.
            held = rows(target + row * H, unit, row_mask, unit_mask)
            state = row_pieces(h + row * H, row_mask, H, W, P, False)
            passed = tl.zeros((BM, BN), dtype=tl.float32)  # to the message, but for the product
            if GRU:
                z = rows(gate + row * (4 * HP) + HP, unit, row_mask, unit_mask)
                if EARLY:
                    kept = kept_pieces(message, gate, row, row_mask, H, HP, W, P)
            start = tl.load(succ_ptr + row, mask=row_mask, other=0)
            degree = tl.load(succ_ptr + row + 1, mask=row_mask, other=0) - start
            v, c, slot = successors(succ, succ_slot, anchor, start, degree, AT_ONCE, True)
            if own == 0:
                if step > first_step:
                    wait(done + (step - 1) * 2 + role // 2, needed * BLOCKS)
            own_dh = passed
            if BN != W:
                own_dh = fresh(grad + row * H, unit, row_mask, unit_mask)
            dh = row_pieces(grad + row * H, row_mask, H, W, P, True)
            dh, own_dh = pull(
                dh, own_dh, attention, h, state, start, degree, v, c, slot, d_message, d_score,
                key_score, share_of, succ, succ_slot, anchor, row, row_mask,
                unit, key_rows, key_own, block, (block == 0) & (role != 1),
                H, W, P, BM, BN, AT_ONCE, SHARES, True,
            )  # fmt: skip
            if GRU:
                passed = own_dh * z
            else:
                tl.store(d_state + at, own_dh, mask=mask & (role != 1))
            if of_input | (level > 0):
                # One place for the product: the weights are in shared memory once.
                acc = tl.where(of_input, held, passed)
                if GRU:
                    if not EARLY:
                        kept = kept_pieces(message, gate, row, row_mask, H, HP, W, P)
                    dr, dz, dn, dn_message, _ = row_slopes(dh, kept, P)
                    last = ()
                    for i in tl.static_range(P):
                        last = last + (tl.where(of_input, dn[i], dn_message[i]),)
                    acc = gates_product(
                        dr, dz, last, wr, wz, wn, of_r, of_z, of_n, acc, P, G, PRECISION
                    )
                else:
                    acc = gradient_product(dh, wr, of_r, acc, P, G, PRECISION)
                share = tl.sum(acc * held, axis=1)
                store_each(share_of + row * SHARES + block, share, row_mask & (role != 1))
                tl.debug_barrier()  # all threads have read what is overwritten now
                tl.store(target + at, acc, mask=mask)
            own += 1
        if own > 0:
            arrive(done + step * 2 + (role + 1) // 2, own)
        before = row_tiles
