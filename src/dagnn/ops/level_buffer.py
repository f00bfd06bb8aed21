r"""States written level by level and read by later levels, at linear cost also backward.

Plain indexing of one large buffer is linear forward, but each read and each write of a level then
costs a gradient as large as the whole buffer, :math:`O(\text{levels} \cdot N)` in all. Here all
reads add their gradients to one buffer, and each write takes its rows from it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dagnn.ops.first_derivatives import first_derivatives_only

__all__ = ["LevelBuffer"]


class LevelBuffer:
    r"""Rows appended level by level; any earlier row can be read, with first derivatives.

    Args:
        values: The buffer to fill; it belongs to this object from then on. ``[N, H]``

    Example:
        >>> import torch
        >>> x = torch.ones(2, 3, requires_grad=True)
        >>> buffer = LevelBuffer(torch.zeros(3, 3))
        >>> buffer.append(x)
        >>> buffer.append(buffer.read(torch.tensor([0, 1])).sum(0, keepdim=True))
        >>> buffer.tensor()
        tensor([[1., 1., 1.],
                [1., 1., 1.],
                [2., 2., 2.]], grad_fn=...)
    """

    def __init__(self, values: Tensor) -> None:
        self._rows = _Rows(values)
        # Every write hands a token to the next operation. Nothing is computed with it: it tells
        # autograd that a write's gradient is complete only after all later reads.
        self._token = values.new_zeros(())

    def append(self, rows: Tensor) -> None:
        """Write the next rows. ``[V, H]``"""
        self._token = _Append.apply(rows, self._token, self._rows)

    def read(self, index: Tensor) -> Tensor:
        """The rows at :obj:`index`, which must be filled. ``[S, H]``"""
        rows: Tensor = _Read.apply(self._token, index, self._rows)
        return rows

    def tensor(self) -> Tensor:
        """All rows, once all are filled. ``[N, H]``"""
        out: Tensor = _Finish.apply(self._token, self._rows)
        return out


class _Rows:
    """What all operations on one buffer share. It knows no token, so autograd's graph may refer
    to it without a cycle."""

    gradient: Tensor  # exists from the first step backward

    def __init__(self, values: Tensor) -> None:
        self.values = values
        self.filled = 0


class _Append(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, new: Tensor, token: Tensor, rows: _Rows) -> Tensor:
        ctx.rows, ctx.here = rows, slice(rows.filled, rows.filled + new.size(0))
        rows.values[ctx.here] = new
        rows.filled = ctx.here.stop
        return token.clone()

    @staticmethod
    @first_derivatives_only
    def backward(ctx: Any, token: Tensor) -> tuple[Tensor, Tensor, None]:
        return ctx.rows.gradient[ctx.here], token, None


class _Read(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, token: Tensor, index: Tensor, rows: _Rows) -> Tensor:
        ctx.rows = rows
        ctx.save_for_backward(index)
        return rows.values[index]

    @staticmethod
    @first_derivatives_only
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (index,) = ctx.saved_tensors
        ctx.rows.gradient.index_add_(0, index, gradient)
        return gradient.new_zeros(()), None, None


class _Finish(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, token: Tensor, rows: _Rows) -> Tensor:
        assert rows.filled == rows.values.size(0), "every row is written before the end"
        ctx.rows = rows
        return rows.values.clone()

    @staticmethod
    @first_derivatives_only
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        ctx.rows.gradient = gradient.clone()  # reads will add to it
        return gradient.new_zeros(()), None
