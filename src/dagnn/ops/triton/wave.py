"""Two layers at a time, as a wavefront: when, with which tiles, and the launches.

A level of few nodes takes as long as its latency, so what counts is how many levels follow one
another. The wavefront has about half as many as two layers one after the other. In exchange its
programs are shared out to three roles, and the upper layer's input product is not one large one:
levels of many nodes take longer.
"""

from __future__ import annotations

import math
import os
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dagnn.kernels.call import call, ceil_div
from dagnn.ops.stack import Graph, LayerGradients, Saved
from dagnn.ops.triton import launch
from dagnn.ops.triton.gather import Messages, activated, launch_finish
from dagnn.ops.triton.launch import Tiles
from dagnn.ops.triton.wave_backward import wave_backward_kernel
from dagnn.ops.triton.wave_forward import wave_forward_kernel

__all__ = [
    "UpperAndLower",
    "forward_precision",
    "launch_wave_backward",
    "launch_wave_forward",
    "wave_tiles",
]

ROLES = 3  # the two layers, and the product between them
# Layers run as a wavefront if there are at least so many levels, and one of average width takes
# its programs at most so many turns. (Layer by layer there are three times as many programs for
# it, twice.) By measurement on an H200: with two turns, both take about as long.
LEVELS = 12
TURNS = 1.5
WISHES = "auto", "always", "never"


def wave_tiles(aggregator: str, graph: Graph, hidden: int, precision: str) -> Tiles | None:
    """The tiles of a wavefront with products of some precision, or None where layers run one after
    the other.

    By depth and width, unless ``DAGNN_WAVEFRONT`` has them ``never``, or ``always`` where they are
    possible.
    """
    wish = os.environ.get("DAGNN_WAVEFRONT", "auto")
    if wish not in WISHES:
        raise ValueError(f"expected DAGNN_WAVEFRONT to be one of {', '.join(WISHES)}, got {wish!r}")
    directions, nodes = graph.order.shape
    levels = graph.level_ptr.size(1) - 1
    processors = launch.processors(graph.order.device)
    if aggregator != "attention" or wish == "never" or levels == 0:
        return None
    tiles = _tiles_that_fit(hidden, precision, directions, processors, graph.order.device)
    if tiles is None or wish == "always":
        return tiles
    if precision == "bf16x3" and _rows_are_long(hidden):  # would spill 1 kB a thread
        return None
    at_once = tiles.BM * _groups(hidden, tiles, directions, processors)  # nodes
    return tiles if levels >= LEVELS and nodes <= TURNS * levels * at_once else None


@lru_cache
def _tiles_that_fit(
    hidden: int, precision: str, directions: int, processors: int, device: torch.device
) -> Tiles | None:
    if precision == "fp32" and _rows_are_long(hidden):  # by trial, most of a tile would be spilled
        return None
    groups = {
        tiles: _groups(hidden, tiles, directions, processors)
        for tiles in launch.candidates(hidden, precision, 1)
        if _memory_needed(hidden, precision, tiles) <= launch.memory_of(device)
    }
    # Two groups of programs are better than one with tiles that are better otherwise.
    best = max(groups, key=lambda tiles: min(groups[tiles], 2), default=None)
    one_launch_per_step = processors == 0
    return best if best is not None and (groups[best] or one_launch_per_step) else None


def _groups(hidden: int, tiles: Tiles, directions: int, processors: int) -> int:
    """How many programs a block of units has, in each role and direction."""
    return processors // (ROLES * directions * ceil_div(hidden, tiles.BN))


def _rows_are_long(hidden: int) -> bool:
    return math.prod(launch.pieces(hidden)) >= 512


def _memory_needed(hidden: int, precision: str, tiles: Tiles) -> int:
    """Bytes of shared memory: three matrices for the whole launch, and an operand of a tile (in
    fp32 both of its parts). By trial: compilers never took more."""
    width, pieces = launch.pieces(hidden)
    number = 2 if precision in ("bf16", "fp16") else 4
    weights = 3 * width * pieces * tiles.BN * number
    return weights + (2 if precision == "fp32" else 1) * tiles.BM * width * pieces * 4 + 2048


def _launch(
    kernel: Any,
    tensors: list[Any],
    graph: Graph,
    steps: int,
    alone: range,  # steps at level 0, which is often wide, and waits for nobody
    tiles: Tiles,
    **flags: Any,
) -> None:
    directions, nodes = graph.order.shape
    levels = graph.level_ptr.size(1) - 1
    blocks = ceil_div(flags["H"], tiles.BN)
    processors = launch.processors(graph.order.device)
    if processors:
        groups = ROLES * _groups(flags["H"], tiles, directions, processors)
        together = range(alone.stop, steps) if alone.start == 0 else range(alone.start)
        spans = [*(range(step, step + 1) for step in alone), together]
    else:
        groups = min(64, ceil_div(ceil_div(nodes, levels), tiles.BM) * 2)
        spans = [range(step, step + 1) for step in range(steps)]
    constants = {
        **launch.rows_in_pieces(flags["H"]),
        "BM": tiles.BM,
        "BN": tiles.BN,
        "AT_ONCE": tiles.at_once,
        **flags,
    }
    if kernel is wave_backward_kernel:
        gates = tensors[4]
        constants["EARLY"] = tiles.early and gates is not None and gates[0].element_size() == 2
    done = torch.zeros(directions, steps, 2, dtype=torch.int32, device=graph.order.device)
    for span in sorted(filter(len, spans), key=lambda span: span.start):
        # Without software pipelining, which would load a tile's rows before the wait for them.
        options: dict[str, Any] = {"num_warps": tiles.warps, "num_stages": 1}
        workers = groups * blocks
        if len(span) > 1:  # programs wait for one another: all must run at once
            options["launch_cooperative_grid"] = True
            workers = groups // ROLES * blocks
        sizes = nodes, graph.pred.size(1), levels, span.start, span.stop, workers
        grid = directions * ROLES * workers, 1
        call(kernel, grid, [*tensors, done, *sizes], constants, options)


def forward_precision(precision: str, hidden: int, bounded: bool) -> str:
    """Of the products forward. The one between the layers is to be as exact as the large product
    that it stands for (see :mod:`~dagnn.ops.triton.operands`), and all roles share its code."""
    level = launch.level_precision(precision, hidden, bounded)
    suffices = level == "fp32" or (bounded and precision != "tf32")
    return level if suffices else "bf16x3"


def launch_wave_forward(
    cell: str,
    gates: Tensor,
    parameters: list[list[Tensor]],
    edge_scores: list[Tensor | None],
    graph: Graph,
    precision: str,
    save: bool,
    tiles: Tiles,
) -> tuple[list[Tensor], list[Saved]]:
    """States ``[S, N, H]`` of a lower layer, whose input product is in :obj:`gates` (it is
    consumed), and of the upper one; and what backward needs."""
    directions, nodes, width = gates.shape
    gru = cell == "gru"
    weights = tuple(layer[1] for layer in parameters)
    hidden = weights[0].size(2)
    states = tuple(w.new_empty(directions, nodes, hidden) for w in weights)
    aggregates = tuple(w.new_empty(graph.pred.shape) for w in weights)
    _launch(
        wave_forward_kernel,
        [
            gates,
            parameters[1][0],
            weights,
            tuple(layer[2] for layer in parameters),
            tuple(layer[3] for layer in parameters) if gru else None,
            tuple(layer[-1] for layer in parameters),
            None if edge_scores[0] is None else tuple(edge_scores),
            states,
            aggregates,
            graph.level_ptr,
            graph.pred_ptr,
            graph.pred,
        ],
        graph,
        graph.level_ptr.size(1) + 1,
        range(3),
        tiles,
        H=hidden,
        HP=width // 3 if gru else width,
        GRU=gru,
        EDGES=edge_scores[0] is not None,
        SAVE=save,
        PRECISION=forward_precision(precision, hidden, gru),
    )
    return list(states), [Saved(None, None, aggregate) for aggregate in aggregates]


class UpperAndLower(NamedTuple):
    """What the backward pass of two layers reads and replaces, each of the upper layer first."""

    parameters: tuple[list[Tensor], ...]
    grads: tuple[Tensor, ...]  # of the states, from outside; the lower one is consumed
    states: tuple[Tensor, ...]
    messages: tuple[Messages, ...]  # gradients take the place of offsets
    gates: tuple[Tensor, ...] | None  # of a GRU; gradients of pre-activations take their place


def launch_wave_backward(
    cell: str, layers: UpperAndLower, graph: Graph, precision: str, tiles: Tiles
) -> list[LayerGradients]:
    """Gradients of two layers, of the upper one first."""
    directions, nodes, hidden = layers.states[0].shape
    edges = graph.pred.size(1)
    gru = cell == "gru"
    blocks = ceil_div(hidden, tiles.BN)
    new = layers.states[0].new_empty

    def two(*shape: int) -> tuple[Tensor, ...]:
        return new(directions, *shape), new(directions, *shape)

    keys = tuple(parameters[-1] for parameters in layers.parameters)
    d_states = None if gru else two(nodes, hidden)
    d_scores, key_scores = two(edges), two(nodes)
    shares = directions, nodes, ceil_div(blocks, 4) * 4  # padded
    _launch(
        wave_backward_kernel,
        [
            layers.parameters[0][0],
            tuple(parameters[1] for parameters in layers.parameters),
            keys,
            layers.grads,
            None if layers.gates is None else tuple(map(activated, layers.gates)),
            layers.states,
            tuple(messages.message for messages in layers.messages),
            tuple(messages.weight for messages in layers.messages),
            d_states,
            tuple(messages.offset for messages in layers.messages),
            d_scores,
            key_scores,
            tuple(layers.states[0].new_zeros(shares) for _ in range(2)),
            tuple(messages.anchor for messages in layers.messages),
            graph.level_ptr,
            graph.succ_ptr,
            graph.succ,
            graph.succ_slot,
        ],
        graph,
        graph.level_ptr.size(1),
        range(graph.level_ptr.size(1) - 2, graph.level_ptr.size(1)),
        tiles,
        H=hidden,
        HP=layers.messages[0].message.size(2),
        GRU=gru,
        PRECISION=launch.level_precision(precision, hidden, True),
    )
    out = []
    for i in range(2):
        if layers.gates is not None:
            launch_finish(
                layers.grads[i], layers.gates[i], layers.messages[i],
                keys[i], key_scores[i], graph, nodes,
            )  # fmt: skip
        d_gates = layers.gates if d_states is None else d_states
        assert d_gates is not None
        out.append(LayerGradients(d_gates[i], d_scores[i], key_scores[i], None))
    return out
