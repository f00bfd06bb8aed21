"""Sums over all nodes, in a fixed order.

PyTorch's own reduction has scratch memory on a GPU: for the gradients of gates, whose sums are the
biases' gradients, twice as much as they take themselves, which was the most that a training step
held. Here, it is a row per part of the nodes.
"""

# mypy: disable-error-code="no-untyped-def"
# (Arguments of kernels are typed when they are compiled.)

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from dagnn.kernels.call import call, ceil_div, next_power_of_2
from dagnn.ops.triton.primitives import rows

__all__ = ["sum_nodes"]

ROWS = 16  # of a tile
PARTS = 64  # at most


@triton.jit(do_not_specialize=("nodes", "length"))
def sum_kernel(
    values,  # [S, N, W], rows STRIDE apart
    weight,  # [S, N] or None
    out,  # [S, parts, W]
    nodes,
    length,  # of a part
    W: tl.constexpr,
    STRIDE: tl.constexpr,
    BM: tl.constexpr,
    BC: tl.constexpr,
):
    BLOCKS: tl.constexpr = (W + BC - 1) // BC
    part = tl.program_id(0)
    direction = (tl.program_id(1) // BLOCKS).to(tl.int64)
    column = tl.program_id(1) % BLOCKS * BC + tl.arange(0, BC)
    start = part * length
    end = tl.minimum(start + length, nodes)
    total = tl.zeros((BM, BC), dtype=tl.float32)
    for first in range(start, end, BM):
        node = first + tl.arange(0, BM)
        row_mask = node < end
        row = direction * nodes + node
        term = rows(values + row * STRIDE, column, row_mask, column < W)
        if weight is not None:
            term *= tl.load(weight + row, mask=row_mask, other=0.0)[:, None]
        total += term
    at = out + (direction * tl.num_programs(0) + part) * W
    tl.store(at + column, tl.sum(total, axis=0), mask=column < W)


def sum_nodes(values: Tensor, weight: Tensor | None = None) -> Tensor:
    """The sum of rows ``[S, N, W]``, with a weight ``[S, N]`` or without, in float32. ``[S, W]``

    Rows may be apart, as those of a slice of columns are, but follow each other.
    """
    directions, nodes, width = values.shape
    assert values.stride(2) == 1
    assert directions == 1 or values.stride(0) == nodes * values.stride(1) or not nodes
    length = ceil_div(max(nodes, 1), PARTS * ROWS) * ROWS
    parts = ceil_div(nodes, length)
    out = values.new_empty(directions, parts, width, dtype=torch.float32)
    columns = max(16, min(128, next_power_of_2(width)))
    constants = {"W": width, "STRIDE": values.stride(1), "BM": ROWS, "BC": columns}
    if nodes:
        grid = parts, directions * ceil_div(width, columns)
        call(sum_kernel, grid, [values, weight, out, nodes, length], constants, {})
    return out.sum(1)
