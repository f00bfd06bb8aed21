r"""The level loop on the CPU: level slices of preallocated buffers, backward by hand.

With :math:`dm_v` the gradient of a message, the gradient of an attention score is local to its
edge, :math:`ds_{uv} = \alpha_{vu} \, dm_v \cdot (h_u - m_v)`, and a node pulls over its
successors: :math:`dh_u \mathrel{+}= \sum_v \alpha_{vu} dm_v + ds_{uv} w_2`.

A batch of DAGs has a few wide levels and a long tail of narrow ones. A wide level is worth a
call to BLAS, and threads share its rows. A run of narrow levels is one compiled call without a
step back to Python, and threads share the directions.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from dagnn.ops import cpu_kernels as kernels
from dagnn.ops.cpu_buffers import Backward, Forward
from dagnn.ops.cpu_memory import aligned, new_buffer
from dagnn.ops.cpu_threads import Threads
from dagnn.ops.stack import Graph, Layer, LayerGradients, Saved

__all__ = ["backward", "forward"]

NARROW = 64  # rows; up to here a compiled product is as fast as BLAS
SHORT = 8  # levels; a shorter run is not worth a turn of its own


def forward(
    cell: str, gates: Tensor, layer: Layer, graph: Graph, save: bool
) -> tuple[Tensor, Saved | None]:
    directions, nodes, _ = gates.shape
    hidden = layer.recurrent.size(2)
    gru, attention = cell == "gru", layer.key is not None
    # A linear cell's state is the sum of its products, so it stays where the sum is made.
    h = new_buffer(gates, directions, nodes, hidden) if gru else gates
    message = new_buffer(gates, directions, nodes, hidden)
    aggregate = new_buffer(
        gates, *(graph.pred.shape if attention else (directions, nodes, 2 * hidden))
    )
    array = _arrays_like(gates)
    buffers = Forward(
        gru=gru,
        attention=attention,
        gates=array(gates),
        h=array(h),
        message=array(message),
        alpha=array(aggregate if attention else None, 2),
        pair=array(None if attention else aggregate),
        key_score=array(new_buffer(gates, directions, nodes), 2),
        recurrent=array(layer.recurrent.mT),
        bias=array(layer.bias, 2),
        key=array(layer.key, 2),
        edge_score=array(layer.edge_score, 2),
        gate_map=array(None if layer.gate_map is None else layer.gate_map.mT),
        gate_bias=array(layer.gate_bias, 2),
        level_ptr=array(graph.level_ptr, 2),
        pred_ptr=array(graph.pred_ptr, 2),
        pred=array(graph.pred, 2),
    )
    sums = _sums(gates, hidden) if gru else gates  # what the recurrent product adds to
    with Threads() as threads:
        for turn in _turns(graph.level_ptr):
            for d, i, lo, hi in turn.wide:
                if hi - lo <= NARROW:
                    kernels.FORWARD.alone(buffers, kernels.LEVELS, d, i, i + 1, 0)
                    continue
                threads.rows(kernels.FORWARD, buffers, kernels.MESSAGES, d, lo, hi)
                if i:
                    sums[d, lo:hi].addmm_(message[d, lo:hi], layer.recurrent[d].t())
                threads.rows(kernels.FORWARD, buffers, kernels.STATES, d, lo, hi)
                if layer.gate_map is not None:
                    torch.mm(h[d, lo:hi], layer.gate_map[d].t(), out=aggregate[d, lo:hi])
                    threads.rows(kernels.FORWARD, buffers, kernels.GATED_MAPS, d, lo, hi)
            threads.levels(kernels.FORWARD, buffers, kernels.LEVELS, turn.first, turn.last)
    if not save:
        return h, None
    return h, Saved(gates if gru else None, message, aggregate)


def backward(
    cell: str,
    grad: Tensor,
    h: Tensor,
    saved: Saved,
    layer: Layer,
    graph: Graph,
    d_gates: Tensor,
) -> LayerGradients:
    directions, nodes, hidden = h.shape
    gru, attention = cell == "gru", layer.key is not None
    # A GRU's gates take over from the gradient of its state, whose place is then free.
    d_message = grad if gru else new_buffer(h, directions, nodes, aligned(hidden))
    d_score = new_buffer(h, *graph.pred.shape) if attention else None
    d_key_score = new_buffer(h, directions, nodes) if attention else None
    d_pair = None if attention else new_buffer(h, directions, nodes, 2 * hidden)
    array = _arrays_like(h)
    d_bias = np.zeros((directions, torch.get_num_threads(), d_gates.size(2)))
    buffers = Backward(
        gru=gru,
        attention=attention,
        grad=array(grad),
        d_gates=array(d_gates),
        d_bias=d_bias,
        d_message=array(d_message),
        d_score=array(d_score, 2),
        d_key_score=array(d_key_score, 2),
        d_pair=array(d_pair),
        gates=array(saved.gates),
        h=array(h),
        message=array(saved.message),
        alpha=array(saved.aggregate if attention else None, 2),
        pair=array(None if attention else saved.aggregate),
        recurrent=array(layer.recurrent),
        key=array(layer.key, 2),
        gate_map=array(layer.gate_map),
        level_ptr=array(graph.level_ptr, 2),
        pred_ptr=array(graph.pred_ptr, 2),
        succ_ptr=array(graph.succ_ptr, 2),
        succ=array(graph.succ, 2),
        succ_slot=array(graph.succ_slot, 2),
    )
    d_sums = _sums(d_gates, hidden) if gru else d_gates[:, :, :hidden]
    with Threads() as threads:
        for turn in reversed(_turns(graph.level_ptr)):
            threads.levels(kernels.BACKWARD, buffers, kernels.LEVELS, turn.first, turn.last)
            for d, i, lo, hi in reversed(turn.wide):
                if hi - lo <= NARROW:
                    kernels.BACKWARD.alone(buffers, kernels.LEVELS, d, i, i + 1, 0)
                    continue
                threads.rows(kernels.BACKWARD, buffers, kernels.PULL, d, lo, hi)
                if d_pair is not None:
                    assert layer.gate_map is not None
                    grad[d, lo:hi, :hidden].addmm_(d_pair[d, lo:hi], layer.gate_map[d])
                if gru:
                    threads.rows(kernels.BACKWARD, buffers, kernels.CELL, d, lo, hi)
                if i:
                    # A GRU's message has a direct gradient too, which CELL has put there.
                    d_message[d, lo:hi, :hidden].addmm_(
                        d_sums[d, lo:hi], layer.recurrent[d], beta=int(gru)
                    )
    bias = torch.from_numpy(d_bias.sum(1)).to(h.dtype) if gru else None
    return LayerGradients(d_gates, d_score, d_key_score, d_pair, bias)


def _sums(gates: Tensor, hidden: int) -> Tensor:
    """The blocks of a GRU's recurrent product."""
    r = aligned(hidden)
    return gates[:, :, r : r + 3 * hidden]


def _arrays_like(like: Tensor) -> Callable[..., Any]:
    """Tensors as numpy arrays; a missing one is empty, so that all kinds share compiled code."""
    missing = like.new_empty(0).numpy()

    def array(tensor: Tensor | None, dim: int = 3) -> Any:
        if tensor is None:
            return missing.reshape((0,) * dim)
        return tensor.detach().contiguous().numpy()

    return array


class _Turn(NamedTuple):
    """Wide levels of all directions, then a run of narrow ones in each."""

    wide: list[tuple[int, int, int, int]]  # direction, level, first row, last row
    first: np.ndarray  # [S] the run's first level
    last: np.ndarray  # [S]


def _turns(level_ptr: Tensor) -> list[_Turn]:
    turns = []
    runs = [_runs(np.diff(row)) for row in level_ptr.numpy()]
    for turn in zip_longest(*runs):
        wide = []
        first, last = (np.zeros(len(turn), dtype=np.int64) for _ in range(2))
        for d, run in enumerate(turn):
            if run is None:  # this direction is done
                continue
            start, first[d], last[d] = run
            ends = level_ptr[d, start : first[d] + 1].tolist()
            wide += [(d, int(start) + i, ends[i], ends[i + 1]) for i in range(len(ends) - 1)]
        turns.append(_Turn(wide, first, last))
    return turns


def _runs(width: np.ndarray) -> list[tuple[int, int, int]]:
    """``(i, j, k)``: levels i to j are wide, levels j to k narrow; and so on, to the end."""
    bounds = np.flatnonzero(np.diff(width > NARROW, prepend=True, append=True))
    # Where narrow runs start and end, in turn. Short ones stay among the wide levels, so that
    # the long ones of both directions meet.
    runs = [run for run in bounds.reshape(-1, 2).tolist() if run[1] - run[0] >= SHORT]
    ends = [0, *(end for _, end in runs)]
    turns = [(i, j, k) for i, (j, k) in zip(ends, runs, strict=False)]
    if ends[-1] < len(width) or not turns:
        turns.append((ends[-1], len(width), len(width)))
    return turns
