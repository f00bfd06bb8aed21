"""Pooling on the CPU: each row is read where it is, once forward and once for its gradient.

Threads share graphs. A node is pooled with its own graph, in whichever direction, so that no two
threads write to one row, and sums have a fixed order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numba import njit, prange
from torch import Tensor

from dagnn.ops.cpu_memory import new_buffer
from dagnn.ops.cpu_products import COMPILED
from dagnn.ops.cpu_threads import Kernel, Threads
from dagnn.ops.pool import MODES, common_dtype, places, tables

__all__ = ["backward", "forward"]

# Sums are not reordered, and NaN is looked for.
_PLAIN = {**COMPILED, "fastmath": {"contract"}}
MAX, MEAN, SUM = range(len(MODES))
FORWARD, BACKWARD = 0, 1


class _Arrays(NamedTuple):
    """One of the tensors that are pooled, and what becomes of it."""

    mode: int
    table: Any  # [R, W]
    place: Any  # [V] rows of the table, by direction and graph
    ptr: Any  # [S * B + 1] where those of each direction and graph begin
    at: int  # the first column of
    pooled: Any  # [B, S, C + L * H]
    count: Any  # [B, S, C + L * H] how many rows share each entry's gradient; or empty
    grad: Any  # [B, S, C + L * H] backward
    out: Any  # [R, W] backward: the gradient of the table, zero at first


@njit(**_PLAIN)
def _attains(value: Any, top: Any) -> Any:
    # A maximum that is NaN comes from the rows that are.
    return (value == top) | (value != value)


@njit(**_PLAIN)
def _reduce(b: _Arrays, graph: int, d: int, first: int, last: int) -> None:
    to = b.at + b.table.shape[1]
    pooled = b.pooled[graph, d, b.at : to]
    for j in range(pooled.shape[0]):
        pooled[j] = 0
    for i in range(first, last):
        row = b.table[b.place[i]]
        if b.mode == MAX and i > first:
            for j in range(row.shape[0]):
                larger = (row[j] > pooled[j]) | (row[j] != row[j])
                pooled[j] = row[j] if larger else pooled[j]
        else:
            for j in range(row.shape[0]):
                pooled[j] += row[j]
    if b.mode == MEAN:
        rows = pooled.dtype.type(max(last - first, 1))
        for j in range(pooled.shape[0]):
            pooled[j] /= rows
    if b.count.shape[0] == 0:
        return
    count = b.count[graph, d, b.at : to]
    for j in range(count.shape[0]):
        count[j] = 0 if b.mode == MAX else last - first
    if b.mode == MAX:
        for i in range(first, last):
            row = b.table[b.place[i]]
            for j in range(row.shape[0]):
                count[j] += np.int32(_attains(row[j], pooled[j]))


@njit(**_PLAIN)
def _spread(b: _Arrays, graph: int, d: int, first: int, last: int) -> None:
    to = b.at + b.table.shape[1]
    grad, top = b.grad[graph, d, b.at : to], b.pooled[graph, d, b.at : to]
    if b.mode != SUM and last > first:
        count = b.count[graph, d, b.at : to]
        for j in range(grad.shape[0]):
            grad[j] /= grad.dtype.type(count[j])
    for i in range(first, last):
        row, out = b.table[b.place[i]], b.out[b.place[i]]
        if b.mode == MAX:
            for j in range(row.shape[0]):
                out[j] += grad[j] if _attains(row[j], top[j]) else out.dtype.type(0)
        else:
            for j in range(row.shape[0]):
                out[j] += grad[j]


@njit(**_PLAIN)
def _pool(b: _Arrays, stage: int, _: int, lo: int, hi: int, thread: int) -> None:
    graphs, directions, _width = b.pooled.shape
    for graph in range(lo, hi):
        for d in range(directions):
            group = d * graphs + graph
            first, last = b.ptr[group], b.ptr[group + 1]
            if stage == FORWARD:
                _reduce(b, graph, d, first, last)
            else:
                _spread(b, graph, d, first, last)


@njit(**{**_PLAIN, "parallel": True})
def _share(b: _Arrays, stage: int, d: Any, lo: Any, hi: Any) -> None:
    for thread in prange(d.shape[0]):
        _pool(b, stage, d[thread], lo[thread], hi[thread], np.int64(thread))


_POOL = Kernel(_pool, _share)


def forward(
    x: Tensor | None,
    states: list[Tensor],
    nodes: list[Tensor],
    rank: Tensor,
    batch: Tensor | None,
    batch_size: int,
    mode: str,
    save: bool,
) -> list[Tensor]:
    """The pooled rows, and with :obj:`save` how many rows share each entry's gradient."""
    dtype = common_dtype(x, states)
    node, row, group = places(nodes, rank, batch, batch_size)
    given = tables(x, states, node, row)
    width = rank.size(0) * sum(table.size(1) for table, _ in given)
    pooled = torch.empty(batch_size, width, dtype=dtype)
    count = torch.empty(batch_size if save else 0, width, dtype=torch.int32)
    _run(FORWARD, mode, given, [pooled[:0]] * len(given), group, rank, pooled, count, pooled[:0])
    return [pooled, count] if save else [pooled]


def backward(
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
    """Gradients of x ``[N, C]`` (if needed) and of the states ``[L, S, N, H]``."""
    pooled = outputs[0]
    count = torch.empty(0, pooled.size(1), dtype=torch.int32) if mode == "sum" else outputs[1]
    node, row, group = places(nodes, rank, batch, len(grad))
    given = tables(x, states, node, row)
    grad_x = grad_states = None
    if x is not None and need_x:
        grad_x = torch.zeros(x.shape, dtype=pooled.dtype)
    out = [] if x is None else [grad_x]
    if states:
        grad_states = new_buffer(states[0], len(states), *states[0].shape).zero_()
        out += grad_states.flatten(1, 2).unbind()
    share = grad.clone(memory_format=torch.contiguous_format)  # it is divided among ties
    _run(BACKWARD, mode, given, out, group, rank, pooled, count, share)
    if x is not None and grad_x is not None:
        grad_x = grad_x.to(x.dtype)
    return grad_x, grad_states


def _run(
    stage: int,
    mode: str,
    given: list[tuple[Tensor, Tensor]],
    out: Sequence[Tensor | None],
    group: Tensor,
    rank: Tensor,
    pooled: Tensor,
    count: Tensor,
    grad: Tensor,
) -> None:
    directions, graphs = rank.size(0), len(pooled)
    ptr = torch.searchsorted(group, torch.arange(directions * graphs + 1))
    width = pooled.size(1) // directions
    pooled_array, count_array, grad_array = (
        tensor.view(len(tensor), directions, width).numpy() for tensor in (pooled, count, grad)
    )
    at = 0
    with Threads() as threads:
        bounds = graphs * np.arange(threads.count + 1) // threads.count
        for (table, place), table_out in zip(given, out, strict=True):
            at, here = at + table.size(1), at
            if table_out is None:  # no gradient is needed
                continue
            rows = table.detach().to(pooled.dtype).contiguous()
            arrays = _Arrays(
                mode=MODES.index(mode),
                table=rows.numpy(),
                place=place.numpy(),
                ptr=ptr.numpy(),
                at=here,
                pooled=pooled_array,
                count=count_array,
                grad=grad_array,
                out=table_out.numpy(),
            )
            threads.levels(_POOL, arrays, stage, bounds[:-1], bounds[1:])
