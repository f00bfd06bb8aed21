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

from dagnn.autoencoders.dense import has_kernels, kernels
from dagnn.autoencoders.gru import gru_backward, gru_forward

__all__ = ["BLOCKED", "attention_gru_sweep"]

BLOCKED = -1e30  # a score that no softmax hears; finite, since without edges all are blocked


class _Sweep(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        inner: Tensor,
        edge: Tensor,
        place: Tensor,
        first: Tensor,
        weight: Tensor,
        bias: Tensor,
        key: Tensor,
    ) -> Tensor:
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
        return h

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        h, weight, key = ctx.saved_tensors
        n, size, hidden = h.shape
        by_graph = h.transpose(0, 1)  # [B, n, H]
        grad = grad.clone(memory_format=torch.contiguous_format)
        grad_by_graph = grad.transpose(0, 1)
        score = grad.new_zeros(n, size)
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
                score_grad = torch._softmax_backward_data(alpha_grad, alpha, -1, alpha.dtype)
                score[: v + 1].add_(score_grad.t())
                before = alpha[:, :v].unsqueeze(2)
                grad_by_graph[:, :v].baddbmm_(before, message.unsqueeze(1))
        all_gates = torch.cat(gates[::-1])  # [n B, 3H]
        messages = torch.cat([message for message, _ in ctx.steps])  # [n B, H]
        return (
            torch.stack(inner[::-1]),
            None,
            score.sum(1),
            message,
            all_gates.t() @ messages,
            all_gates.sum(0),
            h.view(-1, hidden).t() @ score.view(-1),
        )


class _FusedSweep(torch.autograd.Function):
    """The same in float32, by kernels of our own."""

    @staticmethod
    def forward(ctx: Any, *arguments: Tensor) -> Tensor:
        inner, *rest = (tensor.contiguous() for tensor in arguments)
        swept = kernels().attention_forward(inner, *rest)
        weight, key = rest[3], rest[5]
        ctx.save_for_backward(*swept, inner, weight, key)
        return swept.h

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        *swept, inner, weight, key = ctx.saved_tensors
        swept = kernels().AttentionSwept(*swept)
        grad = grad.clone(memory_format=torch.contiguous_format)
        inner_grad, gates, first, scores = kernels().attention_backward(
            grad, swept, inner, weight, key
        )
        score = scores.sum(0).t()  # [n, B]
        gates, hidden = gates.flatten(0, 1), weight.size(1)
        return (
            inner_grad,
            None,
            score.sum(1),
            first,
            gates.t() @ swept.message.view(-1, hidden),
            gates.sum(0),
            swept.h.view(-1, hidden).t() @ score.reshape(-1),
        )


def attention_gru_sweep(
    inner: Tensor,
    edge: Tensor,
    place: Tensor,
    first: Tensor,
    weight: Tensor,
    bias: Tensor,
    key: Tensor,
) -> Tensor:
    """States of all nodes. ``[n, B, H]``

    Args:
        inner: The input's part of the gates, with its bias. ``[n, B, 3H]``
        edge: ``edge[b, v, u]`` is 1 for an edge from ``u`` to ``v``, otherwise 0. ``[B, n, n]``
        place: The score of a place. ``[n]``
        first: The message of node 0. ``[B, H]``
        weight: The recurrent weight of the GRU. ``[3H, H]``
        bias: Its bias. ``[3H]``
        key: The weight of the score of a state. ``[H]``
    """
    sweep = _FusedSweep if has_kernels(inner) else _Sweep
    out: Tensor = sweep.apply(inner, edge, place, first, weight, bias, key)
    return out
