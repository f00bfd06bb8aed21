"""From PyG's ``Data``, one per graph, to the columns of a :class:`dagnn.FlatGraphs`."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from dagnn.graph.checks import check_edge_index

__all__ = ["check_name", "columns_of", "is_index"]

STRUCTURE = ("edge_index", "level", "reverse_level")


def is_index(name: str) -> bool:
    """Whether PyG takes an attribute of this name for indices of nodes."""
    return "index" in name or name == "face"


def check_name(name: str) -> None:
    if name in ("ptr", "num_nodes", "schedule", *STRUCTURE) or "batch" in name or name[:1] == "_":
        raise ValueError(f"expected another name of an attribute than {name!r}, which is reserved")


def columns_of(graphs: Iterable[Data], exclude: Collection[str]) -> dict[str, Any]:
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
    kinds = {"node": node_counts, "edge": edge_counts, "graph": torch.ones_like(node_counts)}
    arguments: dict[str, Any] = {
        "node_ptr": _pointer(node_counts),
        "edge_ptr": _pointer(edge_counts),
        "edge_index": torch.cat(columns.pop("edge_index"), dim=1),
        "levels": _levels(columns.pop("level", None), columns.pop("reverse_level", None)),
        "store_num_nodes": stores_num_nodes or "x" not in columns,
        "ragged": {},
    }
    arguments |= {kind: {} for kind in kinds}
    for name, values in columns.items():
        check_name(name)
        counts = _row_counts(name, values)
        joined = torch.cat(values, dim=-1 if is_index(name) else 0)
        for kind, of_kind in kinds.items():
            if counts.equal(of_kind):
                arguments[kind][name] = joined
                break
        else:
            arguments["ragged"][name] = _pointer(counts), joined
    return arguments


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
    if not isinstance(edge_index, Tensor) or edge_index.dtype != torch.long or (
        edge_index.dim() != 2 or edge_index.size(0) != 2
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


def _levels(level: list[Tensor] | None, reverse_level: list[Tensor] | None) -> Tensor | None:
    if level is None and reverse_level is None:
        return None
    if level is None or reverse_level is None:
        found = "level" if reverse_level is None else "reverse_level"
        raise ValueError(
            f"expected both level and reverse_level or neither, got {found} alone; store both "
            "with dagnn.AddLevels"
        )
    return torch.stack([torch.cat(level), torch.cat(reverse_level)])
