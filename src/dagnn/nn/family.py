r"""The family of Section 3 of the paper: earlier models as configurations of :class:`DAGNN`.

All of them compute, in the order of the DAG and for a tree from the leaves up,

.. math::
    h_v = F\bigl(x_v,\; G(\{h_u \mid u \in \mathcal{P}(v)\})\bigr)

in one layer, and differ in the aggregator :math:`G` and the cell :math:`F` alone. The predecessors
of a node of a tree are its children, so edges go from child to parent. The vector of a graph is
the state of its target (a tree's root), ``[B, H]``; where there are several targets, their states
are pooled as :obj:`readout` says.

=========================== ============= ======== ============================================
model                       aggregator    cell     what else
=========================== ============= ======== ============================================
:class:`RecursiveNetwork`   ``concat``    ``tanh`` internal nodes have no input
:func:`tree_lstm`           ``sum``       ``lstm`` child-sum
:func:`tree_lstm`, N-ary    ``concat``    ``lstm`` a forget gate of its own for each child
:func:`dag_rnn`             ``sum``       ``tanh``
:class:`DVAEEncoder`        ``gated_sum`` ``gru``  gates see the sender's position in the graph
=========================== ============= ======== ============================================
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from dagnn.graph.padding import has_filler
from dagnn.graph.schedule import LevelSchedule, Sweep
from dagnn.nn.dagnn import DAGNN
from dagnn.nn.inputs import GraphInput, read_graph

__all__ = ["DVAEEncoder", "RecursiveNetwork", "dag_rnn", "tree_lstm"]


class RecursiveNetwork(DAGNN):
    r"""The recursive neural network on trees of `Socher et al. (2011)
    <https://icml.cc/2011/papers/125_icmlpaper.pdf>`_: leaves have an input, internal nodes have
    up to :math:`K` ordered children and no input.

    .. math::
        h_v = \begin{cases}
        \tanh(W x_v + b) & \text{if } v \text{ is a leaf} \\
        \tanh(U [h_{u_1} \,\|\, \dots \,\|\, h_{u_K}] + b) & \text{otherwise}
        \end{cases}

    with :math:`W` ``[H, C]``, :math:`U` ``[H, K H]``, and :math:`u_k` the child over the edge of
    type :math:`k - 1`; a missing child counts as zero. Features of internal nodes are ignored. (A
    constant feature gives leaves a bias of their own.)

    Args:
        in_channels: Width :math:`C` of the leaves' features.
        hidden_channels: Width :math:`H` of the states.
        arity: The largest number of children :math:`K`.
        options: Further options of :class:`DAGNN`, such as :obj:`out_channels`.

    Example:
        >>> import torch
        >>> model = RecursiveNetwork(in_channels=5, hidden_channels=8, arity=2)
        >>> children_to_root = torch.tensor([[0, 1], [2, 2]])
        >>> model(torch.randn(3, 5), children_to_root, edge_type=torch.tensor([0, 1])).shape
        torch.Size([1, 8])
    """

    def __init__(self, in_channels: int, hidden_channels: int, arity: int, **options: Any) -> None:
        settings: dict[str, Any] = {"num_layers": 1, "readout_layers": "last", **options}
        if settings.get("bidirectional"):
            raise ValueError(
                "expected bidirectional=False, got True: a recursive network runs from the leaves "
                "to the root"
            )
        super().__init__(
            in_channels,
            hidden_channels,
            aggregator="concat",
            cell="tanh",
            edge_types=arity,
            **settings,
        )

    def _read(self, *args: Any) -> Any:
        graph = super()._read(*args)
        sweep = graph.schedule.forward
        internal = sweep.pred_ptr.diff()[sweep.rank] > 0  # [N]
        return graph._replace(x=graph.x.masked_fill(internal.unsqueeze(-1), 0.0))


def tree_lstm(
    in_channels: int, hidden_channels: int, arity: int | None = None, **options: Any
) -> DAGNN:
    r"""The Tree-LSTM of `Tai et al. (2015) <https://arxiv.org/abs/1503.00075>`_.

    Child-sum, for any number of unordered children (:obj:`arity` :math:`= None`), with
    :math:`m_v = \sum_{u} h_u`; the N-ary form, for up to :math:`N` ordered children, with
    :math:`m_v = [h_{u_1} \| \dots \| h_{u_N}]` and the child's place as the edge's type:

    .. math::
        i, o, g &= \sigma(W_i x_v + U_i m_v + b_i),\; \sigma(W_o x_v + U_o m_v + b_o),\;
                   \tanh(W_g x_v + U_g m_v + b_g) \\
        f_{vu} &= \begin{cases}
        \sigma(W_f x_v + U_f h_u + b_f) & \text{child-sum} \\
        \sigma(W_f x_v + U_f^{(k)} m_v + b_f) & \text{N-ary, } u = u_k
        \end{cases} \\
        c_v &= i \odot g + \sum_{u} f_{vu} \odot c_u, \qquad h_v = o \odot \tanh(c_v)

    with :math:`W` ``[H, C]``; :math:`U` ``[H, H]`` for child-sum and ``[H, N H]`` for N-ary.

    Args:
        in_channels: Width :math:`C` of the node features.
        hidden_channels: Width :math:`H` of the states.
        arity: The largest number of children :math:`N`; none for child-sum.
        options: Further options of :class:`DAGNN`; ``aggregator="mul"`` is the variant with an
            elementwise product of the children.

    Example:
        >>> import torch
        >>> tree = torch.tensor([[0, 1], [2, 2]])
        >>> tree_lstm(5, 8)(torch.randn(3, 5), tree).shape
        torch.Size([1, 8])
        >>> tree_lstm(5, 8, arity=2)(torch.randn(3, 5), tree, torch.tensor([0, 1])).shape
        torch.Size([1, 8])
    """
    form = {"aggregator": "sum"} if arity is None else {"aggregator": "concat", "edge_types": arity}
    settings: dict[str, Any] = {"num_layers": 1, "readout_layers": "last", **form, **options}
    return DAGNN(in_channels, hidden_channels, cell="lstm", **settings)


def dag_rnn(in_channels: int, hidden_channels: int, **options: Any) -> DAGNN:
    r"""The DAG-RNN of `Shuai et al. (2016) <https://arxiv.org/abs/1509.00552>`_:

    .. math::
        h_v = \tanh\Bigl(W x_v + U \sum_{u \in \mathcal{P}(v)} h_u + b\Bigr)

    with :math:`W` ``[H, C]`` and :math:`U` ``[H, H]``. Node-level outputs are those of
    :meth:`DAGNN.embed_nodes`.

    Args:
        in_channels: Width :math:`C` of the node features.
        hidden_channels: Width :math:`H` of the states.
        options: Further options of :class:`DAGNN`.

    Example:
        >>> import torch
        >>> model = dag_rnn(5, 8)
        >>> model(torch.randn(3, 5), torch.tensor([[0, 1], [2, 2]])).shape
        torch.Size([1, 8])
    """
    settings: dict[str, Any] = {"num_layers": 1, "readout_layers": "last", **options}
    return DAGNN(in_channels, hidden_channels, aggregator="sum", cell="tanh", **settings)


class DVAEEncoder(nn.Module):
    r"""The encoder of D-VAE, `Zhang et al. (2019) <https://arxiv.org/abs/1904.11088>`_: one layer
    of gated sums, in which a sender is known by its state and its place in the graph.

    .. math::
        m_v = \sum_{u \in \mathcal{P}(v)} \sigma(W_g z_u + b_g) \odot (W_m z_u), \qquad
        z_u = [h_u \,\|\, \mathrm{id}_u], \qquad h_v = \mathrm{GRU}(x_v, m_v)

    where :math:`\mathrm{id}_u` is one-hot, ``[max_nodes]``, and :math:`W_g, W_m`
    ``[H, H + max_nodes]``. The graph is the state of its target (the output node),
    :math:`h_{\mathcal{G}} = h_t`; with both directions, :math:`h_{\mathcal{G}} = W [h_t \,\|\,
    \tilde h_s] + b`, ``[H]``, with the source's (the input node's) state in the reverse DAG.
    Several targets or sources are pooled by their maximum.

    With ``gate="features"``, the form for Bayesian networks, :math:`z_u = x_u` (one-hot types)
    and :math:`h_{\mathcal{G}}` is the sum over all nodes: give it the real nodes alone.

    Args:
        in_channels: Width :math:`C` of the node features, in D-VAE the number of types.
        hidden_channels: Width :math:`H` of the states.
        max_nodes: The largest number of nodes of a graph; needed with ``gate="states"``.
        bidirectional: Whether to process the reverse DAG too, with parameters of its own.
        gate: What is gated: ``"states"`` (with ids) or ``"features"``.

    Example:
        >>> import torch
        >>> model = DVAEEncoder(in_channels=5, hidden_channels=8, max_nodes=4, bidirectional=True)
        >>> edge_index = torch.tensor([[0, 0, 1, 2], [1, 2, 3, 3]])
        >>> model(torch.eye(5)[[0, 2, 3, 1]], edge_index).shape
        torch.Size([1, 8])
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        max_nodes: int | None = None,
        *,
        bidirectional: bool = False,
        gate: str = "states",
    ) -> None:
        super().__init__()
        if gate not in ("states", "features"):
            raise ValueError(f"expected gate 'states' or 'features', got {gate!r}")
        if (max_nodes is None) == (gate == "states"):
            raise ValueError(
                f"expected max_nodes with gate='states' and without it with gate='features', got "
                f"{gate=} and {max_nodes=}"
            )
        self.in_channels = in_channels
        self.max_nodes = max_nodes
        self.bidirectional = bidirectional
        # What edges say of their senders is made of the nodes: those of a caller are not used.
        self.edge_types: int | None = None
        self.edge_channels: int | None = None
        form: dict[str, Any] = (
            {"aggregator": "gated_sum", "edge_types": max_nodes}
            if gate == "states"
            else {
                "aggregator": "gated_edge_sum",
                "edge_channels": in_channels,
                "readout": "sum",
                "readout_nodes": "all",
            }
        )

        def direction() -> DAGNN:
            return DAGNN(
                in_channels,
                hidden_channels,
                num_layers=1,
                readout_layers="last",
                **form,
            )

        self.forward_model = direction()
        self.reverse_model = direction() if bidirectional else None
        self.lin = nn.Linear(2 * hidden_channels, hidden_channels) if bidirectional else None

    def reset_parameters(self) -> None:
        """Draw all parameters anew."""
        for module in (self.forward_model, self.reverse_model, self.lin):
            if module is not None:
                module.reset_parameters()

    def forward(
        self,
        x: Tensor | Data,
        edge_index: Tensor | None = None,
        batch: Tensor | None = None,
        schedule: LevelSchedule | None = None,
        batch_size: int | None = None,
        node_id: Tensor | None = None,
    ) -> Tensor:
        r"""One vector per graph.

        Args:
            x: Node features, or a PyG ``Data`` or ``Batch`` that holds all the other arguments.
                ``[N, C]``
            edge_index: Edges. Not needed with :obj:`schedule`. ``[2, E]``
            batch: The graph of every node, ascending; by default all nodes are one graph. ``[N]``
            schedule: The schedule of this very graph, if it is already there.
            batch_size: The number of graphs.
            node_id: The place of every node in its graph; by default nodes are numbered from zero
                in the order in which they come, which should be a topological one. ``[N]``

        Returns:
            Graph vectors. ``[B, H]``
        """
        graph = read_graph(self, x, edge_index, None, None, batch, schedule, batch_size)
        sent = graph.x
        if self.max_nodes is not None:
            if node_id is None and isinstance(x, Data):
                node_id = x.get("node_id")
            if node_id is None:
                node_id = _places(graph, isinstance(x, Data) and has_filler(x))
            sent = node_id
            if len(sent) != len(graph.x):
                raise ValueError(
                    f"expected node_id with a row for each of the {len(graph.x)} nodes, got "
                    f"{len(sent)}"
                )
            # As in DAGNN, values are read where that does not make the host wait for a device.
            if graph.x.device.type == "cpu" and len(sent) and int(sent.max()) >= self.max_nodes:
                raise ValueError(
                    f"expected graphs of at most max_nodes={self.max_nodes} nodes, got a node "
                    f"with id {int(sent.max())}"
                )
        h = self._run(self.forward_model, graph, sent)
        if self.lin is None:
            return h
        assert self.reverse_model is not None
        flipped = graph._replace(schedule=graph.schedule.flip())
        reverse = self._run(self.reverse_model, flipped, sent)
        out: Tensor = self.lin(torch.cat([h, reverse], dim=-1))
        return out

    @property
    def _parameter(self) -> Tensor:
        """One of them, for its device and dtype."""
        return self.forward_model._parameter

    def _run(self, model: DAGNN, graph: GraphInput, sent: Tensor) -> Tensor:
        """What a node sends is known of it, so it is known of the edge it is sent over."""
        by_edge = sent[_senders(graph.schedule.forward)]
        key = "edge_attr" if self.max_nodes is None else "edge_type"
        out: Tensor = model(
            graph.x,
            batch=graph.batch,
            schedule=graph.schedule,
            batch_size=graph.batch_size,
            **{key: by_edge},
        )
        return out


def _places(graph: GraphInput, padded: bool) -> Tensor:
    """The place of every node in its graph. ``[N]``"""
    node = torch.arange(len(graph.x), device=graph.x.device)
    if graph.batch is None:
        return node
    place = node - torch.searchsorted(graph.batch, graph.batch)  # minus the graph's first node
    # The filler, which is last, may have more nodes than the model has places.
    return place.masked_fill(graph.batch == graph.batch[-1], 0) if padded else place


def _senders(sweep: Sweep) -> Tensor:
    """The node that sends over each edge. ``[E]``"""
    return torch.empty_like(sweep.pred).scatter(0, sweep.pred_edge, sweep.order[sweep.pred])
