r"""Many GRUs side by side, step after step, as one autograd function.

.. math::
    h_t = \mathrm{GRU}(i_t, h_{t-1}), \qquad t = 1, 2, \dots

Some may end before others. In backward the gradients of weights are one product over all steps
after the loop: a third of the kernels that autograd would start. On a GPU with Triton a step is
two kernels each way (``dagnn.ops.triton.chain``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from dagnn.autoencoders.dense import has_kernels, kernels
from dagnn.autoencoders.gru import gru_backward, gru_forward

__all__ = ["gru_chain"]


class _Chain(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, inner: Tensor, first: Tensor, weight: Tensor, bias: Tensor, sizes: Sequence[int]
    ) -> Tensor:
        state, states, steps = first, [], []
        for now in inner.split(sizes):
            message = state[len(state) - len(now) :]
            state, saved = gru_forward(now, torch.addmm(bias, message, weight.t()), message)
            states.append(state)
            steps.append((message, saved))
        ctx.steps, ctx.sizes = steps, sizes
        ctx.save_for_backward(weight)
        return torch.cat(states)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (weight,) = ctx.saved_tensors
        grads = grad.clone(memory_format=torch.contiguous_format).split(ctx.sizes)
        inner, gates, message = [], [], grad.new_zeros(0, weight.size(1))
        for own, (_, saved) in zip(reversed(grads), reversed(ctx.steps), strict=True):
            own[len(own) - len(message) :].add_(message)
            inner_now, gates_now, message = gru_backward(own, saved)
            message = torch.addmm(message, gates_now, weight)
            inner.append(inner_now)
            gates.append(gates_now)
        all_gates = torch.cat(gates[::-1])
        messages = torch.cat([message for message, _ in ctx.steps])
        return torch.cat(inner[::-1]), message, all_gates.t() @ messages, all_gates.sum(0), None


class _FusedChain(torch.autograd.Function):
    """The same in float32, by kernels of our own."""

    @staticmethod
    def forward(
        ctx: Any,
        inner: Tensor,
        first: Tensor | None,
        weight: Tensor,
        bias: Tensor,
        sizes: Sequence[int],
    ) -> Tensor:
        inner = inner.contiguous()
        states, gates = kernels("chain").chain_forward(inner, first, weight, bias, sizes)
        ctx.save_for_backward(inner, states, gates, weight)
        ctx.sizes, ctx.with_first = sizes, first is not None
        out: Tensor = states[sizes[0] :]
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        inner, states, gates, weight = ctx.saved_tensors
        inner_grad, gates_grad, first = kernels("chain").chain_backward(
            grad, inner, states, gates, weight, ctx.sizes, ctx.with_first
        )
        messages = kernels("chain").messages(states, ctx.sizes)
        return inner_grad, first, gates_grad.t() @ messages, gates_grad.sum(0), None


def gru_chain(
    cell: nn.GRUCell, inner: Tensor, first: Tensor | None, sizes: Sequence[int]
) -> Tensor:
    """The states of all steps, one after the other. ``[R, H]``

    Args:
        cell: The GRU.
        inner: The input's part of the gates, with its bias: of all in step 1, then of those that
            go on to step 2, and so on. ``[R, 3H]``
        first: The states to start from; by default zero. ``[K, H]``
        sizes: How many take part in each step: at first all ``K``, then the last so many of those
            of the step before. Together ``R``.
    """
    weights = cell.weight_hh, cell.bias_hh
    if has_kernels(inner):
        fused: Tensor = _FusedChain.apply(inner, first, *weights, sizes)
        return fused
    if first is None:
        first = inner.new_zeros(sizes[0], cell.hidden_size)
    out: Tensor = _Chain.apply(inner, first, *weights, sizes)
    return out
