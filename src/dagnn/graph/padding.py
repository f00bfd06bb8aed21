"""Batches of few different sizes, for what is recorded once per size, such as CUDA graphs.

A padded batch has one graph more than was asked for, the last: a filler that brings nodes and edges
to a round number. Nothing flows between it and the others, so that theirs remain the results that
they have without it.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import fields
from typing import NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import Batch

from dagnn.graph.schedule import LevelSchedule

__all__ = [
    "Room",
    "has_filler",
    "room_for",
    "sizes_of",
    "tensors_of",
    "with_tensors",
    "without_filler",
]

# Edges of the filler go from a half of its nodes to the other: with few, one of them would have
# so many predecessors that all else would wait for it.
LEAST_FILLER = 64


class Room(NamedTuple):
    """The sizes of a batch, filler included."""

    nodes: int
    edges: int
    levels: int
    targets: int
    sources: int


def room_for(nodes: int, edges: int, levels: int, targets: int, sources: int) -> Room:
    """The sizes to which those of a batch are rounded up."""
    room_nodes, room_edges = round_up(nodes + LEAST_FILLER), round_up(edges)
    free = _free(room_nodes - nodes, room_edges - edges)
    return Room(
        room_nodes,
        room_edges,
        round_up(max(levels, 2), parts=2),
        _share(targets + free, room_nodes),
        _share(sources + free, room_nodes),
    )


def _share(size: int, nodes: int) -> int:
    """A quarter, a half or all of the nodes: whatever is enough."""
    return next(share for share in (nodes // 4, nodes // 2, nodes) if share >= size)


def round_up(size: int, parts: int = 4) -> int:
    """The next number of which there are :obj:`parts` between powers of two.

    Example:
        >>> [round_up(size) for size in (1, 9, 16, 17, 1000, 5420)]
        [1, 10, 16, 20, 1024, 6144]
    """
    step = max(1, (1 << max(0, size - 1).bit_length() >> 1) // parts)
    return -(-size // step) * step


def _free(extra_nodes: int, extra_edges: int) -> int:
    """Nodes of the filler without successors; without predecessors there are as many."""
    return extra_nodes - min(extra_edges, extra_nodes // 2)


def has_filler(batch: Batch) -> bool:
    """Whether a batch is padded, so that its last graph is none that was asked for."""
    return bool(getattr(batch, "_has_filler", False))


def without_filler(rows: Tensor, batch: Batch) -> Tensor:
    """Of a row for each graph of a batch, those of graphs that were asked for: all but the filler's
    in a padded batch, otherwise all.

    Args:
        rows: Such as what a model makes of the batch. ``[G, …]``
        batch: The batch.
    """
    if len(rows) != batch.num_graphs:
        raise ValueError(
            f"expected a row for each of the batch's {batch.num_graphs} graphs, got {len(rows)}"
        )
    return rows[:-1] if has_filler(batch) else rows


def tensors_of(batch: Batch) -> list[Tensor]:
    """All tensors of a batch, those of its schedule (if it has one) last."""
    own = [value for _, value in batch if isinstance(value, Tensor)]
    if "schedule" not in batch:
        return own
    return own + [getattr(batch.schedule, field.name) for field in fields(LevelSchedule)]


def with_tensors(batch: Batch, tensors: Sequence[Tensor]) -> Batch:
    """The same batch with other tensors, in the order of :func:`tensors_of`."""
    out = copy.copy(batch)
    left = iter(tensors)
    for name, value in batch:
        if isinstance(value, Tensor):
            out[name] = next(left)
    if "schedule" in batch:
        out.schedule = LevelSchedule(*left)
    return out


def sizes_of(batch: Batch) -> tuple[tuple[torch.Size, torch.dtype], ...]:
    """What tells apart the sizes of batches: the forms of all their tensors."""
    return tuple((tensor.shape, tensor.dtype) for tensor in tensors_of(batch))
