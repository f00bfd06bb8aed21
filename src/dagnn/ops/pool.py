"""Pooling as one operator: the rows of a graph's nodes, all layers and directions, to one vector.

``torch.ops.dagnn.pool`` is registered with a schema, a fake implementation and an autograd
formula, as ``torch.ops.dagnn.recurrence`` is. On an accelerator, it takes one launch where its
parts would take dozens.
"""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch import Tensor

__all__ = ["MODES", "common_dtype", "places", "pool", "tables"]

MODES = ("max", "mean", "sum")
_KERNELS = {"cpu": "dagnn.ops.cpu_pool", "triton": "dagnn.ops.triton.pool"}


def pool(
    x: Tensor | None,
    states: list[Tensor],
    nodes: list[Tensor],
    rank: Tensor,
    batch: Tensor | None,
    batch_size: int,
    mode: str,
    backend: str = "torch",
) -> Tensor:
    r"""Pool features and states of each graph's nodes, elementwise.

    Where several rows attain a maximum, they share its gradient equally.

    Args:
        x: Node features in the order of the nodes, or None to pool states alone. ``[N, C]``
        states: Per layer, level-major states. ``[S, N, H]``
        nodes: Per direction, the nodes to pool, ascending; or nothing, to pool all nodes.
        rank: Per direction, each node's position in level-major order. ``[S, N]``
        batch: The graph of every node, ascending; by default all nodes are graph 0. ``[N]``
        batch_size: The number of graphs :math:`B`.
        mode: ``"max"``, ``"mean"`` or ``"sum"``.
        backend: ``"torch"``, ``"cpu"``, or ``"triton"`` for tensors on a CUDA device.

    Returns:
        Per graph, direction by direction, layers 0 to L side by side; zero for a graph without
        nodes. ``[B, S * (C + L * H)]``
    """
    given = states if x is None else [x, *states]
    save = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in given)
    if not torch.compiler.is_compiling():
        pooled: Tensor = _Eager.apply(
            nodes, rank, batch, batch_size, mode, backend, save, x, *states
        )
        return pooled
    out: list[Tensor] = torch.ops.dagnn.pool(
        x, states, nodes, rank, batch, batch_size, mode, backend, save
    )
    return out[0]


class _Eager(torch.autograd.Function):
    """The operator's work without the operator, which takes a quarter of a millisecond itself."""

    @staticmethod
    def forward(
        ctx: Any,
        nodes: list[Tensor],
        rank: Tensor,
        batch: Tensor | None,
        batch_size: int,
        mode: str,
        backend: str,
        save: bool,
        x: Tensor | None,
        *states: Tensor,
    ) -> Tensor:
        out = _forward(x, [*states], nodes, rank, batch, batch_size, mode, backend, save)
        if save:
            ctx.nodes, ctx.mode, ctx.backend = nodes, mode, backend
            ctx.save_for_backward(x, rank, batch, *out, *states)
            ctx.num_outputs = len(out)
        return out[0]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, rank, batch, *rest = ctx.saved_tensors
        outputs, states = rest[: ctx.num_outputs], rest[ctx.num_outputs :]
        need_x = x is not None and ctx.needs_input_grad[7]
        # For second derivatives by operations that have them.
        backend = "torch" if torch.is_grad_enabled() else ctx.backend
        grad_x, grad_states = _backward_of(backend)(
            grad, x, states, ctx.nodes, rank, batch, outputs, ctx.mode, need_x
        )
        return *[None] * 7, grad_x, *(() if grad_states is None else grad_states.unbind())


def _kernels(backend: str) -> Any:
    # Imported lazily, since Triton is not there on every machine.
    return importlib.import_module(_KERNELS[backend])


def _forward(
    x: Tensor | None,
    states: list[Tensor],
    nodes: list[Tensor],
    rank: Tensor,
    batch: Tensor | None,
    batch_size: int,
    mode: str,
    backend: str,
    save: bool,
) -> list[Tensor]:
    """The pooled rows, then (with :obj:`save`) how many rows share each entry's gradient."""
    save = save and mode != "sum"
    forward = _kernels(backend).forward if backend in _KERNELS else _torch_forward
    out: list[Tensor] = forward(x, states, nodes, rank, batch, batch_size, mode, save)
    return out


_pool = torch.library.custom_op("dagnn::pool", _forward, mutates_args=())


@_pool.register_fake
def _(
    x: Tensor | None,
    states: list[Tensor],
    nodes: list[Tensor],
    rank: Tensor,
    batch: Tensor | None,
    batch_size: int,
    mode: str,
    backend: str,
    save: bool,
) -> list[Tensor]:
    given = states if x is None else [x, *states]
    width = sum(tensor.size(-1) for tensor in given)
    pooled = rank.new_empty(batch_size, rank.size(0) * width, dtype=common_dtype(x, states))
    count = [torch.empty_like(pooled, dtype=torch.int32)] if save and mode != "sum" else []
    return [pooled, *count]


def _backward_of(backend: str) -> Any:
    return _kernels(backend).backward if backend in _KERNELS else _torch_backward


@torch.library.custom_op("dagnn::pool_backward", mutates_args=())
def _pool_backward(
    grad: Tensor,
    x: Tensor | None,
    states: list[Tensor],
    nodes: list[Tensor],
    rank: Tensor,
    batch: Tensor | None,
    outputs: list[Tensor],
    mode: str,
    backend: str,
    need_x: bool,
) -> list[Tensor]:
    """Gradients of x (if needed), then of the states, all layers in one tensor."""
    grads = _backward_of(backend)(grad, x, states, nodes, rank, batch, outputs, mode, need_x)
    return [tensor for tensor in grads if tensor is not None]


@_pool_backward.register_fake
def _(
    grad: Tensor,
    x: Tensor | None,
    states: list[Tensor],
    nodes: list[Tensor],
    rank: Tensor,
    batch: Tensor | None,
    outputs: list[Tensor],
    mode: str,
    backend: str,
    need_x: bool,
) -> list[Tensor]:
    out = [x.new_empty(x.shape)] if x is not None and need_x else []
    return out + [state.new_empty(len(states), *state.shape) for state in states[:1]]


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    x, states, nodes, rank, batch, _, ctx.mode, ctx.backend, save = inputs
    if not save:
        raise RuntimeError("expected save=True for a call that is differentiated, got save=False")
    ctx.set_materialize_grads(False)
    ctx.sizes = len(states), len(nodes)
    ctx.save_for_backward(x, rank, batch, *states, *nodes, *output)


def _backward(ctx: Any, grads: list[Tensor | None]) -> tuple[Any, ...]:
    x, rank, batch, *rest = ctx.saved_tensors
    layers, lists = ctx.sizes
    states, nodes, outputs = rest[:layers], rest[layers : layers + lists], rest[layers + lists :]
    grad_x: Tensor | None = None
    grad_states: list[Tensor | None] = [None] * layers
    if grads[0] is not None:
        need_x = x is not None and ctx.needs_input_grad[0]
        out = torch.ops.dagnn.pool_backward(
            grads[0], x, states, nodes, rank, batch, outputs, ctx.mode, ctx.backend, need_x
        )
        grad_x = out[0] if need_x else None
        grad_states = list(out[-1].unbind()) if states else []
    return grad_x, grad_states, [None] * lists, *[None] * 6


_pool.register_autograd(_backward, setup_context=_setup_context)


def common_dtype(x: Tensor | None, states: list[Tensor]) -> torch.dtype:
    # Under autocast, features may have another type than states.
    given = states if x is None else [x, *states]
    return torch.promote_types(given[0].dtype, given[-1].dtype)


def places(
    nodes: list[Tensor], rank: Tensor, batch: Tensor | None, batch_size: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Of the rows to pool, direction by direction: node, row of the states, and group.

    Graph ``g`` is group ``g`` in the first direction and ``batch_size + g`` in the second, so
    that one call pools both.
    """
    directions, size = rank.shape
    if not nodes:
        nodes = [torch.arange(size, device=rank.device)] * directions
    node = torch.cat(nodes)
    rows, groups = [], []
    for d, own in enumerate(nodes):
        rows.append(rank[d].index_select(0, own) + d * size)
        graph = torch.zeros_like(own) if batch is None else batch.index_select(0, own)
        groups.append(graph + d * batch_size)
    return node, torch.cat(rows), torch.cat(groups)


def _reduce(rows: Tensor, group: Tensor, size: int, mode: str) -> Tensor:
    """Pool rows ``[V, W]`` by group ``[V]`` (ascending) to ``[size, W]``."""
    if rows.device.type == "cpu":
        # An order of magnitude faster there than segment_reduce.
        index = group.unsqueeze(-1).expand_as(rows)
        reduce = {"max": "amax"}.get(mode, mode)
        out = rows.new_zeros(size, rows.size(1))
        return out.scatter_reduce_(0, index, rows, reduce, include_self=False)
    # The kernels for sorted groups have a fixed order of sums.
    offsets = torch.searchsorted(group, torch.arange(size + 1, device=group.device))
    out = torch.segment_reduce(rows, mode, offsets=offsets, axis=0, unsafe=True)
    return out.masked_fill_(offsets.diff().unsqueeze(-1) == 0, 0.0)


def _attained(rows: Tensor, top: Tensor, group: Tensor) -> Tensor:
    """Where rows ``[V, W]`` are their group's maximum ``[size, W]``."""
    attained = rows == top.index_select(0, group)
    # A maximum that is NaN comes from the rows that are. (On an accelerator, asking would wait.)
    if top.device.type != "cpu" or bool(top.isnan().any()):
        attained |= rows.isnan()
    return attained


def _by_graph(groups: Tensor, directions: int) -> Tensor:
    """``[B, S * W]`` from ``[S * B, W]``"""
    size = groups.size(0) // directions
    out = groups.view(directions, size, groups.size(1)).transpose(0, 1)
    return out.reshape(size, directions * groups.size(1))


def _by_group(graphs: Tensor, directions: int) -> Tensor:
    """``[S * B, W]`` from ``[B, S * W]``"""
    size, width = graphs.size(0), graphs.size(1) // directions
    out = graphs.view(size, directions, width).transpose(0, 1)
    return out.reshape(directions * size, width)


def _torch_forward(
    x: Tensor | None,
    states: list[Tensor],
    nodes: list[Tensor],
    rank: Tensor,
    batch: Tensor | None,
    batch_size: int,
    mode: str,
    save: bool,
) -> list[Tensor]:
    directions = rank.size(0)
    node, row, group = places(nodes, rank, batch, batch_size)
    size = directions * batch_size
    dtype = common_dtype(x, states)
    shared = torch.ones(len(group), 1, device=group.device)
    pooled, counts = [], []
    for tensor, place in tables(x, states, node, row):
        rows = tensor.index_select(0, place).to(dtype)  # [V, C] or [V, H]
        pooled.append(_reduce(rows, group, size, mode))
        if save:
            if mode == "max":
                shared = _attained(rows, pooled[-1], group).to(torch.float32)
            counts.append(_reduce(shared, group, size, "sum").expand(size, rows.size(1)))
    out = [_by_graph(torch.cat(pooled, 1), directions)]
    if save:
        out.append(_by_graph(torch.cat(counts, 1).to(torch.int32), directions))
    return out


def _torch_backward(
    grad: Tensor,
    x: Tensor | None,
    states: list[Tensor],
    nodes: list[Tensor],
    rank: Tensor,
    batch: Tensor | None,
    outputs: list[Tensor],
    mode: str,
    need_x: bool,
) -> tuple[Tensor | None, Tensor | None]:
    # By hand, not by autograd: segment_reduce does not divide negative gradients between ties.
    directions = rank.size(0)
    node, row, group = places(nodes, rank, batch, len(grad))
    shares = _by_group(grad, directions)  # [S * B, C + L * H]
    if mode != "sum":
        shares = shares / _by_group(outputs[1], directions).clamp(min=1)
    top = _by_group(outputs[0], directions)
    grad_x = x.new_zeros(x.shape) if x is not None and need_x else None
    grad_states = states[0].new_zeros(len(states), *states[0].shape) if states else None
    low = 0
    for i, (tensor, place) in enumerate(tables(x, states, node, row), start=x is None):
        columns = slice(low, low + tensor.size(1))
        low += tensor.size(1)
        if i == 0 and not need_x:
            continue
        received = shares[:, columns].index_select(0, group).to(tensor.dtype)
        if mode == "max":
            attained = _attained(tensor.index_select(0, place), top[:, columns], group)
            received.masked_fill_(~attained, 0.0)
        if i == 0:
            # A node may be pooled in both directions.
            assert grad_x is not None
            grad_x.index_add_(0, place, received)
        else:
            assert grad_states is not None
            grad_states[i - 1].flatten(0, 1).index_copy_(0, place, received)
    return grad_x, grad_states


def tables(
    x: Tensor | None, states: list[Tensor], node: Tensor, row: Tensor
) -> list[tuple[Tensor, Tensor]]:
    """The tensors to pool, directions one below the other, and which of their rows."""
    features = [] if x is None else [(x, node)]
    return features + [(state.flatten(0, 1), row) for state in states]
