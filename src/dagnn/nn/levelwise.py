r"""Any convolution of PyTorch Geometric, run level by level along the order of a DAG."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing

from dagnn.graph.checks import check_same_device
from dagnn.graph.schedule import LevelSchedule, Sweep
from dagnn.nn.inputs import OTHER_EDGES, has_edges
from dagnn.ops.level_buffer import LevelBuffer

__all__ = ["LevelwiseConv", "MaxPlusConv"]


class LevelwiseConv(nn.Module):
    r"""Runs a PyG convolution once per level, on predecessors that are already updated:

    .. math::
        h_v = \mathrm{conv}\bigl(x_v,\; \{(h_u, e_{uv}) \mid u \in \mathcal{P}(v)\}\bigr)

    so that one call carries information along whole paths, where ``conv(x, edge_index)`` alone
    (with :math:`x_u` for :math:`h_u`) carries it over one edge. It takes one call of
    :obj:`conv` per level, and work and memory linear in nodes and edges, also backward.

    What :obj:`conv` sees of level :math:`i` is a graph of its own:

    * **nodes**: the nodes of the level with their features :math:`x_v`, and their direct
      predecessors, each once, with their states :math:`h_u`;
    * **edges**: those that end in the level, each from a predecessor to a node of the level, with
      their edge arguments. Predecessors have no incoming edges here.

    Only the level's own rows are kept. Whatever :obj:`conv` computes from its graph, it computes
    from this one: self-loops are added to the level's nodes, carrying :math:`x_v`;
    :class:`~torch_geometric.nn.GCNConv` weighs an edge by
    :math:`1 / \sqrt{\hat d_u \hat d_v}` with :math:`\hat d_v = 1 + |\mathcal{P}(v)|` and
    :math:`\hat d_u = 1`, the self-loop alone; batch normalisation inside :obj:`conv` is over the
    rows of one level.

    **Level 0** is no exception: :obj:`conv` runs on a graph without edges. Its nodes keep what
    self-loops or a root weight make of their features; a convolution with neither gives them its
    bias, and never sees a feature of any node.

    **Widths.** Features and states enter :obj:`conv` side by side, so its output must be as wide
    as its input. To let them differ, give :obj:`conv` PyG's bipartite form,
    ``in_channels=(hidden, in)``, the width of the states :math:`h_u` first and of the features
    :math:`x_v` second, and output :math:`hidden`; it is then called as
    ``conv((h, x), edge_index)``. Self-loops make no sense between two sets of nodes: set
    ``add_self_loops=False`` there.

    Args:
        conv: A convolution with ``flow="source_to_target"``, not cached.

    Example:
        >>> import torch
        >>> from torch_geometric.nn import GATConv
        >>> conv = LevelwiseConv(GATConv(8, 8))
        >>> edge_index = torch.tensor([[0, 0, 1, 2], [1, 2, 3, 3]])
        >>> conv(torch.randn(4, 8), edge_index).shape
        torch.Size([4, 8])
        >>> conv = LevelwiseConv(GATConv((8, 3), 4, heads=2, add_self_loops=False))
        >>> conv(torch.randn(4, 3), edge_index).shape
        torch.Size([4, 8])
    """

    def __init__(self, conv: MessagePassing) -> None:
        super().__init__()
        if not isinstance(conv, MessagePassing):
            raise TypeError(
                f"expected a torch_geometric.nn.MessagePassing layer, got {type(conv).__name__}"
            )
        if conv.flow != "source_to_target":
            raise ValueError(
                f"expected a convolution with flow='source_to_target', got {conv.flow!r}; to run "
                "against the edges, flip edge_index or the schedule"
            )
        if getattr(conv, "cached", False):
            raise ValueError(
                "expected a convolution with cached=False, got cached=True: every level is a "
                "graph of its own"
            )
        widths = getattr(conv, "in_channels", None)
        self.bipartite = isinstance(widths, tuple)
        if isinstance(widths, tuple):
            if getattr(conv, "add_self_loops", False):
                raise ValueError(
                    f"expected add_self_loops=False in a convolution with in_channels={widths}, "
                    "got True: predecessors and nodes of a level are two different sets"
                )
            if widths[0] < 1:
                raise ValueError(
                    "expected the width of the states as the first of in_channels, got "
                    f"{widths[0]}: it cannot be inferred"
                )
        self.conv = conv

    def reset_parameters(self) -> None:
        self.conv.reset_parameters()

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor | None = None,
        *,
        schedule: LevelSchedule | None = None,
        **edge_arguments: Tensor | None,
    ) -> Tensor:
        r"""The states of all nodes.

        Args:
            x: Node features. ``[N, C]``
            edge_index: Edges. Not needed with :obj:`schedule`. ``[2, E]``
            schedule: The schedule of this very graph, if it is already there;
                ``schedule.flip()`` runs against the edges.
            edge_arguments: Whatever :obj:`conv` takes per edge, by its name, such as
                ``edge_attr`` or ``edge_weight``. ``[E, …]``

        Returns:
            States. ``[N, H]``
        """
        if not isinstance(x, Tensor):
            raise TypeError(
                f"expected x as a torch.Tensor, got {type(x).__name__}; of a PyG Data, pass data.x "
                "and data.edge_index"
            )
        if x.dim() != 2:
            raise ValueError(f"expected node features of shape [num_nodes, C], got {list(x.shape)}")
        order = None if schedule is None else schedule.forward.order
        given = {name: value for name, value in edge_arguments.items() if value is not None}
        check_same_device(x=x, edge_index=edge_index, schedule=order, **given)
        if schedule is None:
            if edge_index is None:
                raise ValueError("expected edge_index or schedule, got neither")
            schedule = LevelSchedule.from_edge_index(edge_index, x.size(0), reverse=False)
        sweep = schedule.forward
        if sweep.num_nodes != x.size(0):
            raise ValueError(
                f"expected features of all {sweep.num_nodes} nodes of the schedule, "
                f"got {x.size(0)} rows"
            )
        if edge_index is not None and not _is_of(schedule, edge_index):
            raise ValueError(OTHER_EDGES)
        for name, value in given.items():
            if value.dim() == 0 or value.size(0) != sweep.num_edges:
                raise ValueError(
                    f"expected {name} with one row for each of the {sweep.num_edges} edges, "
                    f"got shape {list(value.shape)}"
                )
        hidden = self._check_width(x)
        return self._run(x, sweep, hidden, given)

    def _check_width(self, x: Tensor) -> int:
        """The width of the states."""
        widths = getattr(self.conv, "in_channels", None)
        hidden, expected = widths if isinstance(widths, tuple) else (x.size(1), widths)
        if isinstance(expected, int) and 0 < expected != x.size(1):
            raise ValueError(
                f"expected node features of shape [num_nodes, {expected}], got {list(x.shape)}"
            )
        return int(hidden)

    def _run(
        self, x: Tensor, sweep: Sweep, hidden: int, edge_arguments: dict[str, Tensor]
    ) -> Tensor:
        width = sweep.level_ptr.diff()  # [D] nodes of each level
        slots = sweep.pred_ptr[sweep.level_ptr].diff()  # [D] edges that end in each level
        degree = sweep.pred_ptr.diff()  # [N]
        level = torch.repeat_interleave(slots, output_size=sweep.num_edges)  # [E] level of an edge
        target = torch.repeat_interleave(degree, output_size=sweep.num_edges)  # [E] position
        target = target - sweep.level_ptr[level]  # row in the level

        # Each level's predecessors, once each, level after level.
        pairs, pair = torch.unique(level * sweep.num_nodes + sweep.pred, return_inverse=True)
        pairs_level = pairs.div(max(sweep.num_nodes, 1), rounding_mode="floor")
        sources = torch.bincount(pairs_level, minlength=sweep.num_levels)  # [D] per level
        source = pair - (sources.cumsum(0) - sources)[level]  # row among the level's predecessors
        if not self.bipartite:
            source = source + width[level]  # predecessors come behind the level's own nodes
        edges = torch.stack([source, target])  # [2, E]

        # Splitting all levels at once costs as much backward as forward; slicing would not.
        nodes, sizes = width.tolist(), slots.tolist()
        x_levels = x[sweep.order].split(nodes)
        pred_levels = (pairs - pairs_level * sweep.num_nodes).split(sources.tolist())
        edge_levels = edges.split(sizes, dim=1)
        arguments = {k: v[sweep.pred_edge].split(sizes) for k, v in edge_arguments.items()}

        states = LevelBuffer(x.new_zeros(sweep.num_nodes, hidden))
        for i in range(sweep.num_levels):
            h = states.read(pred_levels[i])  # [P, H]
            here = {name: value[i] for name, value in arguments.items()}
            out = self._conv(h, x_levels[i], edge_levels[i], here)  # [V, H]
            if out.shape != (nodes[i], hidden):
                raise ValueError(
                    f"expected a convolution to {hidden} channels, as wide as what it reads from "
                    f"predecessors, got output of shape {list(out.shape)} for {nodes[i]} nodes; "
                    f"map features to its output width first, or give it in_channels=(hidden, in)"
                )
            states.append(out)
        return states.tensor()[sweep.rank]

    def _conv(
        self, h: Tensor, x: Tensor, edge_index: Tensor, edge_arguments: dict[str, Tensor]
    ) -> Tensor:
        out: Any
        if self.bipartite:
            out = self.conv((h, x), edge_index, **edge_arguments)
        else:
            out = self.conv(torch.cat([x, h]), edge_index, **edge_arguments)
        if not isinstance(out, Tensor):
            raise TypeError(
                f"expected a convolution that returns one tensor, got {type(out).__name__}"
            )
        return out if self.bipartite else out[: x.size(0)]


def _is_of(schedule: LevelSchedule, edge_index: Tensor) -> bool:
    """Whether a schedule is of these edges, along them or against; on an accelerator by their
    number alone, since a look would wait."""
    if edge_index.shape != (2, schedule.num_edges):
        return False
    if edge_index.device.type != "cpu":
        return True
    return has_edges(schedule, edge_index) or has_edges(schedule, edge_index.flip(0))


class MaxPlusConv(MessagePassing):
    r"""A convolution in the max-plus semiring, channel by channel:

    .. math::
        h_v = x_v + \max_{u \in \mathcal{P}(v)} \bigl( h_u + w_{uv} \bigr), \qquad
        \max \emptyset = 0

    ``LevelwiseConv(MaxPlusConv())`` computes critical paths exactly: with durations :math:`x_v`
    of tasks and delays :math:`w_{uv}` between them (zero by default), :math:`h_v` is the earliest
    finish of :math:`v` and :math:`h_v - x_v` its earliest start; in general, the heaviest path
    from a source to :math:`v`. The gradient of the latest finish with respect to the durations is
    one on the critical path and zero elsewhere.

    Shapes:
        * **input:** node weights ``[N, C]``, edges ``[2, E]``, edge weights ``[E]`` or ``[E, C]``
        * **output:** ``[N, C]``

    Example:
        >>> import torch
        >>> durations = torch.tensor([[3.0], [2.0], [4.0], [1.0]], requires_grad=True)
        >>> edge_index = torch.tensor([[0, 0, 1, 2], [1, 2, 3, 3]])
        >>> finish = LevelwiseConv(MaxPlusConv())(durations, edge_index)
        >>> finish.flatten().tolist()
        [3.0, 5.0, 7.0, 8.0]
        >>> torch.autograd.grad(finish.max(), durations)[0].flatten().tolist()
        [1.0, 0.0, 1.0, 1.0]
    """

    def __init__(self) -> None:
        super().__init__(aggr="max")

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        if edge_weight is not None and edge_weight.dim() == 1:
            edge_weight = edge_weight.unsqueeze(-1)  # [E, 1]
        longest: Tensor = self.propagate(edge_index, x=x, edge_weight=edge_weight)  # [N, C]
        return x + longest

    def message(self, x_j: Tensor, edge_weight: Tensor | None) -> Tensor:
        return x_j if edge_weight is None else x_j + edge_weight
