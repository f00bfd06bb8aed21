r"""From and to other forms of a graph: networkx and dense adjacency matrices.

The form in the middle is PyG's ``Data``: ``edge_index`` with an edge :math:`(u, v)` per column,
``num_nodes``, a list ``node_names`` where nodes have names, and any of these tensors (integers
are ``torch.long``, other numbers of torch's default dtype):

- of the nodes, ``[N, …]``: ``x``; ``level`` and ``reverse_level`` (see :class:`dagnn.AddLevels`),
- of the edges, ``[E, …]``: ``edge_type`` (integers), ``edge_attr``,
- of the graph: ``y``.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import networkx as nx
import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from dagnn.graph.checks import check_edge_index
from dagnn.graph.levels import CycleError, topological_levels

__all__ = ["from_adjacency", "from_networkx", "to_adjacency", "to_networkx"]

NODE_FIELDS = ("x", "level", "reverse_level")
EDGE_FIELDS = ("edge_type", "edge_attr")
GRAPH_FIELDS = ("y",)
INTEGER_FIELDS = ("level", "reverse_level", "edge_type")
FIELDS = (*NODE_FIELDS, *EDGE_FIELDS, *GRAPH_FIELDS)


def from_networkx(graph: nx.DiGraph, *, allow_cycles: bool = False) -> Data:
    """A ``Data`` from a networkx ``DiGraph`` or ``MultiDiGraph`` (whose parallel edges are kept).

    Nodes and edges keep the order in which networkx lists them; ``node_names`` keeps the names.
    The attributes ``x``, ``level`` and ``reverse_level`` of nodes, ``edge_type`` and
    ``edge_attr`` of edges, and ``y`` of the graph (numbers, or lists of numbers) become tensors.
    Attributes of other names stay behind, and a graph without edges has none of edges.

    Raises:
        CycleError: If there is a cycle, unless :obj:`allow_cycles`; it names the nodes.

    Example:
        >>> import networkx as nx
        >>> graph = nx.DiGraph([("flour", "dough"), ("water", "dough")])
        >>> data = from_networkx(graph)
        >>> data.node_names, data.edge_index.tolist()
        (['flour', 'dough', 'water'], [[0, 2], [1, 1]])
    """
    if not isinstance(graph, nx.DiGraph):
        raise TypeError(
            f"expected a networkx.DiGraph, got {type(graph).__name__}; "
            "give each edge a direction first"
        )
    names = list(graph.nodes)
    index = {name: i for i, name in enumerate(names)}
    edges = [(index[u], index[v]) for u, v in graph.edges()]
    fields = {key: graph.graph.get(key) for key in GRAPH_FIELDS}
    fields |= {key: _column(key, graph.nodes(data=True)) for key in NODE_FIELDS}
    edge_attributes = [((u, v), attributes) for u, v, attributes in graph.edges(data=True)]
    fields |= {key: _column(key, edge_attributes) for key in EDGE_FIELDS}
    try:
        data = assemble(len(names), edges, fields, allow_cycles)
    except CycleError as error:
        raise CycleError.of([names[v] for v in error.cycle]) from None
    data.node_names = names
    return data


def _column(key: str, owners: Collection[tuple[Any, dict[str, Any]]]) -> list[Any] | None:
    """One attribute of all nodes or edges, or nothing if none has it."""
    without = [name for name, attributes in owners if key not in attributes]
    if owners and not without:
        return [attributes[key] for _, attributes in owners]
    if len(without) < len(owners):
        raise ValueError(
            f"expected the attribute {key!r} everywhere or nowhere, but {without[0]!r} has none; "
            "set it there, or remove it from the others"
        )
    return None


def to_networkx(data: Data) -> nx.DiGraph:
    """A networkx ``DiGraph``, or a ``MultiDiGraph`` if an edge occurs twice.

    The inverse of :func:`from_networkx`: nodes are called by ``node_names``, or 0 to N - 1
    without; networkx lists the edges by source.

    Example:
        >>> import torch
        >>> data = Data(edge_index=torch.tensor([[0], [1]]), x=torch.tensor([7, 8]))
        >>> to_networkx(data).nodes(data=True)
        NodeDataView({0: {'x': 7}, 1: {'x': 8}})
    """
    num_nodes, edge_index, tensors = take_apart(data)
    names = data.get("node_names", list(range(num_nodes)))
    check_node_names(names, num_nodes)
    fields = {key: tensor.tolist() for key, tensor in tensors.items()}
    edges = edge_index.t().tolist()
    repeated = len(set(map(tuple, edges))) < len(edges)
    graph = nx.MultiDiGraph() if repeated else nx.DiGraph()
    for i, name in enumerate(names):
        graph.add_node(name, **{key: fields[key][i] for key in NODE_FIELDS if key in fields})
    for e, (u, v) in enumerate(edges):
        attributes = {key: fields[key][e] for key in EDGE_FIELDS if key in fields}
        graph.add_edge(names[u], names[v], **attributes)
    graph.graph.update({key: fields[key] for key in GRAPH_FIELDS if key in fields})
    return graph


def from_adjacency(adjacency: Tensor | np.ndarray, *, allow_cycles: bool = False) -> Data:
    r"""A ``Data`` from a dense matrix with :math:`A_{uv} = 1` for an edge :math:`u \to v`.

    Args:
        adjacency: Zeros and ones, of any dtype. ``[N, N]``
        allow_cycles: Whether a cycle is not an error.

    Returns:
        Edges in the order of the matrix, row by row, on its device.

    Example:
        >>> import numpy as np
        >>> from_adjacency(np.array([[0, 1, 1], [0, 0, 1], [0, 0, 0]])).edge_index
        tensor([[0, 0, 1],
                [1, 2, 2]])
    """
    if isinstance(adjacency, np.ndarray) and adjacency.dtype.kind in "biuf":
        adjacency = torch.tensor(adjacency)
    if not isinstance(adjacency, Tensor) or adjacency.layout != torch.strided:
        kind = adjacency.dtype if isinstance(adjacency, np.ndarray) else type(adjacency).__name__
        raise TypeError(f"expected a dense torch.Tensor or numpy array of numbers, got {kind}")
    if adjacency.dim() != 2 or adjacency.size(0) != adjacency.size(1):
        raise ValueError(f"expected a square adjacency matrix, got {list(adjacency.shape)}")
    edge = adjacency != 0
    strange = edge & (adjacency != 1)
    if bool(strange.any()):
        u, v = strange.nonzero()[0].tolist()
        raise ValueError(
            f"expected zeros and ones in the adjacency matrix, got {adjacency[u, v].item()} at "
            f"[{u}, {v}]; pass adjacency != 0, and the weights of the edges as edge_attr"
        )
    return assemble(adjacency.size(0), edge.nonzero(), {}, allow_cycles)


def to_adjacency(data: Data) -> Tensor:
    r"""The dense matrix with :math:`A_{uv} = 1` for an edge :math:`u \to v`, as ``torch.long``.

    Returns:
        ``[N, N]``, on the graph's device.

    Example:
        >>> import torch
        >>> to_adjacency(Data(edge_index=torch.tensor([[0, 0], [1, 2]]), num_nodes=3))
        tensor([[0, 1, 1],
                [0, 0, 0],
                [0, 0, 0]])
    """
    num_nodes, edge_index, _ = take_apart(data)
    adjacency = edge_index.new_zeros(num_nodes, num_nodes)
    adjacency.index_put_(tuple(edge_index), edge_index.new_ones(()), accumulate=True)
    if bool((adjacency > 1).any()):
        u, v = (adjacency > 1).nonzero()[0].tolist()
        raise ValueError(
            f"expected every edge once, since a matrix of zeros and ones cannot count them, got "
            f"{u} -> {v} {int(adjacency[u, v])} times; remove duplicates with data.coalesce()"
        )
    return adjacency


def check_node_names(names: Any, num_nodes: int, kinds: tuple[type, ...] = (object,)) -> None:
    if not isinstance(names, list) or len(names) != num_nodes:
        found = f"{len(names)}" if isinstance(names, list) else type(names).__name__
        raise ValueError(f"expected node_names as a list of {num_nodes} names, got {found}")
    for name in names:
        if not isinstance(name, kinds):
            raise TypeError(f"expected strings or numbers in node_names, got {name!r}")
    if len(set(names)) < len(names):
        raise ValueError("expected different node_names, got one of them twice")


def assemble(num_nodes: int, edges: Any, fields: dict[str, Any], allow_cycles: bool) -> Data:
    """A checked graph from (nested lists of) numbers; :obj:`edges` are pairs."""
    pairs = _tensor("edges", edges)
    if pairs.numel() == 0:
        pairs = pairs.new_empty((0, 2), dtype=torch.long)
    if pairs.dtype != torch.long or pairs.dim() != 2 or pairs.size(1) != 2:
        raise ValueError(
            f"expected edges as pairs of integers, got {pairs.dtype} of shape {list(pairs.shape)}"
        )
    edge_index = pairs.t().contiguous()
    check_edge_index(edge_index, num_nodes)
    if not allow_cycles:
        topological_levels(edge_index, num_nodes)
    tensors = _tensors(fields, num_nodes, len(pairs))
    return Data(edge_index=edge_index, num_nodes=num_nodes, **tensors)


def take_apart(data: Data) -> tuple[int, Tensor, dict[str, Tensor]]:
    """The number of nodes, ``edge_index`` and the known tensors of a checked graph."""
    if not isinstance(data, Data) or isinstance(data, Batch):
        raise TypeError(
            f"expected the torch_geometric.data.Data of one graph, got {type(data).__name__}; "
            "a Batch comes apart with to_data_list()"
        )
    num_nodes = data.num_nodes or 0
    check_edge_index(data.edge_index, num_nodes)
    return num_nodes, data.edge_index, _tensors(data, num_nodes, data.edge_index.size(1))


def _tensors(fields: Any, num_nodes: int, num_edges: int) -> dict[str, Tensor]:
    size = dict.fromkeys(NODE_FIELDS, num_nodes) | dict.fromkeys(EDGE_FIELDS, num_edges)
    tensors = {}
    for key in FIELDS:
        if fields.get(key) is None:
            continue
        tensor = _tensor(key, fields.get(key))
        if key in INTEGER_FIELDS and tensor.numel() == 0:
            tensor = tensor.long()
        if key in INTEGER_FIELDS and tensor.dtype != torch.long:
            raise TypeError(f"expected {key} of dtype torch.int64, got {tensor.dtype}")
        if key in size and tensor.shape[:1] != (size[key],):
            of = "node" if key in NODE_FIELDS else "edge"
            raise ValueError(
                f"expected {key} with one row per {of}, {size[key]} in all, "
                f"got shape {list(tensor.shape)}"
            )
        tensors[key] = tensor
    return tensors


def _tensor(key: str, value: Any) -> Tensor:
    if isinstance(value, Tensor):
        return value
    value = [_plain(row) for row in value] if isinstance(value, list) else _plain(value)
    try:
        return torch.tensor(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"expected numbers in lists of equal length in {key}: {error}") from None


def _plain(value: Any) -> Any:
    """Python's numbers in place of numpy's and torch's, whose dtypes would otherwise win."""
    return value.tolist() if isinstance(value, np.ndarray | np.generic | Tensor) else value
