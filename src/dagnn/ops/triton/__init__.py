r"""The level loop on the GPU: all levels and directions of a layer in one persistent kernel.

One cooperative launch holds as many programs as the device has multiprocessors; a level starts
when the tiles of the level before have arrived (a counter per level, see
:mod:`~dagnn.ops.triton.primitives`). Where a cooperative launch is impossible, and in Triton's
interpreter (which runs programs one after the other), one launch per level does the same work.

Implements :class:`dagnn.ops.stack.Backend`.
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from dagnn.ops.stack import Graph, Layer, LayerGradients, Saved
from dagnn.ops.triton.backward import backward_kernel
from dagnn.ops.triton.forward import forward_kernel
from dagnn.ops.triton.primitives import INTERPRETED

__all__ = ["backward", "forward"]


class _Tiles(NamedTuple):
    """Sizes that a kernel is compiled for."""

    K1: int  # a row of states is read in two pieces, so that 300 is 256 + 64 and not 512
    K2: int
    BM: int  # nodes of a tile
    BN: int  # hidden units of a program
    warps: int


@lru_cache
def _tiles(hidden: int, precision: str, operands: int) -> _Tiles:
    """:obj:`operands` is how many ``[H, BN]`` blocks of weights a program keeps."""
    k1 = max(16, triton.next_power_of_2(hidden))
    k2 = 0
    if k1 > 64 and hidden <= k1 * 3 // 4:
        k1 //= 2
        k2 = max(16, triton.next_power_of_2(hidden - k1))
    # The weights stay in shared memory (about 227 KB on an H100 or H200) for the whole launch.
    size = 2 if precision in ("bf16", "fp16") else 4
    bn = 32 if hidden > 16 else 16
    while bn > 16 and operands * (k1 + k2) * bn * size > 190_000:
        bn //= 2
    return _Tiles(k1, k2, 16, bn, 8 if hidden > 64 else 4)


@lru_cache
def _processors(device: torch.device) -> int:
    """How many programs run at the same time for certain, or 0 for one launch per level."""
    if INTERPRETED or os.environ.get("DAGNN_LAUNCH") == "per-level":
        return 0
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def _launch(
    kernel: Any, tensors: list[Tensor | None], graph: Graph, phases: int, tiles: _Tiles, **flags: Any
) -> None:
    """Run a kernel over all stages: in one launch if all its programs can run at once."""
    directions, nodes = graph.order.shape
    levels = graph.level_ptr.size(1) - 1
    blocks = triton.cdiv(int(flags["H"]), tiles.BN)
    stages = levels * phases
    if stages == 0:
        return
    resident = _processors(graph.order.device) // (directions * blocks)
    done = torch.zeros(
        directions if resident else 0, stages, dtype=torch.int32, device=graph.order.device
    )
    # One launch per stage: enough programs for a level of average width.
    groups = resident or min(64, triton.cdiv(triton.cdiv(nodes, levels), tiles.BM) * 2)
    workers = groups * blocks
    spans = [(0, stages)] if resident else [(i, i + 1) for i in range(stages)]
    options: dict[str, Any] = {"num_warps": tiles.warps}
    if resident:
        options["launch_cooperative_grid"] = True
    for first, last in spans:
        kernel[(directions * workers,)](
            *tensors,
            done,
            nodes,
            graph.pred.size(1),
            levels,
            first,
            last,
            workers,
            **flags,
            K1=tiles.K1,
            K2=tiles.K2,
            BM=tiles.BM,
            BN=tiles.BN,
            WAIT=bool(resident),
            **options,
        )


def forward(
    cell: str, gates: Tensor, layer: Layer, graph: Graph, precision: str, save: bool
) -> tuple[Tensor, Saved | None]:
    directions, nodes, _ = gates.shape
    hidden = layer.recurrent.size(2)
    attention, gru = layer.key is not None, cell == "gru"
    edges = graph.pred.size(1)
    h = gates.new_empty(directions, nodes, hidden)
    message = torch.empty_like(h) if save else h.new_empty(0)
    if attention:
        aggregate = h.new_empty(directions, edges + nodes) if save else h.new_empty(0)
    else:
        aggregate = h.new_empty(directions, nodes, 2 * hidden)
    _launch(
        forward_kernel,
        [
            gates,
            layer.recurrent,
            layer.key,
            layer.edge_score,
            layer.gate_map,
            layer.gate_bias,
            h,
            message,
            aggregate,
            graph.level_ptr,
            graph.pred_ptr,
            graph.pred,
        ],
        graph,
        1 if attention else 2,
        _tiles(hidden, precision, (4 if gru else 1) + (0 if attention else 2)),
        H=hidden,
        GRU=gru,
        ATTENTION=attention,
        EDGES=layer.edge_score is not None,
        SAVE=save,
        PRECISION=precision,
    )
    if not save:
        return h, None
    return h, Saved(gates if gru else None, message, aggregate)


def backward(
    cell: str, grad: Tensor, h: Tensor, saved: Saved, layer: Layer, graph: Graph, precision: str
) -> LayerGradients:
    directions, nodes, hidden = h.shape
    attention, gru = layer.key is not None, cell == "gru"
    tiles = _tiles(hidden, precision, (3 if gru else 1) + (0 if attention else 2))
    blocks = triton.cdiv(hidden, tiles.BN)
    d_state = None if gru and attention else torch.empty_like(h)
    d_gates = h.new_empty(directions, nodes, 4 * hidden) if gru else None
    d_score = h.new_empty(directions, graph.pred.size(1)) if attention else None
    key_score = h.new_empty(directions, nodes) if attention else None
    shares = h.new_empty(directions, nodes, blocks) if attention else None
    d_pair = None if attention else h.new_empty(directions, nodes, 2 * hidden)
    _launch(
        backward_kernel,
        [
            grad,
            saved.gates,
            layer.recurrent,
            layer.key,
            layer.gate_map,
            h,
            saved.message,
            saved.aggregate,
            d_state,
            d_gates,
            torch.empty_like(h),
            d_score,
            key_score,
            shares,
            d_pair,
            graph.level_ptr,
            graph.succ_ptr,
            graph.succ,
            graph.succ_slot,
        ],
        graph,
        1 if attention else 2,
        tiles,
        H=hidden,
        PADDED_BLOCKS=triton.next_power_of_2(blocks),
        GRU=gru,
        ATTENTION=attention,
        PRECISION=precision,
    )
    d_input = d_gates if d_gates is not None else d_state
    assert d_input is not None
    return LayerGradients(d_input, d_score, key_score, d_pair)
