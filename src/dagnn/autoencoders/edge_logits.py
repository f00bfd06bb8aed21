r"""The last layer of the network that decides on edges, for all pairs of nodes at once."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from dagnn.autoencoders.dense import has_kernels, kernels

__all__ = ["edge_logits"]


def edge_logits(receivers: Tensor, senders: Tensor, out: nn.Linear, pairs: Tensor) -> Tensor:
    r""":math:`w^{\top} \mathrm{ReLU}(r_{vu} + s_u) + c` of every pair. ``[B, P]``

    Args:
        receivers: :math:`r`, of pairs. ``[B, P, K]``
        senders: :math:`s`, of nodes. ``[n - 1, B, K]``
        out: :math:`w` and :math:`c`.
        pairs: ``v * n + u`` for sender ``u`` and receiver ``v``. ``[1, P]``
    """
    if has_kernels(receivers):
        fused: Tensor = _FusedEdgeLogits.apply(receivers, senders, out.weight, out.bias, pairs)
        return fused
    # The rows of the senders by a product with a one-hot matrix, added on the way.
    others = len(senders)
    sender = one_hot(pairs.squeeze(0) % (others + 1), others).to(senders.dtype)
    sender = sender.expand(len(receivers), -1, -1)
    hidden = torch.baddbmm(receivers, sender, senders.transpose(0, 1)).relu()
    logits: Tensor = out(hidden).squeeze(-1)
    return logits


class _FusedEdgeLogits(torch.autograd.Function):
    """The same by kernels of our own, which do not keep the hidden units."""

    @staticmethod
    def forward(
        ctx: Any, receivers: Tensor, senders: Tensor, weight: Tensor, bias: Tensor, pairs: Tensor
    ) -> Tensor:
        receivers, senders = receivers.contiguous(), senders.contiguous()
        row = weight.squeeze(0)
        ctx.save_for_backward(receivers, senders, row, pairs)
        out: Tensor = kernels("edge_logits").edge_logits(receivers, senders, row, bias, pairs)
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        receivers, senders, weight = kernels("edge_logits").edge_logits_backward(
            grad, *ctx.saved_tensors
        )
        return receivers, senders, weight.sum(0, keepdim=True), grad.sum().view(1), None
