"""The backward pass of two layers at once, all levels and directions, in one launch.

The mirror of :mod:`~dagnn.ops.triton.wave_forward`, from the last level to the first: while the
upper layer is at level ``l``, so is the gradient of its input, and the lower layer is at level
``l + 1``. The gradient of the input needs what the layer itself needs, and not its result: both
pull from the successors, and multiply the same gradients of gates, with other weights. It is added
to what the lower layer's states receive from outside.

As in narrow levels of :mod:`~dagnn.ops.triton.backward`, gates are left as they are;
:func:`~dagnn.ops.triton.gather.launch_finish` replaces them after the loop.
"""

# mypy: disable-error-code="no-untyped-def"
# (Arguments of kernels are typed when they are compiled.)

from __future__ import annotations

import triton
import triton.language as tl

from dagnn.ops.triton.backward import (
    gates_backward,
    gates_product,
    gradient_product,
    pull,
    successors,
)
from dagnn.ops.triton.primitives import (
    ANY,
    arrive,
    fresh,
    has_tile,
    level_bounds,
    of_pair,
    rows,
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
    aggregates,  # [S, E + N]
    d_states,  # [S, N, H] out: whole gradient of the states (linear cell)
    d_messages,  # [S, N, H] in: message - h[anchor]; out: gradients of messages
    d_scores,  # [S, E] out
    key_scores,  # [S, N] out
    shares,  # [S, N, BLOCKS] scratch: each block's share of dm · offset
    anchor,  # [S, N] the first predecessor, from here on the same for both layers
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
    K1: tl.constexpr,
    K2: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    PADDED_BLOCKS: tl.constexpr,
    GRU: tl.constexpr,
    PRECISION: tl.constexpr,
):
    BLOCKS: tl.constexpr = (H + BN - 1) // BN
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
    aggregate = of_pair(aggregates, lower) + direction * (edges + nodes)
    d_message = of_pair(d_messages, lower) + direction * nodes * H
    d_score = of_pair(d_scores, lower) + direction * edges
    key_score = of_pair(key_scores, lower) + direction * nodes
    share_of = of_pair(shares, lower) + direction * nodes * BLOCKS
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
    anchor += direction * nodes
    succ_ptr += direction * (nodes + 1)
    succ += direction * edges
    succ_slot += direction * edges
    done += direction * (levels + 1) * 2

    unit = block * BN + tl.arange(0, BN)
    unit_mask = unit < H
    k1 = tl.arange(0, K1)
    k2 = K1 + tl.arange(0, K2 if K2 > 0 else 16)
    wr1, wr2, of_r, wz1, wz2, of_z, wn1, wn2, of_n = cell_weights(
        weight, unit, k1, k2, H, K2, GRU, False, PRECISION
    )
    key = of_pair(keys, lower) + direction * H
    key1 = tl.load(key + k1, mask=k1 < H, other=0.0)
    key2 = tl.load(key + k2, mask=k2 < H, other=0.0)
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
            h1 = rows(h + row * H, k1, row_mask, k1 < H)
            h2 = rows(h + row * H, k2, row_mask, k2 < H)
            passed = tl.zeros((BM, BN), dtype=tl.float32)  # to the message, but for the product
            if GRU:
                z = rows(gate + row * (4 * HP) + HP, unit, row_mask, unit_mask)
            start = tl.load(succ_ptr + row, mask=row_mask, other=0)
            degree = tl.load(succ_ptr + row + 1, mask=row_mask, other=0) - start
            v, w, c, d, slot, next_slot, s, t = successors(
                succ, succ_slot, anchor, aggregate, start, degree, edges, True
            )
            if own == 0:
                if step > first_step:
                    wait(done + (step - 1) * 2 + role // 2, needed * BLOCKS)
            dh = fresh(grad + row * H, unit, row_mask, unit_mask)
            dh1 = fresh(grad + row * H, k1, row_mask, k1 < H)
            dh2 = fresh(grad + row * H, k2, row_mask, k2 < H)
            dh1, dh2, dh = pull(
                dh1, dh2, dh, aggregate, h, h1, h2, start, degree, v, w, c, d, slot, next_slot,
                s, t, d_message, d_score, key_score, share_of, succ, succ_slot, anchor, row,
                row_mask, edges, k1, k2, unit, key1, key2, key_own, (block == 0) & (role != 1),
                H, K2, BM, BLOCKS, PADDED_BLOCKS, True,
            )  # fmt: skip
            if GRU:
                passed = dh * z
            else:
                tl.store(d_state + at, dh, mask=mask & (role != 1))
            if of_input | (level > 0):
                # One place for the product: the weights are in shared memory once.
                acc = tl.where(of_input, held, passed)
                if GRU:
                    dr, dz, dn, dn_message, _ = gates_backward(
                        dh1, message, gate, row, row_mask, k1, H, HP
                    )
                    dn = tl.where(of_input, dn, dn_message)
                    acc = gates_product(dr, dz, dn, wr1, wz1, wn1, of_r, of_z, of_n, acc, PRECISION)
                    if K2 > 0:
                        dr, dz, dn, dn_message, _ = gates_backward(
                            dh2, message, gate, row, row_mask, k2, H, HP
                        )
                        dn = tl.where(of_input, dn, dn_message)
                        acc = gates_product(
                            dr, dz, dn, wr2, wz2, wn2, of_r, of_z, of_n, acc, PRECISION
                        )
                else:
                    acc = gradient_product(dh1, wr1, of_r, acc, PRECISION)
                    if K2 > 0:
                        acc = gradient_product(dh2, wr2, of_r, acc, PRECISION)
                share = tl.sum(acc * held, axis=1)
                tl.store(share_of + row * BLOCKS + block, share, mask=row_mask & (role != 1))
                tl.debug_barrier()  # all threads have read what is overwritten now
                tl.store(target + at, acc, mask=mask)
            own += 1
        if own > 0:
            arrive(done + step * 2 + (role + 1) // 2, own)
        before = row_tiles
