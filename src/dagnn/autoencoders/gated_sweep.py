r"""The DAG recurrence of D-VAE over a dense batch, as one autograd function.

As :mod:`dagnn.autoencoders.attention_sweep`, with the message

.. math::
    m_v = \sum_{u \in \mathcal{P}(v)} \sigma(g_u) \odot o_u, \qquad
    [g_u \,\|\, o_u] = W h_u + c_u

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
    def forward(ctx: Any, *arguments: Tensor) -> Tensor:
        inner, edge, *rest = (tensor.contiguous() for tensor in arguments)
        swept = kernels().gated_forward(inner, edge, *rest)
        weight, pair_weight = rest[1], rest[3]
        ctx.save_for_backward(*swept, inner, edge, weight, pair_weight)
        return swept.h

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        *swept, inner, edge, weight, pair_weight = ctx.saved_tensors
        swept = kernels().GatedSwept(*swept)
        grad = grad.clone(memory_format=torch.contiguous_format)
        inner_grad, gates, first, pair = kernels().gated_backward(
            grad, swept, inner, edge, weight, pair_weight
        )
        gates, hidden = gates.flatten(0, 1), weight.size(1)
        return (
            inner_grad,
            None,
            first,
            gates.t() @ swept.message.view(-1, hidden),
            gates.sum(0),
            pair.flatten(0, 1).t() @ swept.h.view(-1, hidden),
            pair.sum(1),
        )


def gated_gru_sweep(
    inner: Tensor,
    edge: Tensor,
    first: Tensor,
    weight: Tensor,
    bias: Tensor,
    pair_weight: Tensor,
    pair_start: Tensor,
) -> Tensor:
    """States of all nodes. ``[n, B, H]``

    Args:
        inner: The input's part of the gates, with its bias, on a GPU, in float32. ``[n, B, 3H]``
        edge: ``edge[b, v, u]`` is 1 for an edge from ``u`` to ``v``, otherwise 0. ``[B, n, n]``
        first: The message of node 0. ``[B, H]``
        weight: The recurrent weight of the GRU. ``[3H, H]``
        bias: Its bias. ``[3H]``
        pair_weight: The weights of gate and map for states, one above the other. ``[2H, H]``
        pair_start: What a node's place adds to both. ``[n, 2H]``
    """
    out: Tensor = _FusedSweep.apply(inner, edge, first, weight, bias, pair_weight, pair_start)
    return out
