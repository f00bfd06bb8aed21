"""From modules to the fused operator: which layers it can run, and with which tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from dagnn.graph.schedule import LevelSchedule
from dagnn.nn.aggregators import Attention, GatedSum
from dagnn.nn.cells import LinearCell
from dagnn.ops.backends import FEW_UNITS, product_precision
from dagnn.ops.float32 import float64_bmm
from dagnn.ops.recurrence import stack_states
from dagnn.ops.stack import AGGREGATOR_PARAMETERS, CELL_PARAMETERS

__all__ = ["fused_kind", "fused_states", "is_plain"]

_AGGREGATORS = {Attention: "attention", GatedSum: "gated_sum"}
_CELLS = {nn.GRUCell: "gru", LinearCell: "linear"}


def fused_kind(aggregator: nn.Module, cell: nn.Module) -> tuple[str, str] | None:
    """The operator's names for an aggregator and a cell, or None if it does not have them."""
    # By exact type: a subclass may compute something else.
    kind = _AGGREGATORS.get(type(aggregator)), _CELLS.get(type(cell))
    return None if kind[0] is None or kind[1] is None else (kind[0], kind[1])


def is_plain(module: nn.Module) -> bool:
    """Whether a module is made of torch's and ours alone, without hooks: of others the operator
    would take the weights, and not do what they do. Pruning and the older norms of weights are
    hooks, parametrizations and adapters types of their own."""
    return not any(
        part._forward_hooks
        or part._forward_pre_hooks
        or part._backward_hooks
        or part._backward_pre_hooks
        or not type(part).__module__.startswith(("torch.nn.modules.", "dagnn.nn."))
        for part in module.modules()
    )


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
        few = precision != "fp32" and first.aggregator.message_channels <= FEW_UNITS
        if few:
            precision = "fp32"
        scores = _edge_scores(layers, schedule, edge_type, edge_attr, exact=few)
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
    exact: bool,
) -> list[Tensor]:
    r"""Per layer, :math:`w_3^{\top} y` of every edge by slot. ``[S, E]``

    With one-hot types, the score is linear in them and in the features: its gradient is a sum of
    products, which unlike an indexed sum is deterministic.
    """
    aggregators: Any = [
        module.aggregator for direction in zip(*layers, strict=True) for module in direction
    ]
    first = aggregators[0]
    if getattr(first, "edge", None) is None:
        return []
    shape = schedule.num_directions, len(layers), 1, -1
    w3 = [a.edge.weight for a in aggregators]  # [1, width] each
    scores: Tensor | None = None  # [S, L, E]
    if edge_type is not None:
        types = torch.arange(first.edge_embedding.num_embeddings, device=edge_type.device)
        one_hot = (_by_slot(edge_type.unsqueeze(-1), schedule) == types).to(first.edge.weight.dtype)
        weight = _products([a.edge_embedding.weight for a in aggregators], w3).view(shape)
        # Types are few. Not a product, whose lower precision these sums, which cancel, would feel.
        scores = (one_hot.unsqueeze(1) * weight).sum(-1)
    if edge_attr is not None:
        # The projection's bias adds the same to all scores, and cancels in the softmax as w_1 does.
        weight = _products([a.edge_projection.weight.mT for a in aggregators], w3).view(shape)
        # Features may be many: a product, in the precision that was asked for if not exact.
        features = _by_slot(edge_attr, schedule).to(weight.dtype)
        product = (float64_bmm if exact else torch.bmm)(weight.squeeze(2), features.mT)
        scores = product if scores is None else scores + product
    assert scores is not None
    return list(scores.transpose(0, 1).contiguous().unbind())


def _products(tables: list[Tensor], w3: list[Tensor]) -> Tensor:
    """What each type or feature adds to an edge's score. ``[S * L, Q, 1]``

    They are few. Not a product, whose lower precision the gradients, which cancel, would feel.
    """
    if len({weight.size(1) for weight in w3}) > 1:  # tied to queries of two widths
        return torch.stack([(a * b).sum(1, keepdim=True) for a, b in zip(tables, w3, strict=True)])
    return (torch.stack(tables) * torch.stack(w3)).sum(2, keepdim=True)


def _by_slot(per_edge: Tensor, schedule: LevelSchedule) -> Tensor:
    """``[S, E, …]`` from ``[E, …]``"""
    slots = per_edge.index_select(0, schedule.pred_edge.flatten())
    return slots.view(*schedule.pred_edge.shape, per_edge.size(1))
