r"""The model of the paper: layers of the DAG recurrence, both directions, and a readout."""

from __future__ import annotations

from numbers import Integral
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from dagnn.graph.schedule import LevelSchedule, Sweep
from dagnn.nn.aggregators import make_aggregator
from dagnn.nn.cells import make_cell
from dagnn.nn.fused import fused_kind, fused_states, is_plain
from dagnn.nn.inputs import GraphInput, read_graph
from dagnn.nn.readout import Readout
from dagnn.ops.backends import check_backend, choose_backend
from dagnn.ops.pool import pool
from dagnn.ops.reference import layer_states

__all__ = ["DAGNN", "DAGNNLayer", "NodeStates"]


class NodeStates(NamedTuple):
    """Every node's states: ``states.forward[l]`` is :math:`h^l`, ``[N, C]`` or ``[N, H]``."""

    forward: list[Tensor]
    reverse: list[Tensor]


class DAGNNLayer(nn.Module):
    r"""One layer in one direction: an aggregator :math:`G` and a cell :math:`F`.

    .. math::
        h_v^{\ell} = F^{\ell}\Bigl( h_v^{\ell-1},\;
        G^{\ell}\bigl(\{h_u^{\ell} \mid u \in \mathcal{P}(v)\}, h_v^{\ell-1}\bigr) \Bigr)
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        *,
        aggregator: str = "attention",
        cell: str = "gru",
        edge_types: int | None = None,
        edge_channels: int | None = None,
        tie_edge_weight: bool = False,
    ) -> None:
        super().__init__()
        self.aggregator = make_aggregator(
            aggregator,
            in_channels,
            hidden_channels,
            edge_types=edge_types,
            edge_channels=edge_channels,
            tie_edge_weight=tie_edge_weight,
        )
        arity = edge_types if aggregator == "concat" else None
        self.cell = make_cell(
            cell, in_channels, self.aggregator.message_channels, hidden_channels, arity
        )

    def forward(
        self,
        x: Tensor,
        sweep: Sweep,
        edge_type: Tensor | None = None,
        edge_attr: Tensor | None = None,
    ) -> Tensor:
        """States ``[N, H]`` from inputs ``[N, C]``; nodes level-major, edges by slot."""
        edge = self.aggregator.embed_edges(edge_type, edge_attr)
        return layer_states(x, sweep, self.aggregator, self.cell, edge)


class DAGNN(nn.Module):
    r"""Directed acyclic graph neural network, equations (3) to (9) of
    `Thost and Chen (2021) <https://arxiv.org/abs/2101.07965>`_.

    With :math:`h_v^0 = x_v`, in every layer :math:`\ell = 1, \dots, L` and in the order of the DAG:

    .. math::
        m_v^{\ell} &= \sum_{u \in \mathcal{P}(v)} \alpha_{vu}^{\ell} h_u^{\ell}, \qquad
        \alpha_{vu}^{\ell} = \operatorname*{softmax}_{u \in \mathcal{P}(v)} \bigl(
        {w_1^{\ell}}^{\top} h_v^{\ell-1} + {w_2^{\ell}}^{\top} h_u^{\ell}
        + {w_3^{\ell}}^{\top} y_{\tau(u,v)} \bigr) \\
        h_v^{\ell} &= \mathrm{GRU}^{\ell}\bigl(h_v^{\ell-1},\; m_v^{\ell}\bigr)

    and the same on the reverse DAG with parameters of its own (:math:`\tilde h`). The graph is

    .. math::
        h_{\mathcal{G}} = \mathrm{FC}\Bigl(
        \operatorname*{max}_{v \in \mathcal{T}} \big\|_{\ell=0}^{L} h_v^{\ell} \;\Big\|\;
        \operatorname*{max}_{u \in \mathcal{S}} \big\|_{\ell=0}^{L} \tilde h_u^{\ell} \Bigr)

    where :math:`\mathcal{T}` are the nodes without successors and :math:`\mathcal{S}` those
    without predecessors. Nodes without predecessors receive the message zero.

    Args:
        in_channels: Width :math:`C` of the node features.
        hidden_channels: Width :math:`H` of the states.
        num_layers: The number of layers :math:`L`.
        out_channels: Width of the output; without it, there is no final linear layer and the
            output is the pooled states, :math:`D (C + L H)` wide in :math:`D` directions.
        bidirectional: Whether to process the reverse DAG too.
        aggregator: ``"attention"`` (additive), ``"dot_attention"``, ``"dynamic_attention"``,
            ``"gated_sum"``, ``"gated_edge_sum"``, ``"sum"``, ``"mean"``, ``"max"``, ``"mul"``,
            ``"epsilon_sum"`` or ``"concat"``; see :mod:`dagnn.nn.aggregators`.
        cell: ``"gru"``, ``"lstm"`` (Tree-LSTM's), ``"linear"`` or ``"tanh"``; see
            :mod:`dagnn.nn.cells`.
        readout: ``"max"``, ``"mean"``, ``"sum"``, ``"attention"`` or ``"gated_sum"``; see
            :class:`~dagnn.nn.readout.Readout`.
        readout_nodes: ``"targets"`` (in reverse: sources) or ``"all"``.
        edge_types: The number of edge types; each gets a trainable embedding :math:`y_\tau`.
        edge_channels: The width of edge features; :math:`y` is then a linear map of them.
        tie_edge_weight: Whether :math:`w_3 = w_1`, as in the paper's experiments.
        dropout: Dropout on the states passed from one layer to the next, as in
            :class:`torch.nn.GRU`.
        backend: ``"auto"`` (the fastest that can run the model on its device), or by name
            ``"reference"`` (any model, any device), ``"cpu"`` or ``"triton"`` (CUDA), which have
            fused kernels for attention and gated sums with GRU and linear cells. A backend asked
            for by name is used or refused with the reason.
        readout_layers: ``"all"`` pools the concatenation over layers 0 to L, ``"last"`` the last
            layer's states alone, as models without a notion of layers do.

    Shapes:
        * **input:** node features ``[N, C]``, edges ``[2, E]``, edge types ``[E]``, edge features
          ``[E, edge_channels]``, batch vector ``[N]``
        * **output:** ``[B, out_channels]``

    Example:
        >>> import torch
        >>> model = DAGNN(in_channels=4, hidden_channels=8, out_channels=3, bidirectional=True)
        >>> edge_index = torch.tensor([[0, 0, 1, 2], [1, 2, 3, 3]])
        >>> model(torch.randn(4, 4), edge_index).shape
        torch.Size([1, 3])
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        num_layers: int = 2,
        out_channels: int | None = None,
        *,
        bidirectional: bool = False,
        aggregator: str = "attention",
        cell: str = "gru",
        readout: str = "max",
        readout_nodes: str = "targets",
        edge_types: int | None = None,
        edge_channels: int | None = None,
        tie_edge_weight: bool = False,
        dropout: float = 0.0,
        backend: str = "auto",
        readout_layers: str = "all",
    ) -> None:
        super().__init__()
        sizes = {
            "in_channels": in_channels,
            "hidden_channels": hidden_channels,
            "num_layers": num_layers,
            "out_channels": out_channels,
            "edge_types": edge_types,
            "edge_channels": edge_channels,
        }
        for name, size in sizes.items():
            if size is not None and not isinstance(size, Integral):
                raise TypeError(f"expected {name} as an int, got {size!r}")
            if size is not None and size < 1:
                raise ValueError(f"expected {name} >= 1, got {size}")
        if readout_nodes not in ("targets", "all"):
            raise ValueError(f"expected readout_nodes 'targets' or 'all', got {readout_nodes!r}")
        if readout_layers not in ("all", "last"):
            raise ValueError(f"expected readout_layers 'all' or 'last', got {readout_layers!r}")
        if not 0 <= dropout < 1:
            raise ValueError(f"expected 0 <= dropout < 1, got {dropout}")
        self.in_channels = in_channels
        self.hidden_channels = hidden_channels
        self.num_layers = num_layers
        self.bidirectional = bidirectional
        self.readout_nodes = readout_nodes
        self.readout_layers = readout_layers
        self.edge_types = edge_types
        self.edge_channels = edge_channels
        self.dropout = dropout
        self.backend = backend

        def layers() -> nn.ModuleList:
            return nn.ModuleList(
                DAGNNLayer(
                    in_channels if layer == 0 else hidden_channels,
                    hidden_channels,
                    aggregator=aggregator,
                    cell=cell,
                    edge_types=edge_types,
                    edge_channels=edge_channels,
                    tie_edge_weight=tie_edge_weight,
                )
                for layer in range(num_layers)
            )

        width = hidden_channels
        if readout_layers == "all":
            width = in_channels + num_layers * hidden_channels
        self.forward_layers = layers()
        self.reverse_layers = layers() if bidirectional else nn.ModuleList()
        first: Any = self.forward_layers[0]
        parts = f"{type(first.aggregator).__name__} and {type(first.cell).__name__}"
        check_backend(backend, self._fused_kind, parts)
        self.forward_readout = Readout(width, readout)
        self.reverse_readout = Readout(width, readout) if bidirectional else None
        pooled = 2 * width if bidirectional else width
        self.out_channels = pooled if out_channels is None else out_channels
        self.lin = None if out_channels is None else nn.Linear(pooled, out_channels)

    def reset_parameters(self) -> None:
        """Draw all parameters anew."""
        for module in self.modules():
            reset: Any = getattr(module, "reset_parameters", None)
            if module is not self and reset is not None:
                reset()

    def forward(
        self,
        x: Tensor | Data,
        edge_index: Tensor | None = None,
        edge_type: Tensor | None = None,
        edge_attr: Tensor | None = None,
        batch: Tensor | None = None,
        schedule: LevelSchedule | None = None,
        batch_size: int | None = None,
    ) -> Tensor:
        r"""One vector per graph.

        Args:
            x: Node features, or a PyG ``Data`` or ``Batch`` that holds all the other arguments.
                ``[N, C]``
            edge_index: Edges. Not needed with :obj:`schedule`. ``[2, E]``
            edge_type: Edge types, if the model has :obj:`edge_types`. ``[E]``
            edge_attr: Edge features, if the model has :obj:`edge_channels`.
                ``[E, edge_channels]``
            batch: The graph of every node, ascending; by default all nodes are one graph. A
                graph without nodes pools to zero. ``[N]``
            schedule: The schedule of this very graph, if it is already there. It is trusted.
            batch_size: The number of graphs; by default the last entry of :obj:`batch` plus one.

        Returns:
            Graph vectors. ``[B, out_channels]``
        """
        graph = self._read(x, edge_index, edge_type, edge_attr, batch, schedule, batch_size)
        backend = self._backend(graph.x.device)
        pooled = self._pool(graph, self._states(graph, backend), backend)  # [B, S * (C + L * H)]
        return pooled if self.lin is None else self.lin(pooled)

    def embed_nodes(
        self,
        x: Tensor | Data,
        edge_index: Tensor | None = None,
        edge_type: Tensor | None = None,
        edge_attr: Tensor | None = None,
        schedule: LevelSchedule | None = None,
    ) -> NodeStates:
        r"""Every node's states per direction and layer, for tasks on nodes.

        Takes the arguments of :meth:`forward`; ``states.forward[l]`` is :math:`h^l` and
        ``states.reverse[l]`` :math:`\tilde h^l`, with :math:`h^0 = \tilde h^0 = x`, in the order
        of the nodes. Without :obj:`bidirectional`, ``states.reverse`` is empty.
        """
        graph = self._read(x, edge_index, edge_type, edge_attr, None, schedule, None)
        states = self._states(graph, self._backend(graph.x.device))
        directions = [
            [graph.x, *(h[d][rank] for h in states)] for d, rank in enumerate(graph.schedule.rank)
        ]
        return NodeStates(directions[0], directions[1] if self.bidirectional else [])

    @property
    def _fused_kind(self) -> tuple[str, str] | None:
        """See :func:`~dagnn.nn.fused.fused_kind`. Asked for each time, since layers may have been
        replaced, pruned or reparametrized."""
        layers: list[Any] = [*self.forward_layers, *self.reverse_layers]
        kinds = {fused_kind(layer.aggregator, layer.cell) for layer in layers}
        if len(kinds) > 1 or any(type(layer) is not DAGNNLayer for layer in layers):
            return None
        return kinds.pop() if all(map(is_plain, layers)) else None

    @property
    def is_fused(self) -> bool:
        """Whether a fused backend can run the model, where there is one for its device."""
        return self._fused_kind is not None and self.backend != "reference"

    @property
    def _parameter(self) -> Tensor:
        """One of them, for its device and dtype."""
        return next(self.forward_layers.parameters())

    def _backend(self, device: torch.device) -> str:
        dtype = self._parameter.dtype  # under autocast, features may have another
        kind = self._fused_kind
        if kind is None and self.backend in ("cpu", "triton"):  # it had one when it was made
            raise ValueError(
                f"expected layers as they were made with backend={self.backend!r}, got some with "
                "hooks (as pruning adds) or parametrizations, or of another type; use "
                "backend='auto' or 'reference'"
            )
        return choose_backend(self.backend, kind, device, dtype, self.hidden_channels)

    def path(self, device: torch.device | None = None) -> str:
        """What would run on a device, by default that of the model: ``"fused"`` or
        ``"reference"``."""
        try:
            backend = self._backend(self._parameter.device if device is None else device)
        except ValueError:  # refused when called, with the reason
            backend = self.backend
        return "reference" if backend == "reference" else "fused"

    def _states(self, graph: GraphInput, backend: str) -> list[Tensor]:
        """States of layers 1 to L, level-major, directions stacked. ``[S, N, H]`` each"""
        if backend == "reference":
            return self._reference_states(graph)
        return fused_states(
            graph.x,
            graph.schedule,
            [[*self.forward_layers], [*self.reverse_layers]][: graph.schedule.num_directions],
            graph.edge_type,
            graph.edge_attr,
            self.dropout if self.training else 0.0,
            backend,
        )

    def _reference_states(self, graph: GraphInput) -> list[Tensor]:
        directions = [(graph.schedule.forward, self.forward_layers)]
        if graph.schedule.reverse is not None:
            directions.append((graph.schedule.reverse, self.reverse_layers))
        columns = []
        for sweep, layers in directions:
            h = graph.x[sweep.order]
            edge_type = None if graph.edge_type is None else graph.edge_type[sweep.pred_edge]
            edge_attr = None if graph.edge_attr is None else graph.edge_attr[sweep.pred_edge]
            states: list[Tensor] = []
            for layer in layers:
                if states:
                    h = nn.functional.dropout(states[-1], self.dropout, self.training)
                states.append(layer(h, sweep, edge_type, edge_attr))
            columns.append(states)
        return [torch.stack(row) for row in zip(*columns, strict=True)]

    def _pool(self, graph: GraphInput, states: list[Tensor], backend: str) -> Tensor:
        """Concatenate layers 0 to L of the readout's nodes, pool each graph, join directions."""
        schedule, size = graph.schedule, graph.batch_size
        x = graph.x if self.readout_layers == "all" else None
        states = states if self.readout_layers == "all" else states[-1:]
        nodes = [schedule.targets, schedule.sources][: schedule.num_directions]
        if self.readout_nodes == "all":
            nodes = []
        if self.forward_readout.is_elementwise:
            mode = self.forward_readout.mode
            kernels = "torch" if backend == "reference" else backend
            return pool(x, states, nodes, schedule.rank, graph.batch, size, mode, kernels)
        pooled = []
        for d, readout in enumerate([self.forward_readout, self.reverse_readout]):
            if readout is None:
                continue
            node = nodes[d] if nodes else torch.arange(schedule.num_nodes, device=graph.x.device)
            place = schedule.rank[d].index_select(0, node)
            rows = [h[d].index_select(0, place) for h in states]
            if x is not None:
                rows.insert(0, x.index_select(0, node))
            index = torch.zeros_like(node)
            if graph.batch is not None:
                index = graph.batch.index_select(0, node)
            pooled.append(readout(torch.cat(rows, dim=-1), index, size))  # [B, C + L * H]
        return torch.cat(pooled, dim=-1)

    def _read(self, *arguments: Any) -> GraphInput:
        return read_graph(self, *arguments)

    def extra_repr(self) -> str:
        return (
            f"{self.in_channels}, {self.hidden_channels}, num_layers={self.num_layers}, "
            f"out_channels={self.out_channels}, bidirectional={self.bidirectional}, "
            f"readout_nodes={self.readout_nodes!r}, readout_layers={self.readout_layers!r}, "
            f"dropout={self.dropout}, backend={self.backend!r}, path={self.path()!r}"
        )
