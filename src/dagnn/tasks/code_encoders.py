"""From a batch of code graphs to one vector per function, by any of eleven models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch

from dagnn.graph.padding import has_filler
from dagnn.nn.aggregators import AGGREGATORS
from dagnn.nn.cells import CELLS
from dagnn.nn.dagnn import DAGNN
from dagnn.nn.lookup import Lookup
from dagnn.nn.mpnn import GGNN, MPNN, BagOfNodes, PoolingMPNN
from dagnn.nn.readout import READOUTS

__all__ = [
    "DAG_OPTIONS",
    "DYNAMIC",
    "MODELS",
    "RECURRENT",
    "CodeEncoder",
    "EncoderConfig",
    "NodeEmbedding",
    "model_options",
]

# The number of layers of each model in the paper, which has no bag of nodes.
MODELS = {
    "dagnn": 2,
    "dvae": 1,
    "gcn": 5,
    "gin": 5,
    "gcn-vn": 5,
    "gin-vn": 5,
    "gat": 5,
    "ggnn": 5,
    "sagpool": 5,
    "asap": 3,
    "bag": 0,
}
RECURRENT = ("dagnn", "dvae")  # they walk along the DAG
DYNAMIC = ("sagpool", "asap")  # which nodes and edges they drop depends on what they learn
DAG_OPTIONS = ("aggregator", "cell", "pool", "readout", "edge_attributes", "bidirectional")
CHOICES = {
    "aggregator": AGGREGATORS,
    "cell": CELLS,
    "pool": ("targets", "all"),
    "readout": READOUTS,
}
NUM_DEPTHS = 21  # 0 to 20
NUM_EDGE_TYPES = 2


def model_options(model: str) -> tuple[str, ...]:
    """The names of the options of :class:`EncoderConfig` that not all models have."""
    return {"dagnn": DAG_OPTIONS, "dvae": ("bidirectional",)}.get(model, ())


@dataclass(frozen=True)
class EncoderConfig:
    """A model of code graphs.

    Args:
        model: One of :data:`MODELS`.
        channels: Width of node features, states and the graph vector.
        layers: By default as many as in the paper.
        depth: Whether nodes know their depth in the syntax tree.
        dropout: While training, of the node features and of the graph vector, whichever the model.
            By default none, but 0.5 on the output of SAGPool and ASAP, as their authors have it.
        aggregator: Of DAGNN: ``"attention"``, ``"dot_attention"``, ``"dynamic_attention"``,
            ``"gated_sum"``, …; see :class:`dagnn.DAGNN`.
        cell: Of DAGNN: ``"gru"``, or ``"linear"`` to combine input and message linearly.
        pool: Of DAGNN: ``"targets"`` (in reverse: sources) or ``"all"``, the nodes to pool.
        readout: Of DAGNN: ``"max"``, ``"mean"``, ``"sum"``, ``"attention"`` or ``"gated_sum"``, how
            they are pooled.
        edge_attributes: Of DAGNN: whether attention sees the types of edges; other aggregators do
            not.
        bidirectional: Of DAGNN and D-VAE.
    """

    model: str = "dagnn"
    channels: int = 300
    layers: int | None = None
    depth: bool = True
    dropout: float | None = None
    aggregator: str = "attention"
    cell: str = "gru"
    pool: str = "targets"
    readout: str = "max"
    edge_attributes: bool = True
    bidirectional: bool = True

    def __post_init__(self) -> None:
        if self.model not in MODELS:
            raise ValueError(f"expected a model of {', '.join(MODELS)}, got {self.model!r}")
        if self.model == "bag" and self.layers:
            raise ValueError(f"expected no layers with the model bag, got {self.layers}")
        for name in ("channels", "layers"):
            value = getattr(self, name)
            if value is not None and value < 1 and not (name == "layers" and self.model == "bag"):
                raise ValueError(f"expected {name} >= 1, got {value}")
        if self.dropout is not None and not 0 <= self.dropout < 1:
            raise ValueError(f"expected 0 <= dropout < 1, got {self.dropout}")
        for name, known in CHOICES.items():
            if (value := getattr(self, name)) not in known:
                raise ValueError(f"expected {name} to be one of {', '.join(known)}, got {value!r}")
        changed = [o for o in DAG_OPTIONS if getattr(self, o) != getattr(type(self), o)]
        for option in changed:
            if option not in model_options(self.model):
                raise ValueError(
                    f"expected {option} with the model dagnn, got it with {self.model}"
                )

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> EncoderConfig:
        """The inverse of :meth:`to_dict`."""
        known = {field.name for field in fields(cls)}
        unknown = set(values) - known
        if unknown:
            raise ValueError(f"expected settings of {', '.join(sorted(known))}, got {unknown}")
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """The settings as they are stored. A readout is among them where it is not the paper's: it
        is younger than many runs and records, which thus stay what they were."""
        values = asdict(self)
        if self.readout == "max":
            del values["readout"]
        return values

    @property
    def num_layers(self) -> int:
        return MODELS[self.model] if self.layers is None else self.layers


class NodeEmbedding(nn.Module):
    r"""A node's features: the sum of embeddings of its type, its attribute and its depth.

    .. math::
        x_v = E^{\mathrm{type}}_{t(v)} + E^{\mathrm{attribute}}_{a(v)} + E^{\mathrm{depth}}_{d(v)}
    """

    def __init__(self, node_types: int, attributes: int, channels: int, depth: bool) -> None:
        super().__init__()
        self.node_type = Lookup(node_types, channels)
        self.attribute = Lookup(attributes, channels)
        self.depth = Lookup(NUM_DEPTHS, channels) if depth else None

    def forward(self, batch: Batch) -> Tensor:
        """Features of all nodes of a batch. ``[N, C]``"""
        x: Tensor = self.node_type(batch.node_type.int()) + self.attribute(batch.attribute.int())
        if self.depth is not None:
            x = x + self.depth(batch.depth.int())
        return x


class CodeEncoder(nn.Module):
    """A model of :data:`MODELS` over batches of a :class:`dagnn.datasets.code_dataset.CodeDataset`:
    ``encoder(batch)`` is ``[G, out_channels]``.

    D-VAE's encoder is one layer of gated sums, of which the states of targets and sources are
    pooled. Its one-hot node ids are left out, as functions have any number of nodes.

    Args:
        config: The model.
        node_types: The number of types of nodes.
        attributes: The number of attributes.
    """

    def __init__(self, config: EncoderConfig, node_types: int, attributes: int) -> None:
        super().__init__()
        self.config = config
        self.embedding = NodeEmbedding(node_types, attributes, config.channels, config.depth)
        self.body = _body(config)
        self.out_channels = config.channels

    @property
    def is_recurrent(self) -> bool:
        """Whether batches should carry their schedules."""
        return self.config.model in RECURRENT

    @property
    def is_fused(self) -> bool:
        """Whether the model runs as one operator, without a look at the schedule on the host."""
        return isinstance(self.body, DAGNN) and self.body.is_fused

    def runs_reference(self, device: torch.device) -> bool:
        """Whether a recurrent model would run without its fused path there."""
        return isinstance(self.body, DAGNN) and self.body.path(device) == "reference"

    @property
    def is_static(self) -> bool:
        """Whether a training step may be captured: its sizes follow from those of the batch,
        nothing in it waits for the device, and a padded batch's graphs come out as without padding
        (but for the masks of dropout, which are drawn for all nodes)."""
        return self.is_fused or isinstance(self.body, MPNN | GGNN | BagOfNodes)

    def forward(self, batch: Batch) -> Tensor:
        """One vector per function. ``[G, C]``"""
        return self._drop(self._vectors(self._drop(self.embedding(batch)), batch))

    def _drop(self, values: Tensor) -> Tensor:
        rate = self.config.dropout
        return nn.functional.dropout(values, rate, self.training) if rate else values

    def _vectors(self, x: Tensor, batch: Batch) -> Tensor:
        if self.is_recurrent:
            out: Tensor = self.body(
                x,
                edge_type=batch.edge_type.long(),
                batch=batch.batch,
                schedule=batch.schedule,
                batch_size=batch.num_graphs,
            )
            return out
        graph = batch.edge_index, batch.edge_type, batch.batch, batch.num_graphs
        # In the others, without batch normalization, graphs do not meet.
        filler = {"has_filler": has_filler(batch)} if isinstance(self.body, MPNN) else {}
        out = self.body(x, *graph, **filler)
        return out


def _body(config: EncoderConfig) -> nn.Module:
    channels, layers = config.channels, config.num_layers
    sees_edges = config.edge_attributes and config.aggregator.endswith("attention")
    if config.model == "dagnn":
        return DAGNN(
            channels,
            channels,
            layers,
            channels,
            bidirectional=config.bidirectional,
            aggregator=config.aggregator,
            cell=config.cell,
            readout=config.readout,
            readout_nodes=config.pool,
            edge_types=NUM_EDGE_TYPES if sees_edges else None,
        )
    if config.model == "dvae":
        return DAGNN(
            channels,
            channels,
            layers,
            channels,
            bidirectional=config.bidirectional,
            aggregator="gated_sum",
            readout_layers="last",
        )
    if config.model == "ggnn":
        return GGNN(channels, layers)
    if config.model == "bag":
        return BagOfNodes(channels)
    if config.model in DYNAMIC:
        own = {} if config.dropout is None else {"dropout": 0.0}
        return PoolingMPNN(channels, layers, config.model.removesuffix("pool"), **own)
    conv, _, virtual = config.model.partition("-")
    return MPNN(channels, layers, conv, virtual_node=virtual == "vn")
