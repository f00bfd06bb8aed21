"""From modules to the fused operator: which layers it can run, and with which tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from dagnn.graph.schedule import LevelSchedule
from dagnn.nn.aggregators import Attention, GatedSum
from dagnn.nn.cells import LinearCell
from dagnn.ops.recurrence import stack_states
from dagnn.ops.stack import AGGREGATOR_PARAMETERS, CELL_PARAMETERS

__all__ = ["fused_kind", "fused_states"]

_AGGREGATORS = {Attention: "attention", GatedSum: "gated_sum"}
_CELLS = {nn.GRUCell: "gru", LinearCell: "linear"}


def fused_kind(aggregator: nn.Module, cell: nn.Module) -> tuple[str, str] | None:
    """The operator's names for an aggregator and a cell, or None if it does not have them."""
    # By exact type: a subclass may compute something else.
    kind = _AGGREGATORS.get(type(aggregator)), _CELLS.get(type(cell))
    return None if kind[0] is None or kind[1] is None else (kind[0], kind[1])


def fused_states(
    x: Tensor,
    schedule: LevelSchedule,
    directions: Sequence[Sequence[nn.Module]],
    edge_type: Tensor | None,
    edge_attr: Tensor | None,
    dropout: float,
    backend: str,
) -> list[Tensor]:
    """Per layer, level-major states ``[S, N, H]``; ``directions[d][layer]`` are the layers."""
    layers = list(zip(*directions, strict=True))  # [layer][direction]
    first = layers[0][0]
    kind = fused_kind(first.aggregator, first.cell)
    assert kind is not None, "the backend was chosen for this model"
    parameters = [
        [torch.stack(p) for p in zip(*(_parameters(module, *kind) for module in layer), strict=True)]
        for layer in layers
    ]
    if kind[0] == "attention":
        for layer, tensors in zip(layers, parameters, strict=True):
            queries = [module.aggregator.query.weight for module in layer]
            tensors[-1] = _WithCancelled.apply(tensors[-1], *queries)
    scores = _edge_scores(layers, schedule, edge_type, edge_attr)
    if not dropout:
        return stack_states(x, schedule, parameters, scores, kind, backend)
    # Dropout between layers: one operator per layer.
    states: list[Tensor] = []
    for i, layer_parameters in enumerate(parameters):
        below = nn.functional.dropout(states[-1], dropout) if states else x
        own = scores[i : i + 1]
        states += stack_states(below, schedule, [layer_parameters], own, kind, backend)
    return states


class _WithCancelled(torch.autograd.Function):
    """A tensor, and beside it parameters whose gradient is zero.

    The query's weight w_1 cancels in the softmax, and the operator does not see it. Its gradient
    is still zero rather than missing, since DDP waits for the gradients of all parameters.
    """

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, *cancelled: Tensor) -> Tensor:
        ctx.save_for_backward(*cancelled)
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        return grads[0], *(torch.zeros_like(tensor) for tensor in ctx.saved_tensors)


def _parameters(layer: nn.Module, aggregator: str, cell: str) -> list[Tensor]:
    return [
        *(layer.cell.get_parameter(name) for name in CELL_PARAMETERS[cell]),
        *(layer.aggregator.get_parameter(name) for name in AGGREGATOR_PARAMETERS[aggregator]),
    ]


def _edge_scores(
    layers: list[tuple[nn.Module, ...]],
    schedule: LevelSchedule,
    edge_type: Tensor | None,
    edge_attr: Tensor | None,
) -> list[Tensor]:
    r"""Per layer, :math:`w_3^{\top} y` of every edge by slot. ``[S, E]``

    One product for all layers: with one-hot types and features side by side, the score is linear
    in them. (So its gradient is a product too, which unlike an indexed sum is deterministic.)
    """
    if getattr(layers[0][0].aggregator, "edge", None) is None:
        return []
    columns: list[Tensor] = []
    if edge_type is not None:
        types = layers[0][0].aggregator.edge_embedding.num_embeddings
        columns.append(edge_type.unsqueeze(-1) == torch.arange(types, device=edge_type.device))
    if edge_attr is not None:
        columns.append(edge_attr)
    edges = torch.cat([column.to(layers[0][0].aggregator.edge.weight) for column in columns], 1)
    weight = torch.stack(
        [_edge_weight(module.aggregator) for layer in layers for module in layer]
    )  # [L * S, Q]
    weight = weight.view(len(layers), -1, edges.size(1)).permute(1, 2, 0)  # [S, Q, L]
    scores = edges[schedule.pred_edge] @ weight  # [S, E, L]
    return [score.contiguous() for score in scores.unbind(-1)]


def _edge_weight(aggregator: Attention) -> Tensor:
    """What each type and each feature adds to an edge's score. ``[Q]``"""
    assert aggregator.edge is not None
    w3 = aggregator.edge.weight[0]
    weight = []
    if aggregator.edge_embedding is not None:
        weight.append(aggregator.edge_embedding.weight @ w3)
    if aggregator.edge_projection is not None:
        # Its bias adds the same to all scores, and cancels in the softmax as w_1 does.
        weight.append(aggregator.edge_projection.weight.t() @ w3)
    return torch.cat(weight)
