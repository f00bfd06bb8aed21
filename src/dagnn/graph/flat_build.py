"""What a :class:`dagnn.FlatGraphs` is made of: from PyG's ``Data`` to columns, and their checks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from dagnn.graph import compiled
from dagnn.graph.checks import check_edge_index, check_levels
from dagnn.graph.flat_batch import Column, Tables, is_index
from dagnn.graph.levels import CycleError, topological_levels

__all__ = ["columns_of", "make_tables"]

LEVELS = ("level", "reverse_level")
INTEGERS = (torch.int32, torch.int64)


def columns_of(
    graphs: Iterable[Data], exclude: Collection[str], kinds: Mapping[str, str]
) -> dict[str, Any]:
    """The arguments of :class:`dagnn.FlatGraphs`."""
    names: set[str] | None = None
    columns: dict[str, list[Any]] = {}
    num_nodes: list[int] = []
    for i, data in enumerate(graphs):
        _check_graph(i, data)
        present = set(data.keys()) - set(exclude) - {"num_nodes"}
        if names is None:
            names, stores_num_nodes = present, "num_nodes" in data
            columns = {name: [] for name in data._store if name in names}
        elif present != names:
            name = min(present ^ names)
            who = f"graph {i} has one and graph 0" if name in present else f"graph {i}"
            raise ValueError(
                f"expected the attribute {name!r} in every graph or in none, but {who} has none"
            )
        num_nodes.append(data.num_nodes or 0)
        for name, values in columns.items():
            values.append(_value(i, name, data[name], values[0] if values else None))
    if names is None:
        raise ValueError("expected at least one graph, got none")

    node_counts = torch.tensor(num_nodes)
    edge_counts = _row_counts("edge_index", columns["edge_index"])
    if strange := sorted(kinds.keys() - columns.keys()):
        raise ValueError(f"expected kinds of attributes of the graphs, got one of {strange[0]!r}")
    sizes = {"node": node_counts, "edge": edge_counts, "graph": torch.ones_like(node_counts)}
    arguments: dict[str, Any] = {
        "node_ptr": _pointer(node_counts),
        "edge_ptr": _pointer(edge_counts),
        "edge_index": torch.cat(columns.pop("edge_index"), dim=1),
        "levels": _levels(columns, node_counts),
        "store_num_nodes": stores_num_nodes or "x" not in columns,
        "ragged": {},
    }
    arguments |= {kind: {} for kind in sizes}
    for name, values in columns.items():
        counts = _row_counts(name, values)
        fitting = [kind for kind, size in sizes.items() if counts.equal(size)]
        kind = _likeliest(name, fitting) if name not in kinds else kinds[name]
        joined = torch.cat(values, dim=-1 if is_index(name) else 0)
        if kind == "ragged":
            arguments["ragged"][name] = _pointer(counts), joined
        elif kind in fitting:
            arguments[kind][name] = joined
        else:
            raise ValueError(
                f"expected a kind of {name!r} that its rows allow "
                f"({', '.join([*fitting, 'ragged'])}), got {kind!r}"
            )
    return arguments


def _likeliest(name: str, fitting: list[str]) -> str:
    """What an attribute is of, if the numbers of its rows fit these: in PyG's words ``edge_…`` is
    of the edges, and ``x``, ``pos`` and ``node_…`` of the nodes. Of all others, one row per graph
    is the graph's, also where each has but one node or edge."""
    if "edge" in fitting and "edge" in name:
        return "edge"
    is_nodes = name in ("x", "pos") or "node" in name
    if "graph" in fitting and not (is_nodes and "node" in fitting):
        return "graph"
    return fitting[0] if fitting else "ragged"


def _check_graph(i: int, data: Any) -> None:
    if not isinstance(data, Data) or isinstance(data, Batch):
        raise TypeError(
            f"graph {i}: expected a torch_geometric.data.Data, got {type(data).__name__}"
        )
    changed = type(data).__inc__ is not Data.__inc__ or (
        type(data).__cat_dim__ is not Data.__cat_dim__
    )
    if changed:
        raise TypeError(
            f"graph {i}: expected PyG's own rules of collation, got a {type(data).__name__} with "
            "its own __inc__ or __cat_dim__"
        )
    edge_index = data.edge_index
    if (
        not isinstance(edge_index, Tensor)
        or edge_index.dtype != torch.long
        or (edge_index.dim() != 2 or edge_index.size(0) != 2)
    ):
        try:
            check_edge_index(edge_index)
        except (TypeError, ValueError) as error:
            raise type(error)(f"graph {i}: {error}") from error


def _value(i: int, name: str, value: Any, first: Tensor | None) -> Tensor:
    """An attribute of one graph as rows, of the same kind as in the first graph."""
    if isinstance(value, bool | int | float):
        value = torch.tensor([value])
    if not isinstance(value, Tensor) or value.layout != torch.strided:
        raise TypeError(
            f"graph {i}: expected a dense tensor or a number in {name!r}, got "
            f"{type(value).__name__ if not isinstance(value, Tensor) else value.layout}; "
            f"leave it behind with exclude=[{name!r}]"
        )
    value = value.detach().unsqueeze(0) if value.dim() == 0 else value.detach()
    if first is not None:
        shape, expected = ([*v.shape] for v in (value, first))
        dim = -1 if is_index(name) else 0
        same_shape = len(shape) == len(expected)
        if same_shape:
            shape[dim] = expected[dim]
        if shape != expected or value.dtype != first.dtype:
            raise ValueError(
                f"graph {i}: expected {name!r} as in graph 0 ({first.dtype}, shape "
                f"{list(first.shape)}) but for the number of rows, got {value.dtype}, shape "
                f"{list(value.shape)}"
            )
    return value


def _row_counts(name: str, values: list[Tensor]) -> Tensor:
    dim = -1 if is_index(name) else 0
    return torch.tensor([value.size(dim) for value in values])


def _pointer(counts: Tensor) -> Tensor:
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])


def _levels(columns: dict[str, list[Tensor]], node_counts: Tensor) -> Tensor | None:
    """Take the levels out of the columns, if they are there."""
    found = [name for name in LEVELS if name in columns]
    if not found:
        return None
    if len(found) == 1:
        raise ValueError(
            f"expected both level and reverse_level or neither, got {found[0]} alone; store both "
            "with dagnn.AddLevels"
        )
    for name in LEVELS:
        different = _row_counts(name, columns[name]) != node_counts
        if bool(different.any()):
            i = int(different.nonzero()[0])
            raise ValueError(
                f"graph {i}: expected one {name} per node, shape [{int(node_counts[i])}], got "
                f"{list(columns[name][i].shape)}"
            )
    return torch.stack([torch.cat(columns.pop(name)) for name in LEVELS])


def make_tables(
    node_ptr: Tensor,
    edge_ptr: Tensor,
    edge_index: Tensor,
    kinds: Mapping[str, Mapping[str, Tensor]],
    ragged: Mapping[str, tuple[Tensor, Tensor]],
    levels: Tensor | None,
    store_num_nodes: bool | None,
) -> Tables:
    """Check the arguments of :class:`dagnn.FlatGraphs` and bring them into one form."""
    nodes = _checked_pointer("node_ptr", node_ptr)
    pointers = {
        "node": nodes,
        "edge": _checked_pointer("edge_ptr", edge_ptr, len(nodes)),
        "graph": np.arange(len(nodes)),
    }
    columns: dict[str, Column] = {}
    for kind, tensors in kinds.items():
        for name, values in tensors.items():
            _check_name(name, columns)
            columns[name] = _checked_column(name, values, kind, int(pointers[kind][-1]))
    for name, (pointer, values) in ragged.items():
        _check_name(name, columns)
        kind = f"{name} of graph"  # a kind of its own
        pointers[kind] = _checked_pointer(f"the pointers of {name!r}", pointer, len(nodes))
        columns[name] = _checked_column(name, values, kind, int(pointers[kind][-1]))

    edges = _int32("edge_index", edge_index, (2, int(pointers["edge"][-1])))
    _check_edges(pointers, edges)
    if levels is None:
        levels = _find_levels(pointers, edges)
    levels = _int32("levels", levels, (2, int(nodes[-1])))
    depths, num_sinks = _measure(pointers, edges, levels)
    if store_num_nodes is None:
        store_num_nodes = "x" not in columns
    device = torch.device("cpu")
    return Tables(pointers, edges, levels, depths, num_sinks, columns, device, store_num_nodes)


def _check_name(name: str, columns: Mapping[str, Column]) -> None:
    reserved = name in ("ptr", "num_nodes", "schedule", "edge_index", *LEVELS) or "batch" in name
    if reserved or not name.isidentifier() or name.startswith("_"):
        raise ValueError(
            f"expected a name without leading underscore that no batch uses itself for the "
            f"attribute {name!r}; rename it"
        )
    if name in columns:
        raise ValueError(f"expected different names of attributes, got {name!r} twice")


def _checked_pointer(name: str, pointer: Tensor, length: int | None = None) -> np.ndarray:
    if not isinstance(pointer, Tensor) or pointer.dtype not in INTEGERS or pointer.dim() != 1:
        raise TypeError(f"expected {name} as a vector of integers, got {_kind(pointer)}")
    if len(pointer) == 0 or (length is not None and len(pointer) != length):
        raise ValueError(
            f"expected one entry more in {name} than there are graphs, "
            f"{'at least 1' if length is None else length}, got {len(pointer)}"
        )
    array: np.ndarray = pointer.cpu().long().numpy()
    if array[0] != 0 or bool((np.diff(array) < 0).any()):
        raise ValueError(f"expected {name} to start at 0 and never to fall")
    return array


def _checked_column(name: str, values: Tensor, kind: str, rows: int) -> Column:
    if not isinstance(values, Tensor) or values.layout != torch.strided:
        raise TypeError(f"expected {name!r} as a dense torch.Tensor, got {_kind(values)}")
    dim = values.dim() - 1 if is_index(name) else 0
    if values.dim() == 0 or values.size(dim) != rows:
        raise ValueError(
            f"expected {rows} rows in {name!r}, one per {kind.split()[0]}, got shape "
            f"{list(values.shape)}"
        )
    return Column(values.detach().cpu().contiguous(), kind, dim)


def _int32(name: str, values: Tensor, shape: tuple[int, int]) -> Tensor:
    """Indices inside a graph, at half the size."""
    if not isinstance(values, Tensor) or values.dtype not in INTEGERS:
        raise TypeError(f"expected {name} as a tensor of integers, got {_kind(values)}")
    if values.shape != shape:
        raise ValueError(f"expected {name} of shape {list(shape)}, got {list(values.shape)}")
    if values.dtype == torch.int64 and values.numel():
        low, high = (int(value) for value in values.aminmax())
        if low < 0 or high > torch.iinfo(torch.int32).max:
            raise ValueError(
                f"expected numbers from 0 to 2**31 (exclusive) in {name}, got "
                f"{low if low < 0 else high}"
            )
    return values.detach().cpu().int().contiguous()


def _kind(value: Any) -> str:
    if not isinstance(value, Tensor):
        return type(value).__name__
    return f"{value.dtype}, {value.layout}, of shape {list(value.shape)}"


def _check_edges(pointers: Mapping[str, np.ndarray], edges: Tensor) -> None:
    node_ptr, edge_ptr = pointers["node"], pointers["edge"]
    e = compiled.first_bad_edge(node_ptr, edge_ptr, edges.numpy())
    if e >= 0:
        g = _owner(edge_ptr, e)
        u, v = edges[:, e].tolist()
        raise ValueError(
            f"graph {g}: expected node indices from 0 to {node_ptr[g + 1] - node_ptr[g]} "
            f"(exclusive) in edge_index, got the edge {u} -> {v}"
        )


def _find_levels(pointers: Mapping[str, np.ndarray], edges: Tensor) -> Tensor:
    node_ptr = pointers["node"]
    shift = np.repeat(node_ptr[:-1], np.diff(pointers["edge"]))
    union = edges + torch.from_numpy(shift)  # the edges of one graph with all nodes
    num_nodes = int(node_ptr[-1])
    try:
        return torch.stack([topological_levels(e, num_nodes).int() for e in (union, union.flip(0))])
    except CycleError as error:
        g = _owner(node_ptr, error.cycle[0])
        cycle = [v - int(node_ptr[g]) for v in error.cycle]
        raise CycleError(f"graph {g}: {CycleError.of(cycle)}", cycle) from None


def _measure(
    pointers: Mapping[str, np.ndarray], edges: Tensor, levels: Tensor
) -> tuple[np.ndarray, np.ndarray]:
    node_ptr, edge_ptr = pointers["node"], pointers["edge"]
    depths, num_sinks, bad = compiled.measure(node_ptr, edge_ptr, edges.numpy(), levels.numpy())
    if bad >= 0:
        edge_index = edges[:, edge_ptr[bad] : edge_ptr[bad + 1]].long()
        of_graph = levels[:, node_ptr[bad] : node_ptr[bad + 1]]
        try:
            for level, ends in zip(of_graph, (edge_index, edge_index.flip(0)), strict=True):
                check_levels(level, ends, len(level))
        except ValueError as error:
            raise ValueError(f"graph {bad}: {error}") from error
        raise ValueError(
            f"graph {bad}: expected a node on every level from 0 to the highest; leave the levels "
            "out to have them computed"
        )
    return depths, num_sinks


def _owner(pointer: np.ndarray, row: int) -> int:
    return int(np.searchsorted(pointer, row, side="right")) - 1
