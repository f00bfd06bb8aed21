"""An embedding whose gradient is the same each time, also on a GPU.

Where many nodes look up few rows, as those of their types, PyTorch 2.11 and later adds up their
gradients on a GPU in the order in which threads come by, unless deterministic algorithms are asked
for (pytorch/pytorch#172454). So two runs with the same seed differ in the last bits after a step,
and in every weight after some. To ask for them in all of a run would slow down the rest of it.
"""

from __future__ import annotations

import threading
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["Lookup", "lookup"]

_MODE = threading.Lock()  # deterministic algorithms are a setting of the process


class Lookup(nn.Embedding):
    """An :class:`torch.nn.Embedding` without padding, limits of norms and sparse gradients; on a
    CPU nothing else than that. (On a GPU, :func:`torch.compile` breaks its graph here.)

    Example:
        >>> import torch
        >>> Lookup(3, 4)(torch.tensor([0, 2, 2])).shape
        torch.Size([3, 4])
    """

    def forward(self, index: Tensor) -> Tensor:
        return lookup(self.weight, index) if self.weight.is_cuda else super().forward(index)


def lookup(weight: Tensor, index: Tensor) -> Tensor:
    """Rows ``[..., C]`` of a table ``[R, C]``, with a gradient that is summed in one order."""
    rows: Tensor = _Lookup.apply(weight, index)
    return rows


class _Lookup(torch.autograd.Function):
    @staticmethod
    def forward(weight: Tensor, index: Tensor) -> Tensor:
        return F.embedding(index, weight)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        weight, index = inputs
        ctx.save_for_backward(index)
        ctx.num_rows = weight.size(0)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (index,) = ctx.saved_tensors
        with _MODE:
            before = torch.get_deterministic_debug_mode()
            torch.set_deterministic_debug_mode(max(before, 1))  # 1: warn where there is no such way
            try:
                out = torch.ops.aten.embedding_dense_backward(grad, index, ctx.num_rows, -1, False)
            finally:
                torch.set_deterministic_debug_mode(before)
        return out, None
