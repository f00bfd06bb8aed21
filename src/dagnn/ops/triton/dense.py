"""Attention or gated sum with a GRU over a dense batch of small DAGs, walked node by node.

All graphs of a batch have their node ``v`` done at once. With attention in two launches: its
recurrent product (cuBLAS), then its cell and the message of the node after it, which needs nothing
of other graphs. With a gated sum in four: message, recurrent product, cell, and the product with
gate and map. Backward is the same the other way round. Composed of PyTorch's operations it would be
several times as many, and with nodes of a few dozen graphs a launch costs more than its work. There
are no atomics: every sum has a fixed order.

Tensors are ``[S, n, B, …]``: a state of node ``v`` in graph ``b`` is ``h[side, v, b]``. Sides, such
as the two directions of edges, have weights of their own, and are walked together.
"""

# mypy: disable-error-code="no-untyped-def"
# (Arguments of kernels are typed when they are compiled.)

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from dagnn.kernels.call import call, next_power_of_2
from dagnn.ops.triton.cell import cell, cell_backward, gates_at, slopes_at
from dagnn.ops.triton.primitives import rows, sigmoid

__all__ = [
    "AttentionSwept",
    "GatedSwept",
    "attention_backward",
    "attention_forward",
    "gated_backward",
    "gated_forward",
]

_SIZES = ["v", "n", "size"]
TILE = 8192  # numbers that a program holds at once


@triton.jit
def _first_row(graph, n, size):
    """Where node 0 of a graph is; its other nodes follow every :obj:`size` rows."""
    side = (graph // size).to(tl.int64)
    return side * n * size + graph % size


@triton.jit(do_not_specialize=_SIZES)
def _attention_kernel(
    inner, gates, message, h, score, alpha, edge, place, key, v, n, size,
    H: tl.constexpr, NODES: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """In one graph, the state of node ``v`` and its score; then the message of the node after it,
    and the weights of that one's predecessors."""
    graph = tl.program_id(0)
    side = graph // size
    first = _first_row(graph, n, size)
    own = first + v * size
    key += side * H
    own_score = tl.load(place + side * n + v)
    for start in tl.static_range(0, H, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        live = column < H
        _, z, c, _ = gates_at(inner, gates, own * (3 * H) + column, H, live)
        m = tl.load(message + own * H + column, mask=live, other=0.0)
        state = c + z * (m - c)
        tl.store(h + own * H + column, state, mask=live)
        own_score += tl.sum(state * tl.load(key + column, mask=live, other=0.0), 0)
    tl.store(score + own, own_score)
    if v + 1 < n:
        tl.debug_barrier()  # both are read below, by other threads
        after = own + size
        u = tl.arange(0, NODES)
        row = first + u * size
        heard = tl.load(edge + (graph * n + v + 1) * n + u, mask=u <= v, other=0.0) > 0
        scores = tl.load(score + row, mask=heard, other=-1e30)
        weight = tl.where(heard, tl.exp(scores - tl.max(scores, 0)), 0.0)
        total = tl.sum(weight, 0)
        weight = weight / tl.where(total > 0, total, 1.0)
        tl.store(alpha + after * n + u, weight, mask=u < n)
        for start in tl.static_range(0, H, COLUMNS):
            column = start + tl.arange(0, COLUMNS)
            states = rows(h + row * H, column, heard, column < H)
            summed = tl.sum(weight[:, None] * states, 0)
            tl.store(message + after * H + column, summed, mask=column < H)


@triton.jit(do_not_specialize=_SIZES)
def _attention_backward_kernel(
    inner, gates, message, h, alpha, key, grad, score_grad, inner_grad, gates_grad, message_grad,
    v, n, size, H: tl.constexpr, NODES: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """In one graph, what states and scores get from the gradient of the message of the node after
    ``v``; then those of ``v`` have all that they get, and give to its gates and its message."""
    graph = tl.program_id(0)
    first = _first_row(graph, n, size)
    own = first + v * size
    key += graph // size * H
    if v + 1 < n:
        after = own + size
        u = tl.arange(0, NODES)
        weight = tl.load(alpha + after * n + u, mask=u <= v, other=0.0)
        heard = weight > 0
        row = first + u * size
        slope = tl.zeros([NODES], tl.float32)
        for start in tl.static_range(0, H, COLUMNS):
            column = start + tl.arange(0, COLUMNS)
            given = tl.load(message_grad + after * H + column, mask=column < H, other=0.0)
            mean = tl.load(message + after * H + column, mask=column < H, other=0.0)
            # The difference before the product: two products would nearly cancel.
            off = rows(h + row * H, column, heard, column < H) - mean[None, :]
            slope += tl.sum(off * given[None, :], 1)
            at = grad + (row * H)[:, None] + column[None, :]
            mask = heard[:, None] & (column < H)[None, :]
            before = tl.load(at, mask=mask, other=0.0)
            tl.store(at, before + weight[:, None] * given[None, :], mask=mask)
        before = tl.load(score_grad + row, mask=heard, other=0.0)
        tl.store(score_grad + row, before + weight * slope, mask=heard)
        tl.debug_barrier()  # both are read below, by other threads
    by_score = tl.load(score_grad + own)
    for start in tl.static_range(0, H, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        live = column < H
        m = tl.load(message + own * H + column, mask=live, other=0.0)
        state = tl.load(grad + own * H + column, mask=live, other=0.0)
        state += by_score * tl.load(key + column, mask=live, other=0.0)
        wide = own * (3 * H) + column
        passed = slopes_at(inner, gates, inner_grad, gates_grad, wide, m, state, H, live)
        tl.store(message_grad + own * H + column, passed, mask=live)


@triton.jit(do_not_specialize=_SIZES)
def _sum_kernel(
    pair, edge, message, v, n, size,
    H: tl.constexpr, NODES: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """The message of node ``v`` of one graph: a gated sum."""
    graph = tl.program_id(0)
    first = _first_row(graph, n, size)
    u = tl.arange(0, NODES)
    heard = tl.load(edge + (graph * n + v) * n + u, mask=u < v, other=0.0) > 0
    row = pair + (first + u * size) * (2 * H)
    own = first + v * size
    for start in tl.static_range(0, H, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        value = rows(row, column, heard, column < H)  # zero where nothing is heard
        gate = sigmoid(rows(row + H, column, heard, column < H))
        tl.store(message + own * H + column, tl.sum(gate * value, 0), mask=column < H)


@triton.jit(do_not_specialize=_SIZES)
def _sum_backward_kernel(
    pair, edge, message_grad, pair_grad, v, n, size,
    H: tl.constexpr, NODES: tl.constexpr, COLUMNS: tl.constexpr, ADD: tl.constexpr,
):  # fmt: skip
    """From the gradients of its successors' messages, that of node ``v``'s map and gate; with
    ``ADD``, added to what is there."""
    graph = tl.program_id(0)
    first = _first_row(graph, n, size)
    w = tl.arange(0, NODES)
    heard = tl.load(edge + (graph * n + w) * n + v, mask=(w > v) & (w < n), other=0.0) > 0
    row = message_grad + (first + w * size) * H
    own = (first + v * size) * (2 * H)
    for start in tl.static_range(0, H, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        live = column < H
        given = tl.sum(rows(row, column, heard, live), 0)
        at = own + column
        value = tl.load(pair + at, mask=live, other=0.0)
        gate = sigmoid(tl.load(pair + at + H, mask=live, other=0.0))
        value_grad = given * gate
        gate_grad = given * value * gate * (1 - gate)
        if ADD:
            value_grad += tl.load(pair_grad + at, mask=live, other=0.0)
            gate_grad += tl.load(pair_grad + at + H, mask=live, other=0.0)
        tl.store(pair_grad + at, value_grad, mask=live)
        tl.store(pair_grad + at + H, gate_grad, mask=live)


class AttentionSwept(NamedTuple):
    """What :func:`attention_forward` leaves."""

    h: Tensor  # [S, n, B, H]
    score: Tensor  # [S, n, B]
    message: Tensor  # [S, n, B, H]
    gates: Tensor  # [S, n, B, 3H] the recurrent product, with its bias
    alpha: Tensor  # [S, n, B, n] alpha[:, v, b, u]: how much v > 0 hears of u


class GatedSwept(NamedTuple):
    """What :func:`gated_forward` leaves."""

    h: Tensor  # [S, n, B, H]
    pair: Tensor  # [S, n, B, 2H] map and gate, before the sigmoid
    message: Tensor  # [S, n, B, H]
    gates: Tensor  # [S, n, B, 3H]


def attention_forward(
    inner: Tensor, edge: Tensor, first: Tensor | None, weight: Tensor, bias: Tensor, key: Tensor,
    place: Tensor,
) -> AttentionSwept:  # fmt: skip
    """States of all nodes; the arguments are those of
    :func:`dagnn.autoencoders.attention_sweep.attention_gru_sweep` for each side, contiguous and
    float32."""
    sides, n, size, _ = inner.shape
    message, gates = _start(inner, first, bias)
    h, score = torch.empty_like(message), inner.new_empty(sides, n, size)
    alpha = inner.new_empty(sides, n, size, n)
    for v in range(n):
        if v > 0 or first is not None:
            gates[:, v].baddbmm_(message[:, v], weight.mT)
        updated = (inner, gates, message, h, score, alpha, edge, place, key, v, n, size)
        call(_attention_kernel, (sides * size, 1), updated, *_tile(h))
    return AttentionSwept(h, score, message, gates, alpha)


def attention_backward(
    grad: Tensor, score_grad: Tensor, swept: AttentionSwept, inner: Tensor, weight: Tensor,
    key: Tensor, with_first: bool,
) -> tuple[Tensor, Tensor, Tensor | None]:  # fmt: skip
    """Gradients of the input's part of the gates ``[S, n, B, 3H]``, of the recurrent product
    ``[S, n, B, 3H]``, and of the first message ``[S, B, H]``.

    Args:
        grad: The gradient of the states. It is overwritten. ``[S, n, B, H]``
        score_grad: That of their scores, to which all that comes from messages is added.
            ``[S, n, B]``
        swept: From :func:`attention_forward`.
        inner, weight, key: The arguments of :func:`attention_forward`.
        with_first: Whether the gradient of the first message is wanted.
    """
    sides, n, size, _ = grad.shape
    given = (inner, swept.gates, swept.message, swept.h, swept.alpha, key, grad, score_grad)
    inner_grad, gates_grad = torch.empty_like(inner), torch.empty_like(inner)
    message_grad = torch.empty_like(grad)
    for v in reversed(range(n)):
        updated = (*given, inner_grad, gates_grad, message_grad, v, n, size)
        call(_attention_backward_kernel, (sides * size, 1), updated, *_tile(grad))
        if v > 0 or with_first:
            message_grad[:, v].baddbmm_(gates_grad[:, v], weight)
    return inner_grad, gates_grad, message_grad[:, 0] if with_first else None


def gated_forward(
    inner: Tensor, edge: Tensor, first: Tensor | None, weight: Tensor, bias: Tensor,
    pair_weight: Tensor, pair_start: Tensor,
) -> GatedSwept:  # fmt: skip
    """States of all nodes; the arguments are those of
    :func:`dagnn.autoencoders.gated_sweep.gated_gru_sweep` for each side, contiguous and float32."""
    sides, n, size, _ = inner.shape
    message, gates = _start(inner, first, bias)
    h = torch.empty_like(message)
    pair = _spread(pair_start, size)
    for v in range(n):
        if v > 0:
            heard = (pair, edge, message, v, n, size)
            call(_sum_kernel, (sides * size, 1), heard, *_tile(h))
        if v > 0 or first is not None:
            gates[:, v].baddbmm_(message[:, v], weight.mT)
        cell((inner, gates, message, h), v)
        pair[:, v].baddbmm_(h[:, v], pair_weight.mT)
    return GatedSwept(h, pair, message, gates)


def gated_backward(
    grad: Tensor, pair_grad: Tensor | None, swept: GatedSwept, inner: Tensor, edge: Tensor,
    weight: Tensor, pair_weight: Tensor, with_first: bool,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:  # fmt: skip
    """Gradients of the input's part of the gates ``[S, n, B, 3H]``, of the recurrent product
    ``[S, n, B, 3H]``, of the first message ``[S, B, H]``, and of map and gate ``[S, n, B, 2H]``.

    Args:
        grad: The gradient of the states. It is overwritten. ``[S, n, B, H]``
        pair_grad: That of map and gate, without what comes from messages. ``[S, n, B, 2H]``
        swept: From :func:`gated_forward`.
        inner, edge, weight, pair_weight: The arguments of :func:`gated_forward`.
        with_first: Whether the gradient of the first message is wanted.
    """
    sides, n, size, _ = grad.shape
    constants, options = _tile(grad)
    constants["ADD"] = pair_grad is not None
    inner_grad, gates_grad = torch.empty_like(inner), torch.empty_like(inner)
    message_grad, pairs = torch.empty_like(grad), torch.empty_like(swept.pair)
    if pair_grad is not None:
        pairs.copy_(pair_grad)
    for v in reversed(range(n)):
        heard = (swept.pair, edge, message_grad, pairs, v, n, size)
        call(_sum_backward_kernel, (sides * size, 1), heard, constants, options)
        grad[:, v].baddbmm_(pairs[:, v], pair_weight)
        given = inner, swept.gates, swept.message, grad
        cell_backward(given, (inner_grad, gates_grad, message_grad), v)
        if v > 0 or with_first:
            message_grad[:, v].baddbmm_(gates_grad[:, v], weight)
    return inner_grad, gates_grad, message_grad[:, 0] if with_first else None, pairs


def _start(inner: Tensor, first: Tensor | None, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Messages ``[S, n, B, H]`` with the first, by default zero; and the recurrent product
    ``[S, n, B, 3H]``, of which there is the bias."""
    sides, n, size, width = inner.shape
    message = inner.new_empty(sides, n, size, width // 3)
    message[:, 0] = 0 if first is None else first
    return message, _spread(bias.unsqueeze(1).expand(-1, n, -1), size)


def _spread(of_nodes: Tensor, size: int) -> Tensor:
    """The same for all graphs, to be added to. ``[S, n, W]`` to ``[S, n, B, W]``"""
    spread = of_nodes.unsqueeze(2).expand(-1, -1, size, -1)
    # Not `contiguous`, which is the very argument where there is one graph.
    return spread.clone(memory_format=torch.contiguous_format)


def _tile(h: Tensor) -> tuple[dict[str, int], dict[str, int]]:
    _, n, _, hidden = h.shape
    nodes = next_power_of_2(n)
    columns = min(next_power_of_2(hidden), max(TILE // nodes, 16))
    return {"H": hidden, "NODES": nodes, "COLUMNS": columns}, {"num_warps": 8}
