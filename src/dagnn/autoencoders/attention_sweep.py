r"""The DAG recurrence of DAGNN over a dense batch, as one autograd function.

Graphs of a batch are walked together, node by node in their topological order:

.. math::
    m_v = \sum_{u \in \mathcal{P}(v)} \alpha_{vu} h_u, \qquad
    \alpha_{vu} = \operatorname*{softmax}_{u \in \mathcal{P}(v)} (w^{\top} h_u + p_u), \qquad
    h_v = \mathrm{GRU}(i_v, m_v)

with :math:`p_u` the score of a place. Shapes do not depend on the graphs, and nothing is read
back, so that it can be part of a CUDA graph. In backward, a node has its whole gradient when its
turn comes, and the gradients of weights are one product over all nodes after the loop: a third of
the kernels that autograd would start. On a GPU with Triton the kernels are our own, and fewer still
(``dagnn.ops.triton.dense``).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dagnn.autoencoders.dense import kernels
from dagnn.autoencoders.gru import gru_backward, gru_forward

__all__ = ["BLOCKED", "attention_gru_sweep", "fused_attention_gru_sweep"]

BLOCKED = -1e30  # a score that no softmax hears; finite, since without edges all are blocked


class _Sweep(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        inner: Tensor,
        edge: Tensor,
        first: Tensor,
        weight: Tensor,
        bias: Tensor,
        key: Tensor,
        place: Tensor,
    ) -> tuple[Tensor, Tensor]:
        n, size, _ = inner.shape
        h = inner.new_zeros(n, size, weight.size(1))
        by_graph = h.transpose(0, 1)  # [B, n, H]
        score = inner.new_zeros(n, size)
        # A node without predecessors hears its own place alone, where its state is still zero.
        own = torch.eye(n, dtype=h.dtype, device=h.device)
        heard = place + BLOCKED * (1 - edge - 0.5 * own)  # [B, n, n]
        message, steps, weights = first, [], []
        for v in range(n):
            if v > 0:
                alpha = torch.softmax(score[: v + 1].t() + heard[:, v, : v + 1], -1)
                message = torch.bmm(alpha.unsqueeze(1), by_graph[:, : v + 1]).squeeze(1)
                weights.append(alpha)
            gates = torch.addmm(bias, message, weight.t())
            state, saved = gru_forward(inner[v], gates, message)
            h[v] = state
            torch.mv(state, key, out=score[v])
            steps.append((message, saved))
        ctx.steps, ctx.weights = steps, weights
        ctx.save_for_backward(h, weight, key)
        ctx.set_materialize_grads(False)
        return h, score + place.unsqueeze(1)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(
        ctx: Any, h_grad: Tensor | None, score_grad: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        h, weight, key = ctx.saved_tensors
        n, _, hidden = h.shape
        by_graph = h.transpose(0, 1)  # [B, n, H]
        grad, score = _own_copies(h, h_grad, score_grad)
        grad_by_graph = grad.transpose(0, 1)
        inner, gates = [], []
        for v in reversed(range(n)):
            # The state and the score of v are heard by later nodes alone, whose turn is over.
            grad[v].addmm_(score[v].unsqueeze(1), key.unsqueeze(0))
            inner_v, gates_v, message = gru_backward(grad[v], ctx.steps[v][1])
            inner.append(inner_v)
            gates.append(gates_v)
            message = torch.addmm(message, gates_v, weight)
            if v > 0:
                alpha = ctx.weights[v - 1]  # [B, v + 1]
                # Alone, the own place has a weight of one, and no gradient of its score.
                alpha_grad = torch.bmm(by_graph[:, : v + 1], message.unsqueeze(2)).squeeze(2)
                from_v = torch._softmax_backward_data(alpha_grad, alpha, -1, alpha.dtype)
                score[: v + 1].add_(from_v.t())
                before = alpha[:, :v].unsqueeze(2)
                grad_by_graph[:, :v].baddbmm_(before, message.unsqueeze(1))
        all_gates = torch.cat(gates[::-1])  # [n B, 3H]
        messages = torch.cat([message for message, _ in ctx.steps])  # [n B, H]
        return (
            torch.stack(inner[::-1]),
            None,
            message,
            all_gates.t() @ messages,
            all_gates.sum(0),
            h.view(-1, hidden).t() @ score.view(-1),
            score.sum(1),
        )


class _FusedSweep(torch.autograd.Function):
    """The same in float32, by kernels of our own, for several sides: ``[S, …]`` each."""

    @staticmethod
    def forward(
        ctx: Any, inner: Tensor, edge: Tensor, first: Tensor | None, *weights: Tensor
    ) -> tuple[Tensor, Tensor]:
        inner, edge = inner.contiguous(), edge.contiguous()
        weight, bias, key, place = (tensor.contiguous() for tensor in weights)
        swept = kernels("dense").attention_forward(inner, edge, first, weight, bias, key, place)
        ctx.save_for_backward(*swept, inner, weight, key)
        ctx.with_first = first is not None
        ctx.set_materialize_grads(False)
        return swept.h, swept.score

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(
        ctx: Any, h_grad: Tensor | None, score_grad: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        *swept, inner, weight, key = ctx.saved_tensors
        swept = kernels("dense").AttentionSwept(*swept)
        grad, score = _own_copies(swept.h, h_grad, score_grad)
        inner_grad, gates, first = kernels("dense").attention_backward(
            grad, score, swept, inner, weight, key, ctx.with_first
        )
        gates = gates.flatten(1, 2)  # [S, n B, 3H]
        # Not a product of matrices, which may round its factors: the terms of this sum cancel.
        sides = zip(swept.h.flatten(1, 2), score.flatten(1), strict=True)
        by_state = torch.stack([torch.mv(h.t(), weight) for h, weight in sides])
        return (
            inner_grad,
            None,
            first,
            torch.bmm(gates.mT, swept.message.flatten(1, 2)),
            gates.sum(1),
            by_state,
            score.sum(2),
        )


def _own_copies(
    h: Tensor, h_grad: Tensor | None, score_grad: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Gradients of the states ``[…, H]`` and of their scores ``[…]``, to be added to."""
    form = {"memory_format": torch.contiguous_format}
    return (
        torch.zeros_like(h) if h_grad is None else h_grad.clone(**form),
        h.new_zeros(h.shape[:-1]) if score_grad is None else score_grad.clone(**form),
    )


def attention_gru_sweep(
    inner: Tensor,
    edge: Tensor,
    first: Tensor,
    weight: Tensor,
    bias: Tensor,
    key: Tensor,
    place: Tensor,
) -> tuple[Tensor, Tensor]:
    """States of all nodes ``[n, B, H]``, and how they score with a successor ``[n, B]``.

    Args:
        inner: The input's part of the gates, with its bias. ``[n, B, 3H]``
        edge: ``edge[b, v, u]`` is 1 for an edge from ``u`` to ``v``, otherwise 0. ``[B, n, n]``
        first: The message of node 0. ``[B, H]``
        weight: The recurrent weight of the GRU. ``[3H, H]``
        bias: Its bias. ``[3H]``
        key: The weight of the score of a state. ``[H]``
        place: The score of a place. ``[n]``
    """
    h, score = _Sweep.apply(inner, edge, first, weight, bias, key, place)
    return h, score


def fused_attention_gru_sweep(
    inner: Tensor, edge: Tensor, first: Tensor | None, *weights: Tensor
) -> tuple[Tensor, Tensor]:
    """As :func:`attention_gru_sweep`, on a GPU in float32, for several sides with weights of their
    own: everything is ``[S, …]``. Without :obj:`first` it is zero."""
    h, score = _FusedSweep.apply(inner, edge, first, *weights)
    return h, score
