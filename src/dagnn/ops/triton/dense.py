"""Attention or gated sum with a GRU over a dense batch of small DAGs, walked node by node.

All graphs of a batch have their node ``v`` done at once, in three or four launches: its message,
its recurrent product (cuBLAS), its cell, and for a gated sum the product with gate and map.
Backward is the same the other way round. Composed of PyTorch's operations it would be three times
as many, and with nodes of a few dozen graphs a launch costs more than its work. There are no
atomics: every sum has a fixed order.

Tensors are node-major: a state of node ``v`` in graph ``b`` is ``h[v, b]``.
"""

# mypy: disable-error-code="no-untyped-def"
# (Arguments of kernels are typed when they are compiled.)

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from dagnn.ops.triton.call import call, ceil_div, next_power_of_2
from dagnn.ops.triton.primitives import rows, sigmoid, tanh

__all__ = [
    "AttentionSwept",
    "GatedSwept",
    "attention_backward",
    "attention_forward",
    "gated_backward",
    "gated_forward",
]

_SIZES = ["v", "n", "size"]
TILE = 8192  # numbers that a program of the attention holds at once
BLOCK = 512  # numbers of a program of the cell


@triton.jit(do_not_specialize=_SIZES)
def _message_kernel(
    h, edge, place, key, message, alpha, v, n, size,
    H: tl.constexpr, NODES: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """The message of node ``v`` of one graph, and the weights of its predecessors."""
    b = tl.program_id(0)
    u = tl.arange(0, NODES)
    heard = tl.load(edge + (b * n + v) * n + u, mask=u < v, other=0.0) > 0
    row = h + (u.to(tl.int64) * size + b) * H
    score = tl.load(place + u, mask=u < v, other=0.0)
    for start in tl.static_range(0, H, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        states = rows(row, column, heard, column < H)
        score += tl.sum(states * tl.load(key + column, mask=column < H, other=0.0)[None, :], 1)
    score = tl.where(heard, score, -1e30)
    weight = tl.where(heard, tl.exp(score - tl.max(score, 0)), 0.0)
    total = tl.sum(weight, 0)
    weight = weight / tl.where(total > 0, total, 1.0)
    own = v.to(tl.int64) * size + b
    tl.store(alpha + own * n + u, weight, mask=u < n)
    for start in tl.static_range(0, H, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        states = rows(row, column, heard, column < H)
        summed = tl.sum(weight[:, None] * states, 0)
        tl.store(message + own * H + column, summed, mask=column < H)


@triton.jit(do_not_specialize=_SIZES)
def _message_backward_kernel(
    h, message, alpha, key, message_grad, grad, score_grad, v, n, size,
    H: tl.constexpr, NODES: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """From the gradient of node ``v``'s message, what its predecessors' states get."""
    b = tl.program_id(0)
    u = tl.arange(0, NODES)
    own = v.to(tl.int64) * size + b
    weight = tl.load(alpha + own * n + u, mask=u < v, other=0.0)
    heard = weight > 0
    place = (u.to(tl.int64) * size + b) * H
    slope = tl.zeros([NODES], tl.float32)
    for start in tl.static_range(0, H, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        given = tl.load(message_grad + own * H + column, mask=column < H, other=0.0)
        mean = tl.load(message + own * H + column, mask=column < H, other=0.0)
        # The difference before the product: two products would nearly cancel.
        off = rows(h + place, column, heard, column < H) - mean[None, :]
        slope += tl.sum(off * given[None, :], 1)
    slope = weight * slope
    tl.store(score_grad + own * n + u, slope, mask=u < n)
    for start in tl.static_range(0, H, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        given = tl.load(message_grad + own * H + column, mask=column < H, other=0.0)
        wanted = tl.load(key + column, mask=column < H, other=0.0)
        at = grad + place[:, None] + column[None, :]
        mask = heard[:, None] & (column < H)[None, :]
        more = weight[:, None] * given[None, :] + slope[:, None] * wanted[None, :]
        tl.store(at, tl.load(at, mask=mask, other=0.0) + more, mask=mask)


@triton.jit(do_not_specialize=_SIZES)
def _sum_kernel(
    pair, edge, message, v, n, size,
    H: tl.constexpr, NODES: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """The message of node ``v`` of one graph: a gated sum."""
    b = tl.program_id(0)
    u = tl.arange(0, NODES)
    heard = tl.load(edge + (b * n + v) * n + u, mask=u < v, other=0.0) > 0
    row = pair + (u.to(tl.int64) * size + b) * (2 * H)
    own = v.to(tl.int64) * size + b
    for start in tl.static_range(0, H, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        gate = sigmoid(rows(row, column, heard, column < H))
        value = rows(row + H, column, heard, column < H)  # zero where nothing is heard
        tl.store(message + own * H + column, tl.sum(gate * value, 0), mask=column < H)


@triton.jit(do_not_specialize=_SIZES)
def _sum_backward_kernel(
    pair, edge, message_grad, pair_grad, v, n, size,
    H: tl.constexpr, NODES: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """From the gradients of its successors' messages, that of node ``v``'s gate and map."""
    b = tl.program_id(0)
    w = tl.arange(0, NODES)
    heard = tl.load(edge + (b * n + w) * n + v, mask=(w > v) & (w < n), other=0.0) > 0
    row = message_grad + (w.to(tl.int64) * size + b) * H
    own = (v.to(tl.int64) * size + b) * (2 * H)
    for start in tl.static_range(0, H, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        given = tl.sum(rows(row, column, heard, column < H), 0)
        at = own + column
        gate = sigmoid(tl.load(pair + at, mask=column < H, other=0.0))
        value = tl.load(pair + at + H, mask=column < H, other=0.0)
        tl.store(pair_grad + at, given * value * gate * (1 - gate), mask=column < H)
        tl.store(pair_grad + at + H, given * gate, mask=column < H)


@triton.jit
def _gates(inner, gates, at, H: tl.constexpr, live):
    """r, z, n, and n's part of the recurrent product."""
    r = sigmoid(
        tl.load(inner + at, mask=live, other=0.0) + tl.load(gates + at, mask=live, other=0.0)
    )
    z = sigmoid(
        tl.load(inner + at + H, mask=live, other=0.0)
        + tl.load(gates + at + H, mask=live, other=0.0)
    )
    g = tl.load(gates + at + 2 * H, mask=live, other=0.0)
    n = tanh(tl.load(inner + at + 2 * H, mask=live, other=0.0) + r * g)
    return r, z, n, g


@triton.jit
def _store_gates(out, r, z, n, H: tl.constexpr, live):
    tl.store(out, r, mask=live)
    tl.store(out + H, z, mask=live)
    tl.store(out + 2 * H, n, mask=live)


@triton.jit(do_not_specialize=_SIZES)
def _cell_kernel(inner, gates, message, h, v, size, H: tl.constexpr, WIDTH: tl.constexpr):
    """States of node ``v`` of all graphs."""
    i = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    live = i < size * H
    at = v.to(tl.int64) * size * H + i
    _, z, n, _ = _gates(inner, gates, at // H * (3 * H) + at % H, H, live)
    m = tl.load(message + at, mask=live, other=0.0)
    tl.store(h + at, n + z * (m - n), mask=live)


@triton.jit(do_not_specialize=_SIZES)
def _cell_backward_kernel(
    inner, gates, message, grad, inner_grad, gates_grad, message_grad, v, size,
    H: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    i = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    live = i < size * H
    at = v.to(tl.int64) * size * H + i
    wide = at // H * (3 * H) + at % H
    r, z, n, g = _gates(inner, gates, wide, H, live)
    m = tl.load(message + at, mask=live, other=0.0)
    state = tl.load(grad + at, mask=live, other=0.0)
    tl.store(message_grad + at, state * z, mask=live)
    n_grad = state * (1 - z) * (1 - n * n)  # before tanh
    z_grad = state * (m - n) * z * (1 - z)  # before the sigmoid
    r_grad = n_grad * g * r * (1 - r)
    _store_gates(inner_grad + wide, r_grad, z_grad, n_grad, H, live)
    _store_gates(gates_grad + wide, r_grad, z_grad, n_grad * r, H, live)


class AttentionSwept(NamedTuple):
    """What :func:`attention_forward` leaves."""

    h: Tensor  # [n, B, H]
    message: Tensor  # [n, B, H]
    gates: Tensor  # [n, B, 3H] the recurrent product, with its bias
    alpha: Tensor  # [n, B, n] alpha[v, b, u]: how much v hears of u


class GatedSwept(NamedTuple):
    """What :func:`gated_forward` leaves."""

    h: Tensor  # [n, B, H]
    message: Tensor  # [n, B, H]
    gates: Tensor  # [n, B, 3H]
    pair: Tensor  # [n, B, 2H] gate, before the sigmoid, and map


def attention_forward(
    inner: Tensor, edge: Tensor, place: Tensor, first: Tensor, weight: Tensor, bias: Tensor,
    key: Tensor,
) -> AttentionSwept:  # fmt: skip
    """States of all nodes; the arguments are those of
    :func:`dagnn.autoencoders.attention_sweep.attention_gru_sweep`, contiguous and float32."""
    n, size, _ = inner.shape
    hidden = weight.size(1)
    h = inner.new_empty(n, size, hidden)
    alpha = inner.new_zeros(n, size, n)
    swept = AttentionSwept(h, torch.empty_like(h), torch.empty_like(inner), alpha)
    swept.message[0] = first
    for v in range(n):
        if v > 0:
            heard = (h, edge, place, key, swept.message, alpha, v, n, size)
            call(_message_kernel, (size, 1), heard, *_tile(n, hidden))
        _update(swept, inner, weight, bias, v)
    return swept


def attention_backward(
    grad: Tensor, swept: AttentionSwept, inner: Tensor, weight: Tensor, key: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of the input's part of the gates ``[n, B, 3H]``, of the recurrent product
    ``[n, B, 3H]``, of the first message ``[B, H]``, and of scores ``[n, B, n]``.

    Args:
        grad: The gradient of the states. It is overwritten. ``[n, B, H]``
        swept: From :func:`attention_forward`.
        inner, weight, key: The arguments of :func:`attention_forward`.
    """
    n, size, hidden = grad.shape
    h, message, _, alpha = swept
    gradients = torch.empty_like(inner), torch.empty_like(inner), torch.empty_like(grad)
    score_grad = torch.zeros_like(alpha)
    for v in reversed(range(n)):
        # The state of v is heard by later nodes alone, whose turn is over.
        _update_backward(grad, swept, inner, weight, gradients, v)
        if v > 0:
            heard = (h, message, alpha, key, gradients[2], grad, score_grad, v, n, size)
            call(_message_backward_kernel, (size, 1), heard, *_tile(n, hidden))
    return gradients[0], gradients[1], gradients[2][0], score_grad


def gated_forward(
    inner: Tensor, edge: Tensor, first: Tensor, weight: Tensor, bias: Tensor, pair_weight: Tensor,
    pair_start: Tensor,
) -> GatedSwept:  # fmt: skip
    """States of all nodes; the arguments are those of
    :func:`dagnn.autoencoders.gated_sweep.gated_gru_sweep`, contiguous and float32."""
    n, size, _ = inner.shape
    hidden = weight.size(1)
    h = inner.new_empty(n, size, hidden)
    pair = inner.new_empty(n, size, 2 * hidden)
    swept = GatedSwept(h, torch.empty_like(h), torch.empty_like(inner), pair)
    swept.message[0] = first
    for v in range(n):
        if v > 0:
            heard = (pair, edge, swept.message, v, n, size)
            call(_sum_kernel, (size, 1), heard, *_tile(n, hidden))
        _update(swept, inner, weight, bias, v)
        torch.addmm(pair_start[v], h[v], pair_weight.t(), out=pair[v])
    return swept


def gated_backward(
    grad: Tensor,
    swept: GatedSwept,
    inner: Tensor,
    edge: Tensor,
    weight: Tensor,
    pair_weight: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of the input's part of the gates ``[n, B, 3H]``, of the recurrent product
    ``[n, B, 3H]``, of the first message ``[B, H]``, and of gate and map ``[n, B, 2H]``.

    Args:
        grad: The gradient of the states. It is overwritten. ``[n, B, H]``
        swept: From :func:`gated_forward`.
        inner, edge, weight, pair_weight: The arguments of :func:`gated_forward`.
    """
    n, size, hidden = grad.shape
    gradients = torch.empty_like(inner), torch.empty_like(inner), torch.empty_like(grad)
    pair_grad = torch.empty_like(swept.pair)
    for v in reversed(range(n)):
        heard = (swept.pair, edge, gradients[2], pair_grad, v, n, size)
        call(_sum_backward_kernel, (size, 1), heard, *_tile(n, hidden))
        grad[v].addmm_(pair_grad[v], pair_weight)
        _update_backward(grad, swept, inner, weight, gradients, v)
    return gradients[0], gradients[1], gradients[2][0], pair_grad


def _update(
    swept: AttentionSwept | GatedSwept, inner: Tensor, weight: Tensor, bias: Tensor, v: int
) -> None:
    """States of node ``v`` from its messages."""
    _, size, hidden = swept.h.shape
    torch.addmm(bias, swept.message[v], weight.t(), out=swept.gates[v])
    updated = (inner, swept.gates, swept.message, swept.h, v, size)
    call(_cell_kernel, _cell_grid(size, hidden), updated, *_width(hidden))


def _update_backward(
    grad: Tensor,
    swept: AttentionSwept | GatedSwept,
    inner: Tensor,
    weight: Tensor,
    gradients: tuple[Tensor, Tensor, Tensor],
    v: int,
) -> None:
    """Gradients of node ``v``'s inner part, recurrent product and message, from its state's."""
    _, size, hidden = grad.shape
    updated = (inner, swept.gates, swept.message, grad, *gradients, v, size)
    call(_cell_backward_kernel, _cell_grid(size, hidden), updated, *_width(hidden))
    gradients[2][v].addmm_(gradients[1][v], weight)


def _tile(n: int, hidden: int) -> tuple[dict[str, int], dict[str, int]]:
    nodes = next_power_of_2(n)
    columns = min(next_power_of_2(hidden), max(TILE // nodes, 16))
    return {"H": hidden, "NODES": nodes, "COLUMNS": columns}, {"num_warps": 8}


def _width(hidden: int) -> tuple[dict[str, int], dict[str, int]]:
    return {"H": hidden, "WIDTH": BLOCK}, {"num_warps": 4}


def _cell_grid(size: int, hidden: int) -> tuple[int, int]:
    return ceil_div(size * hidden, BLOCK), 1
