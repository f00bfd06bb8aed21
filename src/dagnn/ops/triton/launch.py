"""Launching the kernels: buffers, sizes of tiles, one launch or one per level."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor
from triton.runtime.errors import OutOfResources

from dagnn.ops.stack import Graph, LayerGradients, Saved
from dagnn.ops.triton.backward import backward_kernel
from dagnn.ops.triton.forward import forward_kernel
from dagnn.ops.triton.primitives import INTERPRETED

__all__ = ["launch_backward", "launch_forward"]


class Tiles(NamedTuple):
    """Sizes that a kernel is compiled for."""

    BM: int  # nodes of a tile
    BN: int  # hidden units of a program
    warps: int
    split: bool = True  # in fp32: keep both parts of the weights, or split them in every product


# In order of preference, by measurement on an H200; the first that fits is taken. The weights
# stay in shared memory for the whole launch, so wider operands mean smaller blocks.
_HALF = Tiles(16, 64, 8), Tiles(16, 32, 8), Tiles(16, 16, 8)
_SINGLE = Tiles(16, 32, 8), Tiles(16, 16, 8)
_DOUBLE = *_SINGLE, Tiles(16, 32, 8, split=False), Tiles(16, 16, 8, split=False)
CANDIDATES = {"bf16": _HALF, "fp16": _HALF, "tf32": _SINGLE, "fp32": _DOUBLE}
_chosen: dict[tuple[Any, ...], Tiles] = {}


def _candidates(hidden: int, precision: str) -> Iterator[Tiles]:
    for tiles in CANDIDATES[precision]:
        if max(16, triton.next_power_of_2(hidden)) >= tiles.BN:
            yield tiles._replace(warps=tiles.warps if hidden > 64 else 4)


def _pieces(hidden: int) -> tuple[int, int]:
    """A row of states is read in two pieces, so that 300 is 256 + 64 and not 512."""
    whole = max(16, triton.next_power_of_2(hidden))
    if whole <= 64 or hidden > whole * 3 // 4:
        return whole, 0
    return whole // 2, max(16, triton.next_power_of_2(hidden - whole // 2))


@lru_cache
def _processors(device: torch.device) -> int:
    """How many programs run at the same time for certain, or 0 for one launch per level."""
    if INTERPRETED or os.environ.get("DAGNN_LAUNCH") == "per-level":
        return 0
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def _launch(kernel: Any, tensors: list[Any], graph: Graph, phases: int, **flags: Any) -> None:
    """Run a kernel over all levels with the first tiles that fit the device."""
    if graph.level_ptr.size(1) == 1:
        return
    key = (kernel, graph.order.device, *flags.items())
    if key in _chosen:
        _launch_tiles(kernel, tensors, graph, phases, _chosen[key], **flags)
        return
    refusal: OutOfResources | None = None
    for tiles in _candidates(flags["H"], flags["PRECISION"]):
        try:
            _launch_tiles(kernel, tensors, graph, phases, tiles, **flags)
        except OutOfResources as error:
            refusal = error
        else:
            _chosen[key] = tiles
            return
    assert refusal is not None
    raise refusal


def _launch_tiles(
    kernel: Any, tensors: list[Any], graph: Graph, phases: int, tiles: Tiles, **flags: Any
) -> None:
    directions, nodes = graph.order.shape
    levels = graph.level_ptr.size(1) - 1
    stages = levels * phases
    k1, k2 = _pieces(flags["H"])
    blocks = triton.cdiv(flags["H"], tiles.BN)
    # A gated sum has two stages per level, and runs each in a launch of its own.
    groups = _processors(graph.order.device) // (directions * blocks) if phases == 1 else 0
    resident = groups > 0
    if not resident:
        # One launch per stage: enough programs for a level of average width.
        groups = min(64, triton.cdiv(triton.cdiv(nodes, levels), tiles.BM) * 2)
    counters = (directions, stages, 2) if resident else (1,)
    done = torch.zeros(counters, dtype=torch.int32, device=graph.order.device)
    options: dict[str, Any] = {"num_warps": tiles.warps}
    if not tiles.split:
        flags["PRECISION"] = "tf32x3"
    if resident:
        options["launch_cooperative_grid"] = True
    if kernel is backward_kernel:
        options["PADDED_BLOCKS"] = triton.next_power_of_2(blocks)
        tensors = [
            # Each block's share of dm · m; its size depends on the tiles.
            done.new_empty(directions, nodes, blocks, dtype=torch.float32) if t is SHARES else t
            for t in tensors
        ]
    for first, last in [(0, stages)] if resident else [(i, i + 1) for i in range(stages)]:
        kernel[(directions * groups * blocks,)](
            *tensors,
            done,
            nodes,
            graph.pred.size(1),
            levels,
            first,
            last,
            groups * blocks,
            K1=k1,
            K2=k2,
            BM=tiles.BM,
            BN=tiles.BN,
            WAIT=resident,
            PHASE=first % phases if phases > 1 and not resident else -1,
            **flags,
            **options,
        )


SHARES = object()


# Gated sums are not averages: they grow with the number of predecessors, and so do the errors of
# lower precision. Their products are in fp32 whatever the setting.
def launch_forward(
    aggregator: str,
    cell: str,
    gates: Tensor,
    parameters: list[Tensor],
    edge_score: Tensor | None,
    graph: Graph,
    precision: str,
    save: bool,
    last: bool,
) -> tuple[Tensor, Tensor, Saved]:
    """States ``[S, N, H]``; the same as the next layer's operand; what backward needs."""
    directions, nodes, width = gates.shape
    attention, gru = aggregator == "attention", cell == "gru"
    _, weight, bias_ih, *rest = parameters
    hidden, padded = weight.size(2), width // 4 if gru else width
    bias_hh = rest.pop(0) if gru else None
    h = weight.new_empty(directions, nodes, hidden)
    # In float32 also in half precision: in the gradient of the scores it must cancel exactly.
    message = h.new_empty(directions, nodes, padded)
    half = gates.dtype != h.dtype
    h_half = gates.new_empty(message.shape) if half and not last else h
    if attention:  # zeros, since nodes without predecessors have no log-sum-exp
        aggregate = h.new_zeros(directions, graph.pred.size(1) + nodes)
    else:
        aggregate = h.new_empty(directions, nodes, 2 * hidden)
    _launch(
        forward_kernel,
        [
            gates,
            weight,
            bias_ih,
            bias_hh,
            rest[0] if attention else None,
            edge_score,
            None if attention else torch.cat([rest[0], rest[2]], 1),
            None if attention else rest[1],
            h,
            h_half,
            message,
            aggregate,
            graph.level_ptr,
            graph.pred_ptr,
            graph.pred,
        ],
        graph,
        1 if attention else 2,
        H=hidden,
        HP=padded,
        GRU=gru,
        ATTENTION=attention,
        EDGES=edge_score is not None,
        SAVE=save,
        HALF=half and not last,
        PRECISION=precision if attention else "fp32",
    )
    return h, h_half, Saved(gates if gru else None, message, aggregate)


def launch_backward(
    aggregator: str,
    cell: str,
    grad: Tensor,
    h: Tensor,
    saved: Saved,
    parameters: list[Tensor],
    graph: Graph,
    precision: str,
) -> LayerGradients:
    attention, gru = aggregator == "attention", cell == "gru"
    directions, nodes, hidden = h.shape
    rest = parameters[4:] if gru else parameters[3:]
    d_state = None if gru and attention else torch.empty_like(h)
    d_gates = None if saved.gates is None else torch.empty_like(saved.gates)
    d_score = h.new_empty(directions, graph.pred.size(1)) if attention else None
    key_score = h.new_empty(directions, nodes) if attention else None
    d_pair = None if attention else h.new_empty(directions, nodes, 2 * hidden)
    _launch(
        backward_kernel,
        [
            grad.contiguous(),
            saved.gates,
            parameters[1],
            rest[0] if attention else None,
            None if attention else torch.cat([rest[0], rest[2]], 1),
            h,
            saved.message,
            saved.aggregate,
            d_state,
            d_gates,
            torch.empty_like(h),
            d_score,
            key_score,
            SHARES,
            d_pair,
            graph.level_ptr,
            graph.succ_ptr,
            graph.succ,
            graph.succ_slot,
        ],
        graph,
        1 if attention else 2,
        H=hidden,
        HP=saved.message.size(2),
        GRU=gru,
        ATTENTION=attention,
        PRECISION=precision if attention else "fp32",
    )
    gates = d_gates if d_gates is not None else d_state
    assert gates is not None
    return LayerGradients(gates, d_score, key_score, d_pair)
