"""From modules to the fused operator: which layers it can run, and with which tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from dagnn.graph.schedule import LevelSchedule
from dagnn.nn.aggregators import Attention, GatedSum
from dagnn.nn.cells import LinearCell
from dagnn.ops.recurrence import product_precision, stack_states
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
    precision = product_precision(x.device)
    # The operator has its own precision: autocast would only cast back and forth around it.
    with torch.autocast(x.device.type, enabled=False):
        layers = list(zip(*directions, strict=True))  # [layer][direction]
        first = layers[0][0]
        kind = fused_kind(first.aggregator, first.cell)
        assert kind is not None, "the backend was chosen for this model"
        names = CELL_PARAMETERS[kind[1]], AGGREGATOR_PARAMETERS[kind[0]]
        parameters = [
            [[_get(module.cell, name) for module in layer] for name in names[0]]
            + [[_get(module.aggregator, name) for module in layer] for name in names[1]]
            for layer in layers
        ]
        # The query's weight w_1 cancels in the softmax.
        cancelled = (
            [[module.aggregator.query.weight for module in layer] for layer in layers]
            if kind[0] == "attention"
            else [[] for _ in layers]
        )
        scores = _edge_scores(layers, schedule, edge_type, edge_attr)
        x = x.to(parameters[0][0][0].dtype)
        if not dropout:
            unused = [tensor for row in cancelled for tensor in row]
            return stack_states(x, schedule, parameters, unused, scores, kind, backend, precision)
        # Dropout between layers: one operator per layer.
        states: list[Tensor] = []
        for i, own in enumerate(parameters):
            below = nn.functional.dropout(states[-1], dropout) if states else x
            states += stack_states(
                below, schedule, [own], cancelled[i], scores[i : i + 1], kind, backend, precision
            )
        return states


def _get(module: Any, name: str) -> Tensor:
    for part in name.split("."):
        module = getattr(module, part)
    tensor: Tensor = module
    return tensor


def _edge_scores(
    layers: list[tuple[nn.Module, ...]],
    schedule: LevelSchedule,
    edge_type: Tensor | None,
    edge_attr: Tensor | None,
) -> list[Tensor]:
    r"""Per layer, :math:`w_3^{\top} y` of every edge by slot. ``[S, E]``

    With one-hot types and features side by side, the score is linear in them: its gradient is a
    product, which unlike an indexed sum is deterministic.
    """
    aggregators: Any = [[module.aggregator for module in layer] for layer in layers]
    first = aggregators[0][0]
    if getattr(first, "edge", None) is None:
        return []
    columns: list[Tensor] = []
    if edge_type is not None:
        types = torch.arange(first.edge_embedding.num_embeddings, device=edge_type.device)
        columns.append(_by_slot(edge_type.unsqueeze(-1), schedule) == types)
    if edge_attr is not None:
        columns.append(_by_slot(edge_attr, schedule))
    dtype = first.edge.weight.dtype
    edges = torch.cat([column.to(dtype) for column in columns], -1)  # [S, E, Q]
    return [(edges @ _edge_weight(layer)).squeeze(-1) for layer in aggregators]


def _by_slot(per_edge: Tensor, schedule: LevelSchedule) -> Tensor:
    """``[S, E, …]`` from ``[E, …]``"""
    slots = per_edge.index_select(0, schedule.pred_edge.flatten())
    return slots.view(*schedule.pred_edge.shape, per_edge.size(1))


def _edge_weight(aggregators: list[Any]) -> Tensor:
    """What each type and each feature adds to an edge's score. ``[S, Q, 1]``"""
    weight = []
    if aggregators[0].edge_embedding is not None:
        weight.append(torch.stack([a.edge_embedding.weight for a in aggregators]))
    if aggregators[0].edge_projection is not None:
        # Its bias adds the same to all scores, and cancels in the softmax as w_1 does.
        weight.append(torch.stack([a.edge_projection.weight.t() for a in aggregators]))
    w3 = torch.stack([a.edge.weight.t() for a in aggregators])  # [S, width, 1]
    return torch.cat(weight, dim=1) @ w3
