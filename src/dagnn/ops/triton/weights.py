"""The weights that a program multiplies with, which stay in shared memory for a whole launch."""

# mypy: disable-error-code="no-untyped-def"
# (Arguments of kernels are typed when they are compiled.)

from __future__ import annotations

import triton
import triton.language as tl

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
def _largest(w1, w2, K2: tl.constexpr):
    top = tl.max(tl.abs(w1))
    if K2 > 0:
        top = tl.maximum(top, tl.max(tl.abs(w2)))
    return top


@triton.jit
def _relative(w1, w2, K2: tl.constexpr, PRECISION: tl.constexpr):
    """The two pieces of a matrix as operands of :func:`dot`, and the number that they are relative
    to. Weights may be of any size, for which fp16 has no exponents."""
    scale = 1.0
    if PRECISION == "fp16":
        scale, inverse = scales(_largest(w1, w2, K2))
        w1 = (w1 * inverse).to(tl.float16)
        w2 = (w2 * inverse).to(tl.float16)
    elif PRECISION == "bf16":
        w1 = w1.to(tl.bfloat16)
        w2 = w2.to(tl.bfloat16)
    return w1, w2, scale


@triton.jit
def _matrix(
    weight,  # [H, H]
    unit,
    k1,
    k2,
    H: tl.constexpr,
    K2: tl.constexpr,
    FORWARD: tl.constexpr,
    PRECISION: tl.constexpr,
):
    if FORWARD:
        w1 = _transposed(weight, unit, H, k1, H)
    else:
        w1 = _weight_rows(weight, k1, unit, H)
    w2 = w1
    if K2 > 0:
        if FORWARD:
            w2 = _transposed(weight, unit, H, k2, H)
        else:
            w2 = _weight_rows(weight, k2, unit, H)
    return _relative(w1, w2, K2, PRECISION)


@triton.jit
def cell_weights(
    weight,  # [3H, H] or [H, H]
    unit,
    k1,
    k2,
    H: tl.constexpr,
    K2: tl.constexpr,
    GRU: tl.constexpr,
    FORWARD: tl.constexpr,  # rows @ weight.T, or for gradients rows @ weight
    PRECISION: tl.constexpr,
):
    """A program's columns of the matrices of r, z and n, each in two pieces and with what they are
    relative to (of a linear cell: three times its only matrix)."""
    wr1, wr2, of_r = _matrix(weight, unit, k1, k2, H, K2, FORWARD, PRECISION)
    wz1 = wr1
    wz2 = wr2
    of_z = of_r
    wn1 = wr1
    wn2 = wr2
    of_n = of_r
    if GRU:
        wz1, wz2, of_z = _matrix(weight + H * H, unit, k1, k2, H, K2, FORWARD, PRECISION)
        wn1, wn2, of_n = _matrix(weight + 2 * H * H, unit, k1, k2, H, K2, FORWARD, PRECISION)
    return wr1, wr2, of_r, wz1, wz2, of_z, wn1, wn2, of_n


@triton.jit
def side_by_side(
    gate_map,  # [2H, H]
    row,  # of a program's gates, then of its maps [2 BN]; 2H is none
    k1,
    k2,
    H: tl.constexpr,
    K2: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Forward: gate and map as one matrix, so that they share the product's other operand; and what
    its columns are relative to ``[1, 2 BN]``, since either may be much larger than the other."""
    w1 = _transposed(gate_map, row, 2 * H, k1, H)
    w2 = w1
    if K2 > 0:
        w2 = _transposed(gate_map, row, 2 * H, k2, H)
    scale = 1.0
    if PRECISION == "fp16":
        is_gate = (row < H)[None, :]
        of_g, to_g = scales(_largest(tl.where(is_gate, w1, 0.0), tl.where(is_gate, w2, 0.0), K2))
        of_m, to_m = scales(_largest(tl.where(is_gate, 0.0, w1), tl.where(is_gate, 0.0, w2), K2))
        scale = tl.where(is_gate, of_g, of_m)
        inverse = tl.where(is_gate, to_g, to_m)
        w1 = (w1 * inverse).to(tl.float16)
        w2 = (w2 * inverse).to(tl.float16)
    return w1, w2, scale


@triton.jit
def pair_weights(
    gate_map,  # [2H, H]
    unit,
    k1,
    k2,
    H: tl.constexpr,
    K2: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Backward: a program's columns of gate and of map, as :func:`cell_weights` has a cell's."""
    wg1, wg2, of_g = _matrix(gate_map, unit, k1, k2, H, K2, False, PRECISION)
    wm1, wm2, of_m = _matrix(gate_map + H * H, unit, k1, k2, H, K2, False, PRECISION)
    return wg1, wg2, of_g, wm1, wm2, of_m
