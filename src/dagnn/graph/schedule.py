r"""The order of computation of a DAG (or a batch of DAGs), as tensors.

Everything the DAG recurrence needs to know about a graph is in a :class:`Sweep`: nodes laid out
level by level, and for each node the list of its predecessors and of its successors (CSR).
A :class:`LevelSchedule` is a pair of sweeps, along the edges and against them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from dagnn.graph.checks import (
    check_edge_form,
    check_edge_index,
    check_levels,
    infer_num_nodes,
)
from dagnn.graph.levels import topological_levels

__all__ = ["LevelSchedule", "Sweep"]


@dataclass(frozen=True, eq=False)
class Sweep:
    r"""One pass over the nodes, level by level.

    A *position* is a place in level-major order, a *slot* a place in the predecessor lists. Node
    :obj:`order[p]` stands at position :obj:`p`; level :obj:`i` holds the positions
    :obj:`level_ptr[i]` to :obj:`level_ptr[i + 1]`; within a level, nodes keep their order.
    Levels given by the caller may leave gaps; there are no empty levels here.

    The predecessors of position :obj:`p` are the positions
    :obj:`pred[pred_ptr[p]:pred_ptr[p + 1]]`; slot :obj:`s` is edge :obj:`pred_edge[s]` of
    :obj:`edge_index`. The successors of :obj:`p` are :obj:`succ[succ_ptr[p]:succ_ptr[p + 1]]`;
    :obj:`succ_slot` names, for each of them, the same edge's slot. The backward pass pulls
    gradients over successors, so that neither pass needs atomics.
    """

    order: Tensor  # [N] node at each position
    rank: Tensor  # [N] position of each node
    level_ptr: Tensor  # [D + 1]
    pred_ptr: Tensor  # [N + 1]
    pred: Tensor  # [E] position of the predecessor
    pred_edge: Tensor  # [E] column of edge_index
    succ_ptr: Tensor  # [N + 1]
    succ: Tensor  # [E] position of the successor
    succ_slot: Tensor  # [E] the same edge's place in pred
    sinks: Tensor  # [T] nodes without successors, ascending

    @property
    def num_nodes(self) -> int:
        return self.order.numel()

    @property
    def num_edges(self) -> int:
        return self.pred.numel()

    @property
    def num_levels(self) -> int:
        return self.level_ptr.numel() - 1


@dataclass(frozen=True, eq=False)
class LevelSchedule:
    r"""Level-major order of a DAG or a batch of DAGs, along its edges and against them.

    Build it once per batch, give it to every model that reads the batch:

    Example:
        >>> import torch
        >>> schedule = LevelSchedule.from_edge_index(torch.tensor([[2, 2, 0], [0, 1, 1]]))
        >>> schedule
        LevelSchedule(num_nodes=3, num_edges=3, num_levels=3, reverse=True)
        >>> schedule.forward.order
        tensor([2, 0, 1])
        >>> schedule.forward.level_ptr
        tensor([0, 1, 2, 3])

    Duplicate edges are kept: an edge that occurs twice carries two messages, as in PyTorch
    Geometric. Remove them with :func:`torch_geometric.utils.coalesce` if that is not meant.

    The tensors of both directions are stacked (:math:`S = 1` or :math:`2`), so that an
    accelerator can run them at once; :attr:`forward` and :attr:`reverse` are views.
    """

    order: Tensor  # [S, N]
    rank: Tensor  # [S, N]
    level_ptr: Tensor  # [S, D + 1]
    pred_ptr: Tensor  # [S, N + 1]
    pred: Tensor  # [S, E]
    pred_edge: Tensor  # [S, E]
    succ_ptr: Tensor  # [S, N + 1]
    succ: Tensor  # [S, E]
    succ_slot: Tensor  # [S, E]
    targets: Tensor  # [T] nodes without successors: the sinks of the forward sweep
    sources: Tensor  # [U] nodes without predecessors: the sinks of the reverse sweep

    @classmethod
    def from_edge_index(
        cls,
        edge_index: Tensor,
        num_nodes: int | None = None,
        levels: Tensor | None = None,
        reverse_levels: Tensor | None = None,
        *,
        reverse: bool = True,
    ) -> LevelSchedule:
        r"""Sort nodes and edges by level, on the device of :obj:`edge_index`.

        Args:
            edge_index: ``[2, E]``.
            num_nodes: The number of nodes; by default the largest index plus one.
            levels: Levels, if already known (any integers that rise along every edge). ``[N]``
            reverse_levels: Levels of the reverse DAG, if already known. ``[N]``
            reverse: Whether to build the reverse sweep too, which bidirectional models need.
        """
        if num_nodes is None and levels is not None:
            num_nodes = len(levels)
        # Where levels are computed, that checks the values.
        check = check_edge_form if levels is None else check_edge_index
        check(edge_index, num_nodes)
        num_nodes = infer_num_nodes(edge_index, num_nodes)
        directions = [_levels(edge_index, num_nodes, levels)]
        if reverse:
            directions.append(_levels(edge_index.flip(0), num_nodes, reverse_levels))
        return cls(*torch.ops.dagnn.level_sort(edge_index, torch.stack(directions)))

    @classmethod
    def from_data(cls, data: Data, *, reverse: bool = True) -> LevelSchedule:
        """The schedule of a PyG ``Data`` or ``Batch``; uses stored levels where there are any.

        :class:`dagnn.AddLevels` stores them once per graph; they survive PyG's batching.
        """
        return cls.from_edge_index(
            data.edge_index,
            data.num_nodes,
            data.get("level"),
            data.get("reverse_level"),
            reverse=reverse,
        )

    @property
    def forward(self) -> Sweep:
        """The sweep along the edges."""
        return self._sweep(0, self.targets)

    @property
    def reverse(self) -> Sweep | None:
        """The sweep against the edges, if it was built."""
        return self._sweep(1, self.sources) if self.num_directions == 2 else None

    def _sweep(self, direction: int, sinks: Tensor) -> Sweep:
        return Sweep(*(*(t[direction] for t in self.stacked()), sinks))

    def stacked(self) -> tuple[Tensor, ...]:
        """The tensors that have a row per direction, in the order of :class:`Sweep`."""
        return (
            self.order,
            self.rank,
            self.level_ptr,
            self.pred_ptr,
            self.pred,
            self.pred_edge,
            self.succ_ptr,
            self.succ,
            self.succ_slot,
        )

    @property
    def num_directions(self) -> int:
        return self.order.size(0)

    @property
    def num_nodes(self) -> int:
        return self.order.size(1)

    @property
    def num_edges(self) -> int:
        return self.pred.size(1)

    @property
    def num_levels(self) -> int:
        return self.level_ptr.size(1) - 1

    @property
    def device(self) -> torch.device:
        return self.order.device

    def forward_only(self) -> LevelSchedule:
        """The same schedule without the reverse sweep."""
        if self.num_directions == 1:
            return self
        stacked = (t[:1] for t in self.stacked())
        return LevelSchedule(*(*stacked, self.targets, self.sources))

    def flip(self) -> LevelSchedule:
        """The schedule of the reverse DAG."""
        if self.num_directions == 1:
            raise ValueError(
                "expected a schedule with both directions, got one with the forward direction "
                "alone; build it with reverse=True"
            )
        stacked = (t.flip(0) for t in self.stacked())
        return LevelSchedule(*(*stacked, self.sources, self.targets))

    def to(self, device: Any, non_blocking: bool = False) -> LevelSchedule:
        tensors = (*self.stacked(), self.targets, self.sources)
        return LevelSchedule(*(t.to(device, non_blocking=non_blocking) for t in tensors))

    def __repr__(self) -> str:
        return (
            f"LevelSchedule(num_nodes={self.num_nodes}, num_edges={self.num_edges}, "
            f"num_levels={self.num_levels}, reverse={self.num_directions == 2})"
        )


def _levels(edge_index: Tensor, num_nodes: int, levels: Tensor | None) -> Tensor:
    if levels is None:
        return topological_levels(edge_index, num_nodes)
    return check_levels(levels, edge_index, num_nodes)


_Sorted = tuple[
    Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor
]


@torch.library.custom_op("dagnn::level_sort", mutates_args=())
def _level_sort(edge_index: Tensor, levels: Tensor) -> _Sorted:
    """From edges ``[2, E]`` and levels ``[S, N]`` to the tensors of a schedule."""
    # One operator, because the number of levels is known only when it runs: torch.compile and
    # torch.export need to be told so (see the fake below), and would break the graph otherwise.
    directions, num_nodes = levels.shape
    num_edges = edge_index.size(1)
    position = torch.arange(num_nodes, device=levels.device).expand(directions, -1)
    order = torch.argsort(levels, dim=1, stable=True)
    rank = torch.empty_like(order).scatter_(1, order, position)
    level_ptr = _level_pointers(levels.gather(1, order))

    ends = edge_index if directions == 1 else torch.cat([edge_index, edge_index.flip(0)])
    ends = ends.reshape(directions, 2 * num_edges)
    source, target = rank.gather(1, ends).view(directions, 2, num_edges).unbind(1)  # [S, E] each
    target, pred_edge = torch.sort(target, dim=1, stable=True)
    pred = source.gather(1, pred_edge)
    # Sorting slots (not edges) by source lists each node's successors in level-major order.
    source, succ_slot = torch.sort(pred, dim=1, stable=True)
    succ = target.gather(1, succ_slot)

    bounds = torch.arange(num_nodes + 1, device=levels.device).expand(directions, -1).contiguous()
    pred_ptr = torch.searchsorted(target, bounds)
    succ_ptr = torch.searchsorted(source, bounds)
    in_degree = pred_ptr[0].diff()[rank[0]]
    out_degree = succ_ptr[0].diff()[rank[0]]
    targets, sources = ((d == 0).nonzero().view(-1) for d in (out_degree, in_degree))
    return (
        order, rank, level_ptr, pred_ptr, pred, pred_edge, succ_ptr, succ, succ_slot,
        targets, sources,
    )  # fmt: skip


@_level_sort.register_fake
def _(edge_index: Tensor, levels: Tensor) -> _Sorted:
    context = torch.library.get_ctx()
    directions, nodes = levels.shape
    edges = edge_index.size(1)

    def empty(*shape: Any) -> Tensor:
        return levels.new_empty(shape, dtype=torch.long)

    return (
        empty(directions, nodes),
        empty(directions, nodes),
        empty(directions, context.new_dynamic_size(min=1)),
        empty(directions, nodes + 1),
        empty(directions, edges),
        empty(directions, edges),
        empty(directions, nodes + 1),
        empty(directions, edges),
        empty(directions, edges),
        empty(context.new_dynamic_size(min=0)),
        empty(context.new_dynamic_size(min=0)),
    )


def _level_pointers(sorted_levels: Tensor) -> Tensor:
    """Where each level starts. Levels that no node has are left out: a given order of
    computation may have gaps, and the two directions then differ in depth, so the shallower one
    ends in empty levels. ``[S, D + 1]``"""
    directions, num_nodes = sorted_levels.shape
    if num_nodes == 0:
        return sorted_levels.new_zeros(directions, 1, dtype=torch.long)
    starts = torch.ones_like(sorted_levels, dtype=torch.bool)
    starts[:, 1:] = sorted_levels[:, 1:] != sorted_levels[:, :-1]
    dense = starts.cumsum(1)  # [S, N] level of each position, from 1
    bounds = torch.arange(1, int(dense[:, -1].max()) + 2, device=dense.device)
    return torch.searchsorted(dense, bounds.expand(directions, -1).contiguous())
