r"""The DAG recurrence of D-VAE over a dense batch, as one autograd function.

As :mod:`dagnn.autoencoders.attention_sweep`, with the message

.. math::
    m_v = \sum_{u \in \mathcal{P}(v)} o_u \odot \sigma(g_u), \qquad
    [o_u \,\|\, g_u] = W h_u + c_u

in which :math:`c_u` is the part of a node's place. For a GPU with Triton alone
(``dagnn.ops.triton.dense``): elsewhere autograd does it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dagnn.autoencoders.dense import kernels

__all__ = ["gated_gru_sweep"]


class _FusedSweep(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, inner: Tensor, edge: Tensor, first: Tensor | None, *weights: Tensor
    ) -> tuple[Tensor, Tensor]:
        inner, edge = inner.contiguous(), edge.contiguous()
        swept = kernels("dense").gated_forward(inner, edge, first, *weights)
        weight, _, pair_weight, _ = weights
        ctx.save_for_backward(*swept, inner, edge, weight, pair_weight)
        ctx.with_first = first is not None
        ctx.set_materialize_grads(False)
        return swept.h, swept.pair

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(
        ctx: Any, h_grad: Tensor | None, pair_grad: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        *swept, inner, edge, weight, pair_weight = ctx.saved_tensors
        swept = kernels("dense").GatedSwept(*swept)
        grad = (
            torch.zeros_like(swept.h)
            if h_grad is None
            else h_grad.clone(memory_format=torch.contiguous_format)
        )
        inner_grad, gates, first, pair = kernels("dense").gated_backward(
            grad, pair_grad, swept, inner, edge, weight, pair_weight, ctx.with_first
        )
        gates = gates.flatten(1, 2)  # [S, n B, 3H]
        return (
            inner_grad,
            None,
            first,
            torch.bmm(gates.mT, swept.message.flatten(1, 2)),
            gates.sum(1),
            torch.bmm(pair.flatten(1, 2).mT, swept.h.flatten(1, 2)),
            pair.sum(2),
        )


def gated_gru_sweep(
    inner: Tensor,
    edge: Tensor,
    first: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    pair_weight: Tensor,
    pair_start: Tensor,
) -> tuple[Tensor, Tensor]:
    r"""States of all nodes ``[S, n, B, H]``, and their :math:`[o_u \,\|\, g_u]` ``[S, n, B, 2H]``;
    of several sides with weights of their own.

    Args:
        inner: The input's part of the gates, with its bias, on a GPU, in float32.
            ``[S, n, B, 3H]``
        edge: ``edge[:, b, v, u]`` is 1 for an edge from ``u`` to ``v``, otherwise 0.
            ``[S, B, n, n]``
        first: The message of node 0; by default zero. ``[S, B, H]``
        weight: The recurrent weight of the GRU. ``[S, 3H, H]``
        bias: Its bias. ``[S, 3H]``
        pair_weight: The weights of map and gate for states, one above the other. ``[S, 2H, H]``
        pair_start: What a node's place adds to both. ``[S, n, 2H]``
    """
    h, pair = _FusedSweep.apply(inner, edge, first, weight, bias, pair_weight, pair_start)
    return h, pair
