"""Whole rows, as tuples of pieces of ``W`` columns.

A tile of rows is cut so that every piece, and a program's own block of 64 units, is spread over the
threads in the same way: a row lies within one warp. So sums over a row need no shared memory, and
nothing waits for other warps between the loads of a node's neighbours and the product. (In one
piece of 256 columns, two warps would share a row; every sum, and every use of it beside a narrower
piece, would be an exchange between warps.)
"""

from __future__ import annotations

import triton
import triton.language as tl

from dagnn.ops.triton.primitives import pin, stored

__all__ = [
    "added",
    "block_of",
    "columns",
    "group",
    "key_pieces",
    "largest",
    "multiplied",
    "operands",
    "outer_added",
    "row_pieces",
    "row_sums",
    "scaled",
    "store_pieces",
    "sum_of",
    "zero_pieces",
]


@triton.jit
def columns(i: tl.constexpr, W: tl.constexpr):
    """Of piece ``i``."""
    return i * W + tl.arange(0, W)


@triton.jit
def row_pieces(
    row_ptr, row_mask, H: tl.constexpr, W: tl.constexpr, P: tl.constexpr, FRESH: tl.constexpr
):
    """Rows of a matrix, in float32: ``P`` times ``[rows, W]``; with :obj:`FRESH`, as other programs
    of this launch have written them."""
    out = ()
    for i in tl.static_range(P):
        k = columns(i, W)
        out = out + (stored(row_ptr, k, row_mask, k < H, FRESH).to(tl.float32),)
    return out


@triton.jit
def zero_pieces(BM: tl.constexpr, W: tl.constexpr, P: tl.constexpr):
    out = ()
    for _ in tl.static_range(P):
        out = out + (tl.zeros((BM, W), dtype=tl.float32),)
    return out


@triton.jit
def key_pieces(key, H: tl.constexpr, W: tl.constexpr, P: tl.constexpr):
    """A vector, as ``P`` times ``[1, W]``."""
    out = ()
    for i in tl.static_range(P):
        k = columns(i, W)
        out = out + (tl.load(key + k, mask=k < H, other=0.0)[None, :],)
    return out


@triton.jit
def store_pieces(row_ptr, x, row_mask, H: tl.constexpr, W: tl.constexpr, P: tl.constexpr):
    for i in tl.static_range(P):
        k = columns(i, W)
        at = row_ptr[:, None] + k[None, :]
        tl.store(at, x[i], mask=row_mask[:, None] & (k < H)[None, :])


@triton.jit
def row_sums(x, y, P: tl.constexpr):
    """Of the products of two rows' numbers. ``[rows]``"""
    out = x[0] * y[0]
    for i in tl.static_range(1, P):
        out += x[i] * y[i]
    return tl.sum(out, axis=1)


@triton.jit
def largest(x, P: tl.constexpr):
    """The largest absolute value of each row. ``[rows]``"""
    out = tl.abs(x[0])
    for i in tl.static_range(1, P):
        out = tl.maximum(out, tl.abs(x[i]))
    return tl.max(out, axis=1)


@triton.jit
def scaled(x, factor, P: tl.constexpr):
    """Every row times its factor."""
    out = ()
    for i in tl.static_range(P):
        out = out + (x[i] * factor[:, None],)
    return out


@triton.jit
def multiplied(x, factor, P: tl.constexpr):
    """All rows times one number."""
    out = ()
    for i in tl.static_range(P):
        out = out + (x[i] * factor,)
    return out


@triton.jit
def added(x, y, factor, P: tl.constexpr):
    """``x`` and every row of ``y`` times its factor."""
    out = ()
    for i in tl.static_range(P):
        out = out + (x[i] + y[i] * factor[:, None],)
    return out


@triton.jit
def sum_of(x, y, P: tl.constexpr):
    out = ()
    for i in tl.static_range(P):
        out = out + (x[i] + y[i],)
    return out


@triton.jit
def outer_added(x, factor, key, P: tl.constexpr):
    """``x`` and, in every row, a vector times the row's factor."""
    out = ()
    for i in tl.static_range(P):
        out = out + (x[i] + factor[:, None] * key[i],)
    return out


@triton.jit
def block_of(x, block, P: tl.constexpr):
    """The piece whose number only the running kernel knows."""
    out = x[0]
    for i in tl.static_range(1, P):
        out = tl.where(block == i, x[i], out)
    return out


@triton.jit
def _halved(x, N: tl.constexpr):
    """Of ``N`` pieces, every two as one. Neither moves a number from thread to thread."""
    out = ()
    for i in tl.static_range(N // 2):
        pair = tl.permute(tl.join(x[2 * i], x[2 * i + 1]), (0, 2, 1))  # [rows, 2, columns]
        out = out + (tl.reshape(pair, (pair.shape[0], 2 * pair.shape[2])),)
    return out


@triton.jit
def _joined(x, FIRST: tl.constexpr, N: tl.constexpr):
    """``N`` pieces (a power of two) as one."""
    part = ()
    for i in tl.static_range(N):
        part = part + (x[FIRST + i],)
    for i in tl.static_range(6):
        if 64 >> i <= N:
            part = _halved(part, 64 >> i)
    return part[0]


@triton.jit
def group(bit: tl.constexpr, W: tl.constexpr, P: tl.constexpr):
    """The columns of the group of ``2 ** bit`` pieces, if ``P`` has that power of two in it."""
    return (P >> (bit + 1) << (bit + 1)) * W + tl.arange(0, W << bit)


@triton.jit
def operands(x, P: tl.constexpr):
    """Rows as operands of products, which are few and large rather than many: in one group of
    pieces for each power of two in ``P``, the largest first."""
    out = ()
    for i in tl.static_range(7):  # bits of P, from the highest one on
        if (P >> (6 - i)) & 1:
            whole = _joined(x, P >> (7 - i) << (7 - i), 1 << (6 - i))
            out = out + (pin(whole),)
    return out
