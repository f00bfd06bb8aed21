"""The forward pass of two layers at once, all levels and directions, in one launch.

A *wavefront*: while the lower layer is at level ``l``, the input product of the upper one is formed
for level ``l - 1``, and the upper layer is at level ``l - 2``. Each of the three is the *role* of
some programs for the whole launch, whose weights stay in shared memory. What a role needs, others
have made one step before, so the levels in a row are those of one layer and two more.

As in :mod:`~dagnn.ops.triton.forward` a program owns a block of hidden units. All levels take one
step, as narrow ones do there.
"""

from __future__ import annotations

import triton
import triton.language as tl

from dagnn.ops.triton.forward import (
    cell_biases,
    input_part,
    messages,
    predecessors,
    product,
    relative,
    update,
)
from dagnn.ops.triton.pieces import key_pieces, row_pieces, sum_of
from dagnn.ops.triton.primitives import (
    ANY,
    arrive,
    has_tile,
    level_bounds,
    of_pair,
    wait,
)
from dagnn.ops.triton.weights import cell_weights

__all__ = ["wave_forward_kernel"]


@triton.jit
def _store_input(
    gates, r, z, n, row, row_mask, unit, H: tl.constexpr, HP: tl.constexpr, GRU: tl.constexpr
):
    """The input product of a tile's rows and the program's units, for :func:`input_part`."""
    mask = row_mask[:, None] & (unit < H)[None, :]
    at = gates + row[:, None] * (3 * HP if GRU else HP) + unit[None, :]
    if GRU:
        tl.store(at, r, mask=mask)
        tl.store(at + HP, z, mask=mask)
        tl.store(at + 2 * HP, n, mask=mask)
    else:
        tl.store(at, n, mask=mask)


@triton.jit(**ANY)
def wave_forward_kernel(
    gates,  # [S, N, 3, HP] or [S, N, HP]: the lower layer's input product; the upper one's follows
    input_weight,  # [S, 3H, H] or [S, H, H] of the upper layer
    # From here on, one of the lower layer and one of the upper:
    weights,  # [S, 3H, H] or [S, H, H]
    biases_ih,  # [S, 3H] or [S, H]
    biases_hh,  # [S, 3H]
    keys,  # [S, H]
    edge_scores,  # [S, E]
    states,  # [S, N, H]
    aggregates,  # [S, E] scores by slot
    level_ptr,  # [S, D + 1]
    pred_ptr,  # [S, N + 1]
    pred,  # [S, E]
    done,  # [S, steps, 2] tiles that have arrived, for the lower layer and for the upper one
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
    GRU: tl.constexpr,
    EDGES: tl.constexpr,
    SAVE: tl.constexpr,
    PRECISION: tl.constexpr,
):
    BLOCKS: tl.constexpr = (H + BN - 1) // BN
    GATES: tl.constexpr = 3 if GRU else 1
    worker = tl.program_id(0) % workers
    role = tl.program_id(0) // workers % 3  # lower layer, upper layer's input, upper layer
    direction = (tl.program_id(0) // (3 * workers)).to(tl.int64)
    block = worker % BLOCKS
    groups = workers // BLOCKS
    level_ptr += direction * (levels + 1)
    if last_step - first_step == 1:
        if not has_tile(level_ptr, first_step - role, levels, worker // BLOCKS, BM):
            return  # rather than load weights for nothing
    forms_input = role == 1
    upper = role == 2
    weight = of_pair(weights, upper)
    if forms_input:
        weight = input_weight
    weight += direction * GATES * H * H
    h = of_pair(states, upper) + direction * nodes * H
    aggregate = of_pair(aggregates, upper) + direction * edges
    edge_score = aggregate
    if EDGES:
        edge_score = of_pair(edge_scores, upper) + direction * edges
    gates += direction * nodes * (GATES * HP)
    pred_ptr += direction * (nodes + 1)
    pred += direction * edges
    done += direction * (levels + 2) * 2

    unit = block * BN + tl.arange(0, BN)
    wr, of_r, wz, of_z, wn, of_n = cell_weights(weight, unit, H, W, P, G, GRU, True, PRECISION)
    bias_ih = of_pair(biases_ih, upper) + direction * GATES * H
    bias_hh = bias_ih
    if GRU:
        bias_hh = of_pair(biases_hh, upper) + direction * GATES * H
    # The layers add all biases: a unit outside has none.
    bias_unit = tl.where(forms_input, H, unit)
    bias_r, bias_z, bias_n, bias_m = cell_biases(bias_ih, bias_hh, bias_unit, H, GRU)
    key = of_pair(keys, upper) + direction * H
    key_rows = key_pieces(key, H, W, P)

    before = 0  # tiles of the program's own role, one step before
    for step in range(first_step, last_step):
        level = step - role
        low, high = level_bounds(level_ptr, level, levels)
        row_tiles = tl.cdiv(high - low, BM).to(tl.int32)
        # The role's own level before, and what the role before has made for this level.
        needed = tl.where(forms_input, 0, before) + tl.where(role > 0, row_tiles, 0)
        own = 0
        for tile in range(worker // BLOCKS, row_tiles, groups):
            row = low + tile * BM + tl.arange(0, BM)
            row_mask = row < high
            # By masks rather than branches, which would cost registers: a layer reads the input
            # product and gathers messages, the product between them reads the lower states.
            layer_row = row_mask & (role != 1)
            input_row = row_mask & forms_input
            # What does not depend on the step before is loaded before the wait.
            start, degree, u = predecessors(pred_ptr, pred, row, layer_row, AT_ONCE)
            if own == 0:
                if step > first_step:
                    wait(done + (step - 1) * 2 + role // 2, needed * BLOCKS)
            g_r, g_z, g_n = input_part(gates, row, layer_row, unit, H, HP, GRU, GATES, True)
            gathered, own_m = messages(
                h, aggregate, edge_score, pred, start, degree, u,
                unit, key_rows, block, block == 0,
                H, W, P, BM, BN, AT_ONCE, True, EDGES, SAVE,
            )  # fmt: skip
            below = row_pieces(h + row * H, input_row, H, W, P, True)
            x = sum_of(gathered, below, P)
            # Not before the messages, which travel together with the input product.
            g_m = g_n + bias_n[None, :]
            if GRU:
                g_r += bias_r[None, :]
                g_z += bias_z[None, :]
                g_n = g_m
                g_m = tl.zeros((BM, BN), dtype=tl.float32) + bias_m[None, :]
            if forms_input | (level > 0):
                # One place for the product: the weights are in shared memory once.
                whole, of_x = relative(x, GRU, P, PRECISION)
                if GRU:
                    g_r = product(whole, of_x, wr, of_r, g_r, G, PRECISION)
                    g_z = product(whole, of_x, wz, of_z, g_z, G, PRECISION)
                g_m = product(whole, of_x, wn, of_n, g_m, G, PRECISION)
            if forms_input:
                # The lower layer is done with these rows.
                _store_input(gates, g_r, g_z, g_m, row, row_mask, unit, H, HP, GRU)
            else:
                update(
                    g_r, g_z, g_n if GRU else g_m, g_m, own_m, gates, h, h, h, row, row_mask, unit,
                    H, HP, GRU, False, False,
                )  # fmt: skip
            own += 1
        if own > 0:
            arrive(done + step * 2 + (role + 1) // 2, own)
        before = row_tiles
