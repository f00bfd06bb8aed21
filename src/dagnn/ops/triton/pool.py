"""Pooling on the GPU: one launch forward and one backward, all tensors and directions at once.

Forward, a program pools a block of columns of one graph in one direction: it finds the graph's
rows in the (ascending) list of nodes by search, so that no other launch has to. Backward, a
program writes the gradient of a tile of nodes, pooled or not, so that no buffer has to be
cleared; each entry is written once. There are no atomics: sums have a fixed order.
"""

# mypy: disable-error-code="no-untyped-def"
# (Arguments of kernels are typed when they are compiled.)

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from dagnn.kernels.call import call, ceil_div, next_power_of_2

__all__ = ["backward", "backward_kernel", "forward", "forward_kernel"]

# Sizes and the alignment of indices differ from batch to batch: no compilation for each.
_ANY = {
    "do_not_specialize": ["nodes", "first_size", "second_size", "splits", "steps"],
    "do_not_specialize_on_alignment": ["first", "second", "rank", "batch"],
}
ROWS, WIDE_ROWS = 16, 32  # of a tile, forward and backward
PROBES = 128  # of a step of the search
PROGRAMS = 512  # with fewer, long graphs are split


@triton.jit
def _choose(tensors, at, COUNT: tl.constexpr):
    """``tensors[at]``, where only the running kernel knows :obj:`at`."""
    chosen = tensors[0]
    for i in tl.static_range(1, COUNT):
        if at == i:
            chosen = tensors[i]
    return chosen


@triton.jit
def _lower_bound(
    node_list, batch, graph, low, size, ALL: tl.constexpr, BATCHED: tl.constexpr, P: tl.constexpr
):
    """The place of the first listed node whose graph is :obj:`graph` or a later one."""
    high = size
    lane = tl.arange(0, P)
    while low < high:
        step = tl.cdiv(high - low, P)
        at = low + lane * step
        live = at < high
        node = at.to(tl.int64)
        if not ALL:
            node = tl.load(node_list + at, mask=live, other=0)
        if BATCHED:
            found = tl.load(batch + node, mask=live, other=0)
        else:
            found = tl.zeros((P,), dtype=tl.int64)
        # The nodes before are a prefix of the probes.
        before = tl.sum((live & (found < graph)).to(tl.int32), axis=0)
        high = tl.minimum(low + before * step, high)
        if before > 0:
            low += (before - 1) * step + 1
    return low


@triton.jit
def _pool_columns(
    values,  # [N, WIDTH]
    node_list,
    rank,  # [N] the row of each node, with RANKED
    start,
    end,
    length,  # of the whole graph
    column,
    pooled,  # where the columns go
    count,
    WIDTH: tl.constexpr,
    RANKED: tl.constexpr,
    ALL: tl.constexpr,
    MODE: tl.constexpr,
    SAVE: tl.constexpr,
    BM: tl.constexpr,
    BC: tl.constexpr,
):
    """Pool rows :obj:`start` to :obj:`end` of the list, in a block of columns."""
    MAX: tl.constexpr = MODE == "max"
    column_mask = column < WIDTH
    total = tl.full((BM, BC), -float("inf") if MAX else 0.0, dtype=tl.float32)
    ties = tl.zeros((BM, BC), dtype=tl.int32)
    nans = tl.zeros((BM, BC), dtype=tl.int32)
    for first in range(start, end, BM):
        at = first + tl.arange(0, BM)
        live = at < end
        row = at.to(tl.int64)
        if not ALL:
            row = tl.load(node_list + at, mask=live, other=0)
        if RANKED:
            row = tl.load(rank + row, mask=live, other=0)
        mask = live[:, None] & column_mask[None, :]
        at_value = values + row[:, None] * WIDTH + column[None, :]
        if MAX:
            value = tl.load(at_value, mask=mask, other=-float("inf")).to(tl.float32)
            # The maximum does not keep NaN by itself.
            nans += (value != value).to(tl.int32)
            top = tl.maximum(total, value)
            if SAVE:
                ties = tl.where(total == top, ties, 0) + (mask & (value == top)).to(tl.int32)
            total = top
        else:
            total += tl.load(at_value, mask=mask, other=0.0).to(tl.float32)
    if MAX:
        out = tl.max(total, axis=0)
        shared = tl.sum(tl.where(total == out[None, :], ties, 0), axis=0)
        lost = tl.sum(nans, axis=0)
        shared = tl.where(lost > 0, lost, shared)
        out = tl.where(lost > 0, float("nan"), tl.where(length > 0, out, 0.0))
    else:
        out = tl.sum(total, axis=0)
        shared = tl.zeros((BC,), dtype=tl.int32) + length
        if MODE == "mean":
            out /= tl.maximum(length, 1)
    tl.store(pooled + column, out, mask=column_mask)
    if SAVE:
        tl.store(count + column, shared, mask=column_mask)


@triton.jit(**_ANY)
def forward_kernel(
    tensors,  # x [N, C] if C > 0, then the states of each layer [S, N, H]
    first,  # [T] nodes of the first direction, ascending
    second,  # [U] nodes of the second direction
    rank,  # [S, N]
    batch,  # [N]
    pooled,  # [splits, B, S * (C + L * H)]
    count,  # [splits, B, S * (C + L * H)] the rows among which a gradient is shared
    nodes,
    first_size,
    second_size,
    splits,
    S: tl.constexpr,
    L: tl.constexpr,
    C: tl.constexpr,
    H: tl.constexpr,
    ALL: tl.constexpr,  # the lists are all nodes
    BATCHED: tl.constexpr,  # else all nodes are graph 0
    MODE: tl.constexpr,
    SAVE: tl.constexpr,
    P: tl.constexpr,
    BM: tl.constexpr,
    BC: tl.constexpr,
):
    X_BLOCKS: tl.constexpr = (C + BC - 1) // BC
    H_BLOCKS: tl.constexpr = (H + BC - 1) // BC
    BLOCKS: tl.constexpr = X_BLOCKS + L * H_BLOCKS
    WIDTH: tl.constexpr = C + L * H
    X: tl.constexpr = 1 if C > 0 else 0
    graph = tl.program_id(0) // splits
    split = tl.program_id(0) % splits
    direction = tl.program_id(1) // BLOCKS
    block = tl.program_id(1) % BLOCKS
    node_list = first
    size = first_size
    if direction > 0:
        node_list = second
        size = second_size
    start = _lower_bound(node_list, batch, graph, size * 0, size, ALL, BATCHED, P)
    end = _lower_bound(node_list, batch, graph + 1, start, size, ALL, BATCHED, P)
    length = end - start
    share = tl.cdiv(length, splits)
    start = tl.minimum(start + split * share, end)
    end = tl.minimum(start + share, end)
    graphs = tl.num_programs(0) // splits
    out = (split * graphs + graph).to(tl.int64) * (S * WIDTH) + direction * WIDTH
    lane = tl.arange(0, BC)
    if block < X_BLOCKS:
        _pool_columns(
            tensors[0], node_list, rank, start, end, length, block * BC + lane, pooled + out,
            count + out, C, False, ALL, MODE, SAVE, BM, BC,
        )  # fmt: skip
    else:
        layer = (block - X_BLOCKS) // H_BLOCKS
        column = (block - X_BLOCKS) % H_BLOCKS * BC + lane
        of = direction.to(tl.int64) * nodes
        out += C + layer * H
        _pool_columns(
            _choose(tensors, X + layer, X + L) + of * H, node_list, rank + of, start, end, length,
            column, pooled + out, count + out, H, True, ALL, MODE, SAVE, BM, BC,
        )  # fmt: skip


@triton.jit
def _contains(node_list, size, node, live, steps, ALL: tl.constexpr):
    """Whether each node is in the list."""
    found = live
    if not ALL:
        low = node * 0
        high = low + size
        for _ in range(steps):
            middle = (low + high) // 2
            searching = low < high
            listed = tl.load(node_list + middle, mask=searching, other=0)
            after = searching & (listed < node)
            high = tl.where(searching & (listed >= node), middle, high)
            low = tl.where(after, middle + 1, low)
        found = live & (low < size)
        found = found & (tl.load(node_list + low, mask=found, other=-1) == node)
    return found


@triton.jit
def _gradient(
    grad,
    pooled,
    count,
    at,  # [BM] where each node's graph begins in them
    values,  # [BM] pointers to the rows that were pooled
    row_mask,
    column,
    WIDTH: tl.constexpr,
    MODE: tl.constexpr,
):
    """What the nodes receive from one direction, in a block of columns."""
    mask = row_mask[:, None] & (column < WIDTH)[None, :]
    at = at[:, None] + column[None, :]
    out = tl.load(grad + at, mask=mask, other=0.0).to(tl.float32)
    if MODE != "sum":
        out /= tl.load(count + at, mask=mask, other=1).to(tl.float32)
    if MODE == "max":
        value = tl.load(values[:, None] + column[None, :], mask=mask, other=0.0)
        top = tl.load(pooled + at, mask=mask, other=0.0)
        out = tl.where((value == top) | (value != value), out, 0.0)
    return out


@triton.jit(**_ANY)
def backward_kernel(
    grad,  # [B, S * (C + L * H)]
    pooled,
    count,
    tensors,  # x [N, C] if C > 0, then the states of each layer [S, N, H]
    first,  # [T]
    second,  # [U]
    rank,  # [S, N]
    batch,  # [N]
    grad_x,  # [N, C]
    grad_states,  # [L, S, N, H]
    nodes,
    first_size,
    second_size,
    steps,  # that a search in the longer list takes
    S: tl.constexpr,
    L: tl.constexpr,
    C: tl.constexpr,
    H: tl.constexpr,
    ALL: tl.constexpr,
    BATCHED: tl.constexpr,
    MODE: tl.constexpr,
    NEED_X: tl.constexpr,
    BM: tl.constexpr,
    BC: tl.constexpr,
):
    X_BLOCKS: tl.constexpr = (C + BC - 1) // BC if NEED_X else 0
    H_BLOCKS: tl.constexpr = (H + BC - 1) // BC
    WIDTH: tl.constexpr = C + L * H
    X: tl.constexpr = 1 if C > 0 else 0
    node = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    live = node < nodes
    at = node * 0
    if BATCHED:
        at = tl.load(batch + node, mask=live, other=0) * (S * WIDTH)
    block = tl.program_id(1)
    lane = tl.arange(0, BC)
    if block < X_BLOCKS:
        # Both directions pool the same features: their gradients are added here.
        column = block * BC + lane
        values = tensors[0] + node * C
        found = _contains(first, first_size, node, live, steps, ALL)
        out = _gradient(grad, pooled, count, at, values, found, column, C, MODE)
        if S > 1:
            found = _contains(second, second_size, node, live, steps, ALL)
            out += _gradient(grad, pooled, count, at + WIDTH, values, found, column, C, MODE)
        mask = live[:, None] & (column < C)[None, :]
        tl.store(grad_x + node[:, None] * C + column[None, :], out, mask=mask)
    else:
        block -= X_BLOCKS
        column = block % H_BLOCKS * BC + lane
        direction = block // H_BLOCKS % S
        layer = block // (H_BLOCKS * S)
        node_list = first
        size = first_size
        if direction > 0:
            node_list = second
            size = second_size
        found = _contains(node_list, size, node, live, steps, ALL)
        of = direction.to(tl.int64) * nodes
        row = of + tl.load(rank + of + node, mask=live, other=0)
        values = _choose(tensors, X + layer, X + L) + row * H
        at += direction * WIDTH + C + layer * H
        out = _gradient(grad, pooled, count, at, values, found, column, H, MODE)
        row += layer.to(tl.int64) * S * nodes
        mask = live[:, None] & (column < H)[None, :]
        tl.store(grad_states + row[:, None] * H + column[None, :], out, mask=mask)


def _inputs(
    x: Tensor | None, states: list[Tensor], nodes: list[Tensor], rank: Tensor, batch: Tensor | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What both kernels take, tensors and compile-time constants."""
    tensors = [*([] if x is None else [x]), *states]
    dtype = torch.promote_types(tensors[0].dtype, tensors[-1].dtype)
    lists = [node.contiguous() for node in nodes] or [rank, rank]
    sizes = [len(node) for node in nodes] or [rank.size(1)] * 2
    arguments = {
        # Under autocast, features may have another type than states.
        "tensors": tuple(tensor.to(dtype).contiguous() for tensor in tensors),
        "first": lists[0],
        "second": lists[-1],
        "rank": rank.contiguous(),
        "batch": batch if batch is None else batch.contiguous(),
        "nodes": rank.size(1),
        "first_size": sizes[0],
        "second_size": sizes[-1],
    }
    width, hidden = 0 if x is None else x.size(1), states[0].size(2) if states else 0
    constants = {
        "S": rank.size(0),
        "L": len(states),
        "C": width,
        "H": hidden,
        "ALL": not nodes,
        "BATCHED": batch is not None,
        "BC": max(16, min(64, next_power_of_2(max(width, hidden)))),
    }
    return arguments, constants


def _call(
    kernel: Any, grid: tuple[int, int], arguments: dict[str, Any], constants: dict[str, Any]
) -> None:
    in_order = [arguments[name] for name in kernel.arg_names if name in arguments]
    call(kernel, grid, in_order, constants, {})


def _blocks(constants: dict[str, Any]) -> tuple[int, int]:
    """Blocks of columns: of x, and of the states of one layer."""
    size = constants["BC"]
    return ceil_div(constants["C"], size), ceil_div(constants["H"], size)


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
    arguments, constants = _inputs(x, states, nodes, rank, batch)
    directions, layers = constants["S"], constants["L"]
    of_x, of_states = _blocks(constants)
    blocks = directions * (of_x + layers * of_states)
    # Few graphs with many rows would leave most of the device idle.
    rows = max(arguments["first_size"], arguments["second_size"]) // max(1, batch_size)
    splits = max(1, min(PROGRAMS // max(1, batch_size * blocks), rows // (8 * ROWS)))
    width = directions * (constants["C"] + layers * constants["H"])
    like = arguments["tensors"][0]
    pooled = like.new_empty(splits, batch_size, width)
    count = like.new_empty(splits, batch_size, width, dtype=torch.int32) if save else pooled
    if batch_size:
        arguments |= {"pooled": pooled, "count": count, "splits": splits}
        constants |= {"MODE": mode, "SAVE": save, "P": PROBES, "BM": ROWS}
        _call(forward_kernel, (batch_size * splits, blocks), arguments, constants)
    if splits == 1:
        pooled, count = pooled.view(batch_size, width), count.view(batch_size, width)
    elif mode == "max":
        parts, pooled = pooled, pooled.amax(0)
        if save:
            attained = (parts == pooled) | (parts != parts)
            count = (count * attained).sum(0, dtype=torch.int32)
    else:
        pooled, count = pooled.sum(0), count[0].clone()
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
    arguments, constants = _inputs(x, states, nodes, rank, batch)
    directions, layers = constants["S"], constants["L"]
    grad_x = x.new_empty(x.shape) if x is not None and need_x else None
    grad_states = states[0].new_empty(layers, *states[0].shape) if states else None
    of_x, of_states = _blocks(constants)
    blocks = of_x * need_x + directions * layers * of_states
    tiles = ceil_div(arguments["nodes"], WIDE_ROWS)
    if tiles and blocks:
        longest = max(arguments["first_size"], arguments["second_size"])
        arguments |= {
            "grad": grad.contiguous(),
            "pooled": outputs[0],
            "count": outputs[-1],
            # Code that does not run must still compile.
            "grad_x": grad if grad_x is None else grad_x,
            "grad_states": grad if grad_states is None else grad_states,
            "steps": longest.bit_length(),
        }
        constants |= {"MODE": mode, "NEED_X": need_x, "BM": WIDE_ROWS}
        _call(backward_kernel, (tiles, blocks), arguments, constants)
    return grad_x, grad_states
