"""An embedding of few rows, whose gradient is the same each time, also on a GPU.

Where many nodes look up few rows, as those of the types of nodes, PyTorch (2.11 and later) adds up
their gradients on a GPU in the order in which threads come by. So two runs with the same seed would
differ in the last bit after a step, and in everything after some hundred.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["Lookup", "lookup"]

CHUNK = 1 << 16  # nodes at a time, so that memory stays bounded


class Lookup(nn.Embedding):
    """An :class:`torch.nn.Embedding` of up to some hundred rows, and nothing else than that on a
    CPU, whose gradients come in one order anyway.

    Args:
        num_embeddings: The number of rows.
        embedding_dim: Their width.

    Example:
        >>> import torch
        >>> Lookup(3, 4)(torch.tensor([0, 2, 2])).shape
        torch.Size([3, 4])
    """

    def __init__(self, num_embeddings: int, embedding_dim: int) -> None:
        super().__init__(num_embeddings, embedding_dim)

    def forward(self, index: Tensor) -> Tensor:
        if self.weight.is_cuda:
            return lookup(self.weight, index)
        return super().forward(index)


def lookup(weight: Tensor, index: Tensor) -> Tensor:
    """Rows ``[..., C]`` of a table ``[R, C]``; its gradient is a product with the matrix that says
    who looked up what, in float64, which no setting of PyTorch rounds."""
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
        rows = torch.arange(ctx.num_rows, device=index.device).unsqueeze(1)
        out = grad.new_zeros(ctx.num_rows, grad.size(-1), dtype=torch.double)
        chunks = zip(index.flatten().split(CHUNK), grad.flatten(0, -2).split(CHUNK), strict=True)
        for chosen, grads in chunks:
            out = out + (chosen == rows).double() @ grads.double()
        return out.to(grad.dtype), None
