"""The weights that a program multiplies with, which stay in shared memory for a whole launch."""

from __future__ import annotations

import triton
import triton.language as tl

from dagnn.ops.triton.pieces import group
from dagnn.ops.triton.primitives import scales

__all__ = ["cell_weights", "pair_weights", "side_by_side"]


@triton.jit
def _transposed(weight, row, ROWS: tl.constexpr, k, H: tl.constexpr):
    """Some rows of a weight matrix ``[ROWS, H]`` as columns. ``[len(k), len(row)]``"""
    mask = (row < ROWS)[None, :] & (k < H)[:, None]
    return tl.load(weight + row[None, :] * H + k[:, None], mask=mask, other=0.0)


@triton.jit
def _weight_rows(weight, k, unit, H: tl.constexpr):
    """A program's columns of a weight matrix ``[H, H]``. ``[len(k), BN]``"""
    mask = (k < H)[:, None] & (unit < H)[None, :]
    return tl.load(weight + k[:, None] * H + unit[None, :], mask=mask, other=0.0)


@triton.jit
def _largest(w, G: tl.constexpr):
    top = tl.max(tl.abs(w[0]))
    for i in tl.static_range(1, G):
        top = tl.maximum(top, tl.max(tl.abs(w[i])))
    return top


@triton.jit
def _in_fp16(w, factor, G: tl.constexpr):
    out = ()
    for i in tl.static_range(G):
        out = out + ((w[i] * factor).to(tl.float16),)
    return out


@triton.jit
def _relative(w, G: tl.constexpr, PRECISION: tl.constexpr):
    """The parts of a matrix as operands of :func:`dot`, and the number that they are relative to.
    Weights may be of any size, for which fp16 has no exponents."""
    scale = 1.0
    operands = w
    if PRECISION == "fp16":
        scale, inverse = scales(_largest(w, G))
        operands = _in_fp16(w, inverse, G)
    elif PRECISION == "bf16":
        operands = ()
        for i in tl.static_range(G):
            operands = operands + (w[i].to(tl.bfloat16),)
    return operands, scale


@triton.jit
def _matrix(
    weight,  # [H, H]
    unit,
    H: tl.constexpr,
    W: tl.constexpr,
    P: tl.constexpr,
    G: tl.constexpr,
    FORWARD: tl.constexpr,
    PRECISION: tl.constexpr,
):
    w = ()
    for i in tl.static_range(7):
        if (P >> (6 - i)) & 1:
            k = group(6 - i, W, P)
            if FORWARD:
                w = w + (_transposed(weight, unit, H, k, H),)
            else:
                w = w + (_weight_rows(weight, k, unit, H),)
    return _relative(w, G, PRECISION)


@triton.jit
def cell_weights(
    weight,  # [3H, H] or [H, H]
    unit,
    H: tl.constexpr,
    W: tl.constexpr,
    P: tl.constexpr,
    G: tl.constexpr,
    GRU: tl.constexpr,
    FORWARD: tl.constexpr,  # rows @ weight.T, or for gradients rows @ weight
    PRECISION: tl.constexpr,
):
    """A program's columns of the matrices of r, z and n, each in :obj:`G` parts (as
    :func:`operands` has rows) and with what they are relative to (of a linear cell: three times
    its only matrix)."""
    wr, of_r = _matrix(weight, unit, H, W, P, G, FORWARD, PRECISION)
    wz = wr
    of_z = of_r
    wn = wr
    of_n = of_r
    if GRU:
        wz, of_z = _matrix(weight + H * H, unit, H, W, P, G, FORWARD, PRECISION)
        wn, of_n = _matrix(weight + 2 * H * H, unit, H, W, P, G, FORWARD, PRECISION)
    return wr, of_r, wz, of_z, wn, of_n


@triton.jit
def side_by_side(
    gate_map,  # [2H, H]
    row,  # of a program's gates, then of its maps [2 BN]; 2H is none
    H: tl.constexpr,
    W: tl.constexpr,
    P: tl.constexpr,
    G: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Forward: gate and map as one matrix, so that they share the product's other operand; and what
    its columns are relative to ``[1, 2 BN]``, since either may be much larger than the other."""
    w = ()
    for i in tl.static_range(7):
        if (P >> (6 - i)) & 1:
            w = w + (_transposed(gate_map, row, 2 * H, group(6 - i, W, P), H),)
    scale = 1.0
    operands = w
    if PRECISION == "fp16":
        is_gate = (row < H)[None, :]
        gates = ()
        maps = ()
        for i in tl.static_range(G):
            gates = gates + (tl.where(is_gate, w[i], 0.0),)
            maps = maps + (tl.where(is_gate, 0.0, w[i]),)
        of_g, to_g = scales(_largest(gates, G))
        of_m, to_m = scales(_largest(maps, G))
        scale = tl.where(is_gate, of_g, of_m)
        inverse = tl.where(is_gate, to_g, to_m)
        operands = _in_fp16(w, inverse, G)
    return operands, scale


@triton.jit
def pair_weights(
    gate_map,  # [2H, H]
    unit,
    H: tl.constexpr,
    W: tl.constexpr,
    P: tl.constexpr,
    G: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Backward: a program's columns of gate and of map, as :func:`cell_weights` has a cell's."""
    wg, of_g = _matrix(gate_map, unit, H, W, P, G, False, PRECISION)
    wm, of_m = _matrix(gate_map + H * H, unit, H, W, P, G, False, PRECISION)
    return wg, of_g, wm, of_m
