"""What models ask of a dense batch of small DAGs, a launch for each question: rows of types and
edges, sums over some of the nodes, and how much each pair's receiver hears of the other nodes.

Adjacency ``[B, n, n]`` is of bytes; tensors of nodes are node-major, ``[n, B, …]``.
"""

# mypy: disable-error-code="no-untyped-def"
# (Arguments of kernels are typed when they are compiled.)

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from dagnn.kernels.call import call, ceil_div, next_power_of_2
from dagnn.ops.triton.primitives import rows

__all__ = ["node_rows", "pair_weights", "pair_weights_backward", "spread_nodes", "sum_nodes"]

BLOCK = 512  # numbers of a program


@triton.jit(
    do_not_specialize=["n", "size", "num_types", "width"],
    do_not_specialize_on_alignment=["types", "adjacency"],
)
def _rows_kernel(types, adjacency, out, n, size, num_types, width, WIDTH: tl.constexpr):
    at = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    column, node = at % width, at // width
    of_graph = node % size * n + node // size
    live = at < n * size * width
    true = tl.load(types + of_graph, mask=live, other=0)
    asked = live & (column >= num_types)
    bit = tl.load(adjacency + of_graph * n + column - num_types, mask=asked, other=0)
    is_set = tl.where(column < num_types, true == column, bit != 0)
    tl.store(out + at, tl.where(is_set, 1.0, 0.0), mask=live)


@triton.jit
def _chosen(num_nodes, b, v, INNER: tl.constexpr):
    """The nodes but the first and the last, or the last alone."""
    last = tl.load(num_nodes + b) - 1
    if INNER:
        return (v > 0) & (v < last)
    return v == last


@triton.jit(do_not_specialize=["by_node", "by_graph"], do_not_specialize_on_alignment=["num_nodes"])
def _sum_nodes_kernel(
    h, num_nodes, out, by_node, by_graph, H: tl.constexpr, NODES: tl.constexpr,
    COLUMNS: tl.constexpr, INNER: tl.constexpr,
):  # fmt: skip
    b = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    v = tl.arange(0, NODES)
    chosen = _chosen(num_nodes, b, v, INNER)
    states = rows(h + v.to(tl.int64) * by_node + b * by_graph, column, chosen, column < H)
    tl.store(out + b * H + column, tl.sum(states, 0), mask=column < H)


@triton.jit(do_not_specialize=["n", "size"], do_not_specialize_on_alignment=["num_nodes"])
def _spread_nodes_kernel(
    grad, num_nodes, out, n, size, H: tl.constexpr, NODES: tl.constexpr, COLUMNS: tl.constexpr,
    INNER: tl.constexpr,
):  # fmt: skip
    b = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    v = tl.arange(0, NODES)
    chosen = _chosen(num_nodes, b, v, INNER)
    given = tl.load(grad + b * H + column, mask=column < H, other=0.0)
    at = (v.to(tl.int64) * size + b)[:, None] * H + column[None, :]
    mask = (v < n)[:, None] & (column < H)[None, :]
    tl.store(out + at, tl.where(chosen[:, None], given[None, :], 0.0), mask=mask)


@triton.jit
def _pair_heard(adjacency, pairs, b, p, u, n, count):
    """Whether the receiver ``v`` of a pair has an edge from a node later than its sender."""
    pair = tl.load(pairs + p, mask=p < count, other=0)
    mask = (p < count)[:, None] & (u < n - 1)[None, :]
    row = b * n * n + pair // n * n
    edge = tl.load(adjacency + row[:, None] + u[None, :], mask=mask, other=0)
    return (edge != 0) & (u[None, :] > (pair % n)[:, None])


@triton.jit(
    do_not_specialize=["n", "size", "count"],
    do_not_specialize_on_alignment=["adjacency", "pairs"],
)
def _pair_weights_kernel(
    score, adjacency, pairs, out, n, size, count,
    PAIRS: tl.constexpr, NODES: tl.constexpr,
):  # fmt: skip
    """The weights of one graph: ones, or where there is a score its softmax."""
    b = tl.program_id(0).to(tl.int64)
    p, u = tl.arange(0, PAIRS), tl.arange(0, NODES)
    heard = _pair_heard(adjacency, pairs, b, p, u, n, count)
    if score is None:
        weight = tl.where(heard, 1.0, 0.0)
    else:
        own = tl.load(score + u.to(tl.int64) * size + b, mask=u < n - 1, other=0.0)
        scores = tl.where(heard, own[None, :], -1e30)
        weight = tl.where(heard, tl.exp(scores - tl.max(scores, 1)[:, None]), 0.0)
        total = tl.sum(weight, 1)
        weight = weight / tl.where(total > 0, total, 1.0)[:, None]
    at = (b * count + p)[:, None] * (n - 1) + u[None, :]
    tl.store(out + at, weight, mask=(p < count)[:, None] & (u < n - 1)[None, :])


@triton.jit(do_not_specialize=["n", "size", "count"])
def _pair_weights_backward_kernel(
    weight, grad, score_grad, n, size, count, PAIRS: tl.constexpr, NODES: tl.constexpr
):
    """The gradient of one graph's scores."""
    b = tl.program_id(0).to(tl.int64)
    p, u = tl.arange(0, PAIRS), tl.arange(0, NODES)
    at = (b * count + p)[:, None] * (n - 1) + u[None, :]
    mask = (p < count)[:, None] & (u < n - 1)[None, :]
    alpha = tl.load(weight + at, mask=mask, other=0.0)
    given = tl.load(grad + at, mask=mask, other=0.0)
    slope = alpha * (given - tl.sum(alpha * given, 1)[:, None])
    tl.store(score_grad + u.to(tl.int64) * size + b, tl.sum(slope, 0), mask=u < n - 1)


def node_rows(types: Tensor, adjacency: Tensor, num_types: int, bits: int) -> Tensor:
    """Of each node its type, one-hot, and the first so many bits of edges into it.
    ``[n, B, T + bits]``"""
    size, n = types.shape
    width = num_types + bits
    out = torch.empty(n, size, width, device=types.device, dtype=torch.float32)
    arguments = (types.contiguous(), _bytes(adjacency), out, n, size, num_types, width)
    grid = ceil_div(out.numel(), BLOCK), 1
    call(_rows_kernel, grid, arguments, {"WIDTH": BLOCK}, {"num_warps": 4})
    return out


def sum_nodes(h: Tensor, num_nodes: Tensor, inner: bool) -> Tensor:
    """The sum of states ``[n, B, H]`` over all nodes but the first and the last of each graph; or
    the last one's. ``[B, H]``"""
    n, size, hidden = h.shape
    if h.stride(2) != 1:
        h = h.contiguous()
    out = h.new_empty(size, hidden)
    grid, constants, options = _tile(n, size, hidden, inner)
    arguments = (h, num_nodes.contiguous(), out, *h.stride()[:2])
    call(_sum_nodes_kernel, grid, arguments, constants, options)
    return out


def spread_nodes(grad: Tensor, num_nodes: Tensor, n: int, inner: bool) -> Tensor:
    """The gradient of the states, from that of :func:`sum_nodes`. ``[n, B, H]``"""
    size, hidden = grad.shape
    out = grad.new_empty(n, size, hidden)
    grid, constants, options = _tile(n, size, hidden, inner)
    arguments = (grad.contiguous(), num_nodes.contiguous(), out, n, size)
    call(_spread_nodes_kernel, grid, arguments, constants, options)
    return out


def pair_weights(score: Tensor | None, adjacency: Tensor, pairs: Tensor) -> Tensor:
    """How much the receiver of each pair hears of every node but the last, over its edges from
    nodes later than the pair's sender: a softmax of scores ``[n - 1, B]``, or without scores one.
    ``[B, P, n - 1]``

    Args:
        score: Of nodes. ``[n - 1, B]``
        adjacency: bool ``[B, n, n]``
        pairs: ``v * n + u`` for sender ``u`` and receiver ``v``. ``[P]``
    """
    size, n, _ = adjacency.shape
    count = pairs.numel()
    out = torch.empty(size, count, n - 1, device=adjacency.device, dtype=torch.float32)
    arguments = (score, _bytes(adjacency), pairs.contiguous(), out, n, size, count)
    call(_pair_weights_kernel, (size, 1), arguments, *_pair_tile(count, n))
    return out


def pair_weights_backward(weight: Tensor, grad: Tensor) -> Tensor:
    """The gradient of the scores, from the weights and their gradient. ``[n - 1, B]``"""
    size, count, others = weight.shape
    out = weight.new_empty(others, size)
    arguments = (weight, grad.contiguous(), out, others + 1, size, count)
    call(_pair_weights_backward_kernel, (size, 1), arguments, *_pair_tile(count, others + 1))
    return out


def _bytes(mask: Tensor) -> Tensor:
    return mask.contiguous().view(torch.uint8)


def _tile(
    n: int, size: int, hidden: int, inner: bool
) -> tuple[tuple[int, int], dict[str, int], dict[str, int]]:
    columns = min(BLOCK, next_power_of_2(hidden))
    constants = {"H": hidden, "NODES": next_power_of_2(n), "COLUMNS": columns, "INNER": inner}
    return (size, ceil_div(hidden, columns)), constants, {"num_warps": 4}


def _pair_tile(count: int, n: int) -> tuple[dict[str, int], dict[str, int]]:
    return {"PAIRS": next_power_of_2(count), "NODES": next_power_of_2(n - 1)}, {"num_warps": 4}
