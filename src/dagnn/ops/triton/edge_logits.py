"""The last layer of the edges' network over all pairs of nodes, without its hidden units in memory:
``w · ReLU(receiver + sender) + c``. A launch each way."""

# mypy: disable-error-code="no-untyped-def"
# (Arguments of kernels are typed when they are compiled.)

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from dagnn.kernels.call import call, ceil_div, next_power_of_2
from dagnn.ops.triton.primitives import rows

__all__ = ["edge_logits", "edge_logits_backward"]

TILE = 4096  # numbers that a program of backward holds at once


@triton.jit(do_not_specialize=["n", "size", "count"], do_not_specialize_on_alignment=["pairs"])
def _logits_kernel(
    receivers, senders, weight, bias, pairs, out, n, size, count,
    H: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """The logit of one pair of one graph."""
    b = tl.program_id(0).to(tl.int64)
    p = tl.program_id(1)
    u = tl.load(pairs + p) % n
    own = (b * count + p) * H
    sender = (u * size + b) * H
    logit = tl.load(bias)
    for start in tl.static_range(0, H, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        live = column < H
        x = tl.load(receivers + own + column, mask=live, other=0.0)
        x += tl.load(senders + sender + column, mask=live, other=0.0)
        # Not tl.maximum, which makes a number of NaN.
        logit += tl.sum(tl.where(x < 0, 0.0, x) * tl.load(weight + column, mask=live, other=0.0), 0)
    tl.store(out + b * count + p, logit)


@triton.jit(do_not_specialize=["n", "size", "count"], do_not_specialize_on_alignment=["pairs"])
def _logits_backward_kernel(
    receivers, senders, weight, pairs, grad, receivers_grad, senders_grad, weight_grad, n, size,
    count, H: tl.constexpr, PAIRS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """All gradients of one graph, of the weight its part, for some of the hidden units."""
    b = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    live = column < H
    p = tl.arange(0, PAIRS)
    there = p < count
    u = tl.load(pairs + p, mask=there, other=0) % n
    own = (b * count + p) * H
    x = rows(receivers + own, column, there, live)
    x += rows(senders + (u * size + b) * H, column, there, live)
    given = tl.load(grad + b * count + p, mask=there, other=0.0)
    w = tl.load(weight + column, mask=live, other=0.0)
    slope = tl.where(x > 0, given[:, None] * w[None, :], 0.0)
    at = own[:, None] + column[None, :]
    tl.store(receivers_grad + at, slope, mask=there[:, None] & live[None, :])
    by_weight = tl.sum(given[:, None] * tl.where(x < 0, 0.0, x), 0)
    tl.store(weight_grad + b * H + column, by_weight, mask=live)
    for node in range(n - 1):
        sent = tl.sum(tl.where((u == node)[:, None], slope, 0.0), 0)
        tl.store(senders_grad + (node * size + b) * H + column, sent, mask=live)


def edge_logits(
    receivers: Tensor, senders: Tensor, weight: Tensor, bias: Tensor, pairs: Tensor
) -> Tensor:
    """See :func:`dagnn.autoencoders.edge_logits.edge_logits`; all contiguous and float32.
    ``[B, P]``

    Args:
        receivers: ``[B, P, H]``
        senders: ``[n - 1, B, H]``
        weight: ``[H]``
        bias: ``[1]``
        pairs: ``v * n + u`` for sender ``u`` and receiver ``v``. ``[P]``
    """
    size, count, hidden = receivers.shape
    out = receivers.new_empty(size, count)
    arguments = (receivers, senders, weight, bias, pairs, out, len(senders) + 1, size, count)
    constants = {"H": hidden, "COLUMNS": min(1024, next_power_of_2(hidden))}
    call(_logits_kernel, (size, count), arguments, constants, {"num_warps": 4})
    return out


def edge_logits_backward(
    grad: Tensor, receivers: Tensor, senders: Tensor, weight: Tensor, pairs: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of receivers ``[B, P, H]`` and senders ``[n - 1, B, H]``, and each graph's part of
    the weight's ``[B, H]``, from those of the logits ``[B, P]``."""
    size, count, hidden = receivers.shape
    gradients = (
        torch.empty_like(receivers),
        torch.empty_like(senders),
        weight.new_empty(size, hidden),
    )
    given = (receivers, senders, weight, pairs, grad.contiguous())
    arguments = (*given, *gradients, len(senders) + 1, size, count)
    height = next_power_of_2(count)
    columns = min(max(TILE // height, 16), next_power_of_2(hidden))
    constants = {"H": hidden, "PAIRS": height, "COLUMNS": columns}
    grid = size, ceil_div(hidden, columns)
    call(_logits_backward_kernel, grid, arguments, constants, {"num_warps": 4})
    return gradients
