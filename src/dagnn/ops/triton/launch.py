"""Launching the kernels: buffers, sizes of tiles, one launch or one per level."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from triton.runtime import driver
from triton.runtime.errors import OutOfResources

from dagnn.kernels.call import INTERPRETED, call, ceil_div, next_power_of_2
from dagnn.ops.stack import Graph, LayerGradients, Saved
from dagnn.ops.triton.backward import backward_kernel
from dagnn.ops.triton.forward import forward_kernel
from dagnn.ops.triton.gather import Messages, activated, launch_finish

__all__ = [
    "CANDIDATES",
    "SHARED_MEMORY",
    "Tiles",
    "candidates",
    "launch_attention_backward",
    "launch_forward",
    "launch_gated_sum_backward",
    "level_precision",
    "memory_of",
    "pieces",
    "processors",
    "rows_in_pieces",
]


class Tiles(NamedTuple):
    """Sizes that a kernel is compiled for."""

    BM: int  # nodes of a tile
    BN: int  # hidden units of a program
    warps: int
    at_once: int = 2  # neighbours whose rows travel together
    early: bool = True  # backward: load gates before the wait, if they are in half precision
    resident: bool = True  # one launch for all levels, or one per stage, which needs less memory


# In order of preference, by measurement on an H200; the first that fits is taken. The weights
# stay in shared memory for the whole launch, so wider operands mean smaller blocks.
_HALF = Tiles(16, 64, 8), Tiles(16, 32, 8), Tiles(16, 16, 8)
_SINGLE = Tiles(16, 32, 8), Tiles(16, 16, 8)
CANDIDATES = {"bf16": _HALF, "fp16": _HALF, "tf32": _SINGLE, "bf16x3": _SINGLE, "fp32": _SINGLE}
SHARED_MEMORY = 227 * 1024  # of a multiprocessor, from compute capability 9.0 on
SHORT_ROW, LONG_ROW = 320, 768  # numbers
_chosen: dict[tuple[Any, ...], Tiles] = {}


def candidates(
    hidden: int, precision: str, phases: int, memory: int = SHARED_MEMORY
) -> Iterator[Tiles]:
    for resident in (True, False) if phases > 1 else (True,):
        for tiles in CANDIDATES[precision]:
            if max(16, next_power_of_2(hidden)) < tiles.BN:
                continue
            # To try what cannot fit would take minutes in the compiler.
            if phases > 1 and _two_stages_need(hidden, precision, tiles, resident) > memory:
                continue
            warps = tiles.warps if hidden > 64 else 4
            if hidden > SHORT_ROW:  # registers are few
                at_once = min(tiles.at_once, 2 if hidden <= LONG_ROW else 1)
                tiles = tiles._replace(at_once=at_once, early=False)
            yield tiles._replace(warps=warps, resident=resident)


def _two_stages_need(hidden: int, precision: str, tiles: Tiles, resident: bool) -> int:
    """Bytes of shared memory: the matrices of a cell, and in one launch for both stages those of
    gate and map; and a tile's operands, measured."""
    number, operands = (2, 2) if precision in ("bf16", "fp16") else (4, 4)
    columns = operands * tiles.BM + (5 if resident else 3) * tiles.BN
    return number * columns * math.prod(pieces(hidden))


def pieces(hidden: int) -> tuple[int, int]:
    """The width and the number of the pieces in which a row of states is read: see
    :mod:`~dagnn.ops.triton.pieces`."""
    width = min(64, max(16, next_power_of_2(hidden)))
    return width, ceil_div(hidden, width)


def rows_in_pieces(hidden: int) -> dict[str, int]:
    """The same, as constants of a kernel; and the number of parts of a row as an operand."""
    width, number = pieces(hidden)
    assert number < 128  # as kernels take it for granted; shared memory ends before
    return {"W": width, "P": number, "G": number.bit_count()}


@lru_cache
def memory_of(device: torch.device) -> int:
    """Bytes of shared memory that a program may have."""
    if INTERPRETED or not torch.cuda.is_available():
        return SHARED_MEMORY
    index = torch.cuda.current_device() if device.index is None else device.index
    return int(driver.active.utils.get_device_properties(index)["max_shared_mem"])


@lru_cache
def processors(device: torch.device) -> int:
    """How many programs run at the same time for certain, or 0 for one launch per level."""
    if INTERPRETED or os.environ.get("DAGNN_LAUNCH") == "per-level":
        return 0
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def _launch(kernel: Any, tensors: list[Any], graph: Graph, phases: int, **flags: Any) -> int:
    """Run a kernel over all levels with the first tiles that fit the device.

    Returns:
        The number of nodes up to which a level was narrow.
    """
    if graph.level_ptr.size(1) == 1:
        return 0
    types = tuple(t.dtype for t in tensors[:2] if t is not None)  # of gates, which decide `EARLY`
    key = (kernel is backward_kernel, graph.order.device, types, *flags.values())
    if key not in _chosen:
        _chosen[key] = _first_that_fits(kernel, tensors, graph, phases, **flags)
    return _launch_tiles(kernel, tensors, graph, phases, _chosen[key], False, **flags)


def _first_that_fits(
    kernel: Any, tensors: list[Any], graph: Graph, phases: int, **flags: Any
) -> Tiles:
    refusal: OutOfResources | None = None
    memory = memory_of(graph.order.device)
    for tiles in candidates(flags["H"], flags["PRECISION"], phases, memory):
        try:
            # Without work: a later stage may not fit where the first did, and kernels overwrite
            # what they read.
            _launch_tiles(kernel, tensors, graph, phases, tiles, True, **flags)
        except OutOfResources as error:
            refusal = error
        else:
            return tiles
    raise ValueError(
        f"expected a hidden size that fits the GPU's shared memory in {flags['PRECISION']}, got "
        f"{flags['H']}; use backend='reference', or a lower precision"
    ) from refusal


def _launch_tiles(
    kernel: Any,
    tensors: list[Any],
    graph: Graph,
    phases: int,
    tiles: Tiles,
    idle: bool,  # launch every kernel once, with nothing to do
    **flags: Any,
) -> int:
    directions, nodes = graph.order.shape
    levels = graph.level_ptr.size(1) - 1
    stages = levels * phases
    blocks = ceil_div(flags["H"], tiles.BN)
    groups = processors(graph.order.device) // (directions * blocks)
    resident = groups > 0 and tiles.resident
    if not resident:
        # One launch per stage: enough programs for a level of average width.
        groups = min(64, ceil_div(ceil_div(nodes, levels), tiles.BM) * 2)
    counters = (directions, stages, 2) if resident else (1,)
    done = torch.zeros(counters, dtype=torch.int32, device=graph.order.device)
    # Without software pipelining, which would load a tile's rows before the wait for them.
    options: dict[str, Any] = {"num_warps": tiles.warps, "num_stages": 1}
    if resident:
        options["launch_cooperative_grid"] = True
    early = {}
    if kernel is backward_kernel:
        gates = tensors[1] if flags["ATTENTION"] else None
        early["EARLY"] = tiles.early and gates is not None and gates.element_size() == 2
        shares = directions, nodes, ceil_div(blocks, 4) * 4  # padded
        tensors = [
            # Each block's share of dm · offset; its size depends on the tiles.
            done.new_zeros(shares, dtype=torch.float32) if t is SHARES else t
            for t in tensors
        ]
    if idle:
        ranges = [(i, i, i) for i in range(1 if resident else phases)]
    elif resident:
        ranges = [(0, stages, 0)]
    else:
        ranges = [(i, i + 1, i % phases) for i in range(stages)]
    for first, last, phase in ranges:
        constants = {
            **rows_in_pieces(flags["H"]),
            "BM": tiles.BM,
            "BN": tiles.BN,
            "AT_ONCE": tiles.at_once,
            **early,
            "WAIT": resident,
            "PHASE": -1 if resident or phases == 1 else phase,
            **flags,
        }
        sizes = nodes, graph.pred.size(1), levels, first, last, groups * blocks
        grid = directions * groups * blocks, 1
        call(kernel, grid, [*tensors, done, *sizes], constants, options)
    return groups * tiles.BM if resident else nodes


SHARES = object()


def level_precision(precision: str, hidden: int, bounded: bool) -> str:
    """Of products within the level loop: at least as many bits as asked for, of the large numbers.

    fp16 has TF32's 11 bits at twice the speed, and 3 more than bf16, but not their exponents. It
    suffices where rows are :obj:`bounded`: by 1, as a GRU's states and messages are under an
    attention, or by their own largest number, as gradients are
    (:mod:`~dagnn.ops.triton.backward`), and all rows of a gated sum. And where products are small,
    a level's time is that of its loads and waits: three instead of one are not seen.
    """
    if precision == "tf32" and hidden <= 64:
        return "fp32"
    return "fp16" if bounded and precision != "fp32" else precision


def launch_forward(
    aggregator: str,
    cell: str,
    gates: Tensor,
    parameters: list[Tensor],
    edge_score: Tensor | None,
    graph: Graph,
    precision: str,
    save: bool,
    operand: torch.dtype | None,
) -> tuple[Tensor, Tensor, Saved]:
    """States ``[S, N, H]``; the same as the next layer's operand, if it is to have a type of its
    own; what backward needs."""
    directions, nodes, width = gates.shape
    attention, gru = aggregator == "attention", cell == "gru"
    _, weight, bias_ih, *rest = parameters
    # An attention has no use for the fourth block of a GRU's gates, since it keeps none of them.
    blocks = (3 if attention else 4) if gru else 1
    hidden, padded = weight.size(2), width // blocks
    bias_hh = rest.pop(0) if gru else None
    h = weight.new_empty(directions, nodes, hidden)
    # In float32 also in half precision: sums and averages are.
    message = h.new_empty(directions, nodes, padded)
    h_half = h if operand is None else h.new_empty(message.shape, dtype=operand)
    aggregate = h.new_empty(graph.pred.shape if attention else (directions, nodes, 2 * hidden))
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
        HALF=operand is not None,
        PRECISION=level_precision(precision, hidden, gru or not attention),
    )
    if attention:  # messages and gates are formed anew
        return h, h_half, Saved(None, None, aggregate)
    return h, h_half, Saved(gates if gru else None, message, aggregate)


def launch_attention_backward(
    cell: str,
    grad: Tensor,
    h: Tensor,
    messages: Messages,
    gates: Tensor | None,
    parameters: list[Tensor],
    graph: Graph,
    precision: str,
) -> LayerGradients:
    """Gradients of a layer with attention. Those of a GRU's pre-activations take the place of
    :obj:`gates`, ``[S, N, 4, HP]``; those of messages take the place of the messages' offsets; and
    :obj:`grad` is consumed."""
    directions, nodes, hidden = h.shape
    key = parameters[-1]
    d_state = torch.empty_like(h) if gates is None else None
    d_message = messages.offset
    d_score = h.new_empty(directions, graph.pred.size(1))
    key_score = h.new_empty(directions, nodes)
    widest = _launch(
        backward_kernel,
        [
            grad,
            None if gates is None else activated(gates),
            parameters[1],
            key,
            None,
            h,
            messages.message,
            messages.anchor,
            messages.weight,
            d_state,
            gates,
            d_message,
            d_score,
            key_score,
            SHARES,
            None,
            graph.level_ptr,
            graph.succ_ptr,
            graph.succ,
            graph.succ_slot,
        ],
        graph,
        1,
        H=hidden,
        HP=messages.message.size(2),
        GRU=cell == "gru",
        ATTENTION=True,
        PRECISION=level_precision(precision, hidden, True),
    )
    if gates is None:
        assert d_state is not None
        return LayerGradients(d_state, d_score, key_score, None)
    launch_finish(grad, gates, messages, key, key_score, graph, widest)
    return LayerGradients(gates, d_score, key_score, None)


def launch_gated_sum_backward(
    cell: str,
    grad: Tensor,
    h: Tensor,
    saved: Saved,
    parameters: list[Tensor],
    graph: Graph,
    precision: str,
) -> LayerGradients:
    directions, nodes, hidden = h.shape
    assert saved.message is not None
    gate, _, value = parameters[-3:]
    d_state = torch.empty_like(h)
    d_gates = None if saved.gates is None else torch.empty_like(saved.gates)
    d_pair = h.new_empty(directions, nodes, 2 * hidden)
    _launch(
        backward_kernel,
        [
            grad,
            saved.gates,
            parameters[1],
            None,
            torch.cat([gate, value], 1),
            h,
            saved.message,
            None,
            saved.aggregate,
            d_state,
            d_gates,
            torch.empty_like(h),
            None,
            None,
            None,
            d_pair,
            graph.level_ptr,
            graph.succ_ptr,
            graph.succ,
            graph.succ_slot,
        ],
        graph,
        2,
        H=hidden,
        HP=saved.message.size(2),
        GRU=cell == "gru",
        ATTENTION=False,
        PRECISION=level_precision(precision, hidden, True),
    )
    return LayerGradients(d_state if d_gates is None else d_gates, None, None, d_pair)
