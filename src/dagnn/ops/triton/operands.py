r"""Operands of the forward pass's input product, as sums of two numbers in bfloat16.

The gradients of scores are differences within a neighbourhood, of which an attention's parameters
get sums over all edges. Where they cancel, what the input product has lost is seen first: its
operands' rounding, to 8 bits or to TF32's 11, made most of these gradients' errors. With
``x = high + low``, both of 8 bits, ``x w`` is ``high high' + low high' + high low'`` but for
:math:`2^{-16}`: one product of rows three times as long, of half precision's speed.
"""

# mypy: disable-error-code="no-untyped-def"
# (Arguments of kernels are typed when they are compiled.)

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from dagnn.kernels.call import call, ceil_div, next_power_of_2

__all__ = ["split_rows", "split_weight"]

_ANY = {"do_not_specialize": ("count",), "do_not_specialize_on_alignment": ("index",)}
ROWS = 16  # of a tile


@triton.jit(**_ANY)
def split_kernel(
    source,  # [rows, C]
    index,  # [count] the row of source, or None
    out,  # [count, 3, CP]
    count,
    C: tl.constexpr,
    CP: tl.constexpr,
    H: tl.constexpr,  # rows of a block in source,
    HP: tl.constexpr,  # and in out, the last of which are zeros
    WEIGHT: tl.constexpr,  # the other operand of the product
    BM: tl.constexpr,
    BC: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    column = tl.program_id(1) * BC + tl.arange(0, BC)
    row_mask = row < count
    live = row_mask & (row % HP < H)
    if index is None:
        place = row // HP * H + row % HP
    else:
        place = tl.load(index + row, mask=row_mask, other=0)
    mask = live[:, None] & (column < C)[None, :]
    x = tl.load(source + place[:, None] * C + column[None, :], mask=mask, other=0.0)
    high = x.to(tl.bfloat16)
    low = (x - high.to(tl.float32)).to(tl.bfloat16)
    # What is infinite stands in one place alone: elsewhere it would be taken from itself.
    finite = tl.abs(x) < float("inf")
    again = tl.where(finite, high, 0.0)
    low = tl.where(finite, low, 0.0)
    at = out + row[:, None] * (3 * CP) + column[None, :]
    padded = row_mask[:, None] & (column < CP)[None, :]
    tl.store(at, high, mask=padded)
    tl.store(at + CP, again if WEIGHT else low, mask=padded)
    tl.store(at + 2 * CP, low if WEIGHT else again, mask=padded)


def split_rows(x: Tensor, order: Tensor) -> Tensor:
    """Level-major rows ``[S, N, 3 * CP]`` of node features ``[N, C]``, or of what is level-major
    already ``[S, N, C]``."""
    index = order.flatten() if x.dim() == 2 else None
    return _split(x, index, order.size(0), order.size(1), 1, 1, False)


def split_weight(weight: Tensor, rows: int) -> Tensor:
    """Weights ``[S, 3H, C]`` as ``[S, 3 * HP, 3 * CP]``, each block of :obj:`rows` padded."""
    padded = rows + -rows % 8
    count = weight.size(1) // rows * padded
    return _split(weight, None, weight.size(0), count, rows, padded, True)


def _split(
    source: Tensor, index: Tensor | None, directions: int, count: int, rows: int, padded: int,
    weight: bool,
) -> Tensor:  # fmt: skip
    channels = source.size(-1)
    width = channels + -channels % 8  # aligned
    out = source.new_empty(directions, count, 3 * width, dtype=torch.bfloat16)
    columns = max(16, min(128, next_power_of_2(width)))
    constants = {
        "C": channels,
        "CP": width,
        "H": rows,
        "HP": padded,
        "WEIGHT": weight,
        "BM": ROWS,
        "BC": columns,
    }
    if directions * count:
        grid = ceil_div(directions * count, ROWS), ceil_div(width, columns)
        arguments = [source.contiguous(), index, out, directions * count]
        call(split_kernel, grid, arguments, constants, {})
    return out
