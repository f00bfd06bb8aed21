"""GRUs side by side, step after step: two launches a step each way, a product and a cell.

Rows are those of the start, then those of each step. Of the step before, the last so many rows are
the messages of a step; of the start all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from dagnn.ops.triton.cell import cell, cell_backward

__all__ = ["chain_backward", "chain_forward", "messages"]


def chain_forward(
    inner: Tensor, first: Tensor | None, weight: Tensor, bias: Tensor, sizes: Sequence[int]
) -> tuple[Tensor, Tensor]:
    """The first states and those of all steps ``[K + R, H]``, and the recurrent product with its
    bias ``[R, 3H]``. The arguments are those of
    :func:`dagnn.autoencoders.gru_chain.gru_chain`, float32, ``inner`` contiguous."""
    states = inner.new_empty(sizes[0] + len(inner), weight.size(1))
    states[: sizes[0]] = 0 if first is None else first
    gates = torch.empty_like(inner)
    for own, before, after in _steps(sizes):
        torch.addmm(bias, states[before], weight.t(), out=gates[own])
        cell(_as_one_node(inner[own], gates[own], states[before], states[after]))
    return states, gates


def chain_backward(
    grad: Tensor,
    inner: Tensor,
    states: Tensor,
    gates: Tensor,
    weight: Tensor,
    sizes: Sequence[int],
    with_first: bool,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Gradients of ``inner`` and of the recurrent product ``[R, 3H]``, and if wanted of the first
    states ``[K, H]``, from those of the states of all steps ``[R, H]``."""
    total = torch.empty_like(states)
    total[sizes[0] :] = grad
    inner_grad, gates_grad = torch.empty_like(inner), torch.empty_like(inner)
    for own, before, after in reversed(list(_steps(sizes))):
        # A step's states have their whole gradient when its turn comes.
        given = _as_one_node(inner[own], gates[own], states[before], total[after])
        gradients = _as_one_node(inner_grad[own], gates_grad[own], total[before])
        cell_backward(given, gradients, add=before.start > 0)
        if before.start > 0 or with_first:
            total[before].addmm_(gates_grad[own], weight)
    return inner_grad, gates_grad, total[: sizes[0]] if with_first else None


def messages(states: Tensor, sizes: Sequence[int]) -> Tensor:
    """The messages of all steps. ``[R, H]``"""
    if min(sizes) == sizes[0]:  # all that there was before the last step
        return states[: -sizes[0]]
    return torch.cat([states[before] for _, before, _ in _steps(sizes)])


def _steps(sizes: Sequence[int]) -> Iterator[tuple[slice, slice, slice]]:
    """For each step its rows of ``inner``, and of the states its messages and its own."""
    start = end = sizes[0]  # of the states so far
    for size in sizes:
        yield slice(end - start, end - start + size), slice(end - size, end), slice(end, end + size)
        end += size


def _as_one_node(*tensors: Tensor) -> list[Tensor]:
    """``[B, …]`` as ``[1, 1, B, …]`` each"""
    return [tensor[None, None] for tensor in tensors]
