"""The DAG recurrence as one operator: a stack of layers, all directions, forward and backward.

``torch.ops.dagnn.recurrence`` is registered with a schema, a fake implementation and an autograd
formula, so that ``torch.compile``, ``torch.export``, activation checkpointing and DDP see one
opaque, differentiable node, whatever backend runs inside.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from dagnn.graph.schedule import LevelSchedule
from dagnn.ops import stack
from dagnn.ops.first_derivatives import first_derivatives_only

__all__ = ["stack_states"]


def stack_states(
    x: Tensor,
    schedule: LevelSchedule,
    parameters: Sequence[Sequence[Sequence[Tensor]]],
    cancelled: Sequence[Tensor],
    edge_scores: Sequence[Tensor],
    kind: tuple[str, str],
    backend: str,
    precision: str,
) -> list[Tensor]:
    r"""The states of a stack of layers, in all directions of the schedule.

    Args:
        x: Node features in the order of the nodes ``[N, C]``, or level-major ``[S, N, C]``.
        schedule: The order of computation, with one direction or two.
        parameters: ``parameters[layer][i]`` is the i-th tensor named in
            :data:`dagnn.ops.stack.CELL_PARAMETERS` and ``AGGREGATOR_PARAMETERS``, one per
            direction.
        cancelled: Parameters that have no influence, and so the gradient zero (rather than none,
            since DDP waits for the gradients of all parameters).
        edge_scores: Per layer, the term that each edge adds to its attention score, by slot
            (``[S, E]``); empty if edges have none.
        kind: The aggregator (``"attention"``, ``"gated_sum"``) and the cell (``"gru"``,
            ``"linear"``).
        backend: ``"cpu"`` or ``"triton"``.
        precision: Of products, see :func:`dagnn.ops.backends.product_precision`.

    Returns:
        Per layer, level-major states ``[S, N, H]``.
    """
    graph = stack.Graph(*(getattr(schedule, name) for name in stack.Graph._fields))
    num_layers = len(parameters)
    settings = (*kind, num_layers, backend, precision)
    groups = [group for layer in parameters for group in layer]
    if not torch.compiler.is_compiling():
        flat = [tensor for group in groups for tensor in group]
        save = torch.is_grad_enabled() and any(t.requires_grad for t in (x, *edge_scores, *flat))
        return list(
            _Eager.apply(
                graph, settings, save, len(edge_scores), x, *edge_scores, *flat, *cancelled
            )
        )
    stacked = [torch.stack(tuple(group)) for group in groups]
    if cancelled:
        stacked[0] = stacked[0] + sum(tensor.sum() for tensor in cancelled) * 0
    save = torch.is_grad_enabled() and any(
        tensor.requires_grad for tensor in (x, *stacked, *edge_scores)
    )
    out: list[Tensor] = torch.ops.dagnn.recurrence(
        x, list(graph), stacked, list(edge_scores), *settings, save
    )
    return out[:num_layers]


class _Eager(torch.autograd.Function):
    """The operator's work without the operator: half a millisecond less of host time per step.

    It also may do what an operator may not: return gradients that are views of one tensor.
    """

    @staticmethod
    def forward(
        ctx: Any, graph: Any, settings: Any, save: bool, num_scores: int, *inputs: Any
    ) -> Any:
        aggregator, cell, num_layers, backend, precision = settings
        x, edge_scores, rest = inputs[0], inputs[1 : 1 + num_scores], inputs[1 + num_scores :]
        directions = graph.order.size(0)
        size = len(stack.CELL_PARAMETERS[cell]) + len(stack.AGGREGATOR_PARAMETERS[aggregator])
        used = num_layers * size * directions
        stacked = [torch.stack(rest[i : i + directions]) for i in range(0, used, directions)]
        out = _compute(
            x,
            list(graph),
            stacked,
            list(edge_scores),
            aggregator,
            cell,
            num_layers,
            backend,
            precision,
            save,
        )
        if save:
            ctx.set_materialize_grads(False)
            ctx.graph, ctx.settings = graph, settings
            ctx.sizes = len(stacked), num_scores
            ctx.cancelled = [tensor.shape for tensor in rest[used:]]
            ctx.save_for_backward(x, *stacked, *edge_scores, *out)
        return tuple(out[:num_layers])

    @staticmethod
    @first_derivatives_only
    def backward(ctx: Any, *grads: Any) -> Any:
        x, *rest = ctx.saved_tensors
        num_parameters, num_scores = ctx.sizes
        scores_to = num_parameters + num_scores
        parameters, edge_scores, outputs = (
            rest[:num_parameters],
            rest[num_parameters:scores_to],
            rest[scores_to:],
        )
        need_x = ctx.needs_input_grad[4]
        aggregator, cell, num_layers, backend, precision = ctx.settings
        out = _compute_backward(
            _materialize(grads, outputs),
            x,
            list(ctx.graph),
            parameters,
            edge_scores,
            outputs,
            aggregator,
            cell,
            num_layers,
            backend,
            precision,
            need_x,
        )
        nothing = x.new_zeros(sum(shape.numel() for shape in ctx.cancelled))
        zeros = nothing.split([shape.numel() for shape in ctx.cancelled])
        return (
            None,
            None,
            None,
            None,
            out[-1] if need_x else None,
            *out[num_parameters:scores_to],
            *(grad for group in out[:num_parameters] for grad in group.unbind()),
            *(zero.view(shape) for zero, shape in zip(zeros, ctx.cancelled, strict=True)),
        )


def _materialize(grads: Sequence[Tensor | None], states: Sequence[Tensor]) -> list[Tensor]:
    return [
        torch.zeros_like(state) if grad is None else grad
        for state, grad in zip(states, grads, strict=False)
    ]


def _optional(edge_scores: list[Tensor], num_layers: int) -> list[Tensor | None]:
    return [*edge_scores] if edge_scores else [None] * num_layers


def _layers(flat: list[Tensor], num_layers: int) -> list[list[Tensor]]:
    size = len(flat) // num_layers
    return [list(flat[i : i + size]) for i in range(0, len(flat), size)]


def _forward(backend: str) -> Any:
    # Imported lazily, since Triton is not there on every machine.
    if backend == "triton":
        return importlib.import_module("dagnn.ops.triton").forward
    return partial(stack.forward, importlib.import_module("dagnn.ops.cpu"))


def _backward_of(backend: str) -> Any:
    if backend == "triton":
        return importlib.import_module("dagnn.ops.triton").backward
    return partial(stack.backward, importlib.import_module("dagnn.ops.cpu"))


def _compute(
    x: Tensor,
    graph: list[Tensor],
    parameters: list[Tensor],
    edge_scores: list[Tensor],
    aggregator: str,
    cell: str,
    num_layers: int,
    backend: str,
    precision: str,
    save: bool,
) -> list[Tensor]:
    """States of every layer, then (with :obj:`save`) what each layer keeps for backward."""
    with torch.autocast(x.device.type, enabled=False):
        states, saved = _forward(backend)(
            aggregator,
            cell,
            x,
            stack.Graph(*graph),
            _layers(parameters, num_layers),
            _optional(edge_scores, num_layers),
            precision,
            save,
        )
    return states + [tensor for keep in saved for tensor in keep if tensor is not None]


_recurrence = torch.library.custom_op("dagnn::recurrence", _compute, mutates_args=())


@_recurrence.register_fake
def _(
    x: Tensor,
    graph: list[Tensor],
    parameters: list[Tensor],
    edge_scores: list[Tensor],
    aggregator: str,
    cell: str,
    num_layers: int,
    backend: str,
    precision: str,
    save: bool,
) -> list[Tensor]:
    directions, nodes = graph[0].shape
    hidden = parameters[1].size(2)
    states = [x.new_empty(directions, nodes, hidden) for _ in range(num_layers)]
    # Of an attention, Triton keeps scores and nothing else, where the CPU keeps the attention
    # weights themselves; of a gated sum, half precision in padded rows.
    half = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision)
    padded = hidden if half is None else (hidden + 7) // 8 * 8
    saved = []
    for _ in range(num_layers if save else 0):
        if backend == "triton" and aggregator == "attention":
            saved.append(x.new_empty(graph[4].shape))
            continue
        if cell == "gru":
            width = 4 * padded if backend == "triton" else stack.gates_width(hidden)
            saved.append(x.new_empty(directions, nodes, width, dtype=half))
        saved.append(x.new_empty(directions, nodes, padded))
        shape = (graph[4].size(1),) if aggregator == "attention" else (nodes, 2 * hidden)
        saved.append(x.new_empty(directions, *shape))
    return states + saved


def _compute_backward(
    grads: list[Tensor],
    x: Tensor,
    graph: list[Tensor],
    parameters: list[Tensor],
    edge_scores: list[Tensor],
    outputs: list[Tensor],
    aggregator: str,
    cell: str,
    num_layers: int,
    backend: str,
    precision: str,
    need_x: bool,
) -> list[Tensor]:
    """Gradients of the parameters and the edge scores as they came, then (if needed) of x."""
    states, kept = list(outputs[:num_layers]), outputs[num_layers:]
    size = len(kept) // num_layers
    saved = []
    for i in range(0, len(kept), size):
        gates = kept[i] if size == 3 else None
        message = kept[i + size - 2] if size > 1 else None
        saved.append(stack.Saved(gates, message, kept[i + size - 1]))
    with torch.autocast(x.device.type, enabled=False):
        grad_x, parameter_grads, score_grads = _backward_of(backend)(
            aggregator,
            cell,
            list(grads),
            x,
            states,
            saved,
            stack.Graph(*graph),
            _layers(parameters, num_layers),
            _optional(edge_scores, num_layers),
            precision,
            need_x,
        )
    out = [tensor for layer in parameter_grads for tensor in layer]
    if edge_scores:
        out += [score for score in score_grads if score is not None]
    return out if grad_x is None else [*out, grad_x]


_recurrence_backward = torch.library.custom_op(
    "dagnn::recurrence_backward", _compute_backward, mutates_args=()
)


@_recurrence_backward.register_fake
def _(
    grads: list[Tensor],
    x: Tensor,
    graph: list[Tensor],
    parameters: list[Tensor],
    edge_scores: list[Tensor],
    outputs: list[Tensor],
    aggregator: str,
    cell: str,
    num_layers: int,
    backend: str,
    precision: str,
    need_x: bool,
) -> list[Tensor]:
    like = [*parameters, *edge_scores, *([x] if need_x else [])]
    return [tensor.new_empty(tensor.shape) for tensor in like]


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    x, graph, parameters, edge_scores, *ctx.settings, save = inputs
    if not save:
        raise RuntimeError("expected save=True for a call that is differentiated, got save=False")
    ctx.set_materialize_grads(False)
    ctx.sizes = len(graph), len(parameters), len(edge_scores)
    ctx.save_for_backward(x, *graph, *parameters, *edge_scores, *output)


def _backward(ctx: Any, grads: list[Tensor | None]) -> tuple[Any, ...]:
    x, *rest = ctx.saved_tensors
    pieces = []
    for size in ctx.sizes:
        pieces.append(rest[:size])
        rest = rest[size:]
    graph, parameters, edge_scores = pieces
    given = _materialize(grads[: ctx.settings[2]], rest)
    need_x = ctx.needs_input_grad[0]
    out = torch.ops.dagnn.recurrence_backward(
        given, x, graph, parameters, edge_scores, rest, *ctx.settings, need_x
    )
    scores_from, scores_to = len(parameters), len(parameters) + len(edge_scores)
    grad_x = out[-1] if need_x else None
    return (
        grad_x,
        [None] * len(graph),
        out[:scores_from],
        out[scores_from:scores_to],
        *[None] * (len(ctx.settings) + 1),
    )


_recurrence.register_autograd(_backward, setup_context=_setup_context)
