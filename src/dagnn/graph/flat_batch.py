"""How a batch is cut out of flat tensors: sizes, one buffer, compiled loops, one gather each.

The structure (edges, levels, batch vector, schedule) is made by compiled loops on the CPU, in one
buffer, since a loop over 10,000 nodes takes no longer than the launches of the kernels that would
do it on an accelerator, which then gets it in one copy. So sizes are always known, and nothing
ever waits for the accelerator.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from dagnn.graph import compiled
from dagnn.graph.padding import Room, fill_room, room_for
from dagnn.graph.schedule import LevelSchedule

__all__ = ["Column", "Tables", "cut_batch", "is_index"]

Shapes = dict[str, tuple[int, ...]]
SCHEDULE = tuple(LevelSchedule.__dataclass_fields__)
DATA_BATCH: Any = type(Batch(_base_cls=Data))


class Column(NamedTuple):
    """An attribute of all graphs."""

    values: Tensor
    kind: str  # "node", "edge" or "graph", or the attribute's own name: whose pointers it follows
    dim: int  # along which the rows of the graphs follow each other


@dataclass
class Tables:
    """Graphs, one after the other."""

    pointers: dict[str, np.ndarray]  # [G + 1] where each graph's rows start, by kind
    edges: Tensor  # [2, E] int32, nodes counted from zero in each graph
    levels: Tensor  # [2, N] int32, along the edges and against them
    depths: np.ndarray  # [2, G] the number of levels
    num_sinks: np.ndarray  # [2, G] the number of nodes without successors; without predecessors
    columns: dict[str, Column]
    device: torch.device  # of the columns; all else is on the CPU
    store_num_nodes: bool


def is_index(name: str) -> bool:
    """Whether PyG takes an attribute of this name for indices of nodes."""
    return "index" in name or name == "face"


def _shift_of(kind: str) -> str:
    return f"number of nodes before each {kind} row"


def cut_batch(
    tables: Tables,
    graphs: np.ndarray,
    schedule: bool,
    device: torch.device,
    padded: bool = False,
) -> tuple[Batch, list[Tensor]]:
    """Some graphs side by side, and the tensors that own the memory behind them."""
    if padded:
        tables = _without_ragged(tables)
    resident = tables.device.type != "cpu"
    starts = {k: compiled.batch_pointer(p, graphs) for k, p in tables.pointers.items()}
    room = _room(tables, graphs, starts, padded)
    shapes = _shapes(room, len(graphs) + padded, schedule)
    row_shapes: Shapes = {kind: (int(s[-1]),) for kind, s in starts.items()}
    row_shapes |= {"node": (room.nodes,), "edge": (room.edges,)}
    shifted = {column.kind for name, column in tables.columns.items() if is_index(name)}
    row_shapes |= {_shift_of(kind): row_shapes[kind] for kind in shifted}
    if resident:
        shapes |= row_shapes
    buffer, host = _carve(shapes, pin=device.type == "cuda")
    rows = host if resident else _carve(row_shapes)[1]
    _fill(tables, graphs, starts, host, rows, schedule, room)

    parts = host
    if device.type != "cpu":
        buffer = buffer.to(device, non_blocking=True)
        parts = _views(buffer, shapes)
    if resident:
        rows = parts
    columns = {
        name: _gather(
            column,
            rows[column.kind],
            rows[_shift_of(column.kind)] if is_index(name) else None,
            device,
        )
        for name, column in tables.columns.items()
    }
    batch = _assemble(tables, starts, parts, columns, schedule)
    if padded:
        _declare_filler(batch, room)
    return batch, [buffer, *columns.values()]


def _room(
    tables: Tables, graphs: np.ndarray, starts: Mapping[str, np.ndarray], padded: bool
) -> Room:
    targets, sources = tables.num_sinks[:, graphs].sum(1).tolist()
    room = Room(
        int(starts["node"][-1]),
        int(starts["edge"][-1]),
        int(tables.depths[:, graphs].max()),
        targets,
        sources,
    )
    return room_for(*room) if padded else room


def _without_ragged(tables: Tables) -> Tables:
    """Only attributes whose sizes follow from the batch's."""
    kinds = ("node", "edge", "graph")
    columns = {name: c for name, c in tables.columns.items() if c.kind in kinds}
    return replace(tables, columns=columns, pointers={k: tables.pointers[k] for k in kinds})


def _declare_filler(batch: Batch, room: Room) -> None:
    """The filler is a graph like the others, but without attributes of its own."""
    batch._num_graphs += 1
    batch._has_filler = True
    if "num_nodes" in batch:
        batch.num_nodes = room.nodes
    del batch._slice_dict, batch._inc_dict  # it cannot be taken apart again


def _shapes(room: Room, num_graphs: int, schedule: bool) -> Shapes:
    nodes, edges = room.nodes, room.edges
    shapes: Shapes = {
        "ptr": (num_graphs + 1,),
        "batch": (nodes,),
        "edge_index": (2, edges),
        "levels": (2, nodes),
    }
    if schedule:
        sizes: Shapes = {
            "level_ptr": (2, room.levels + 1),
            "targets": (room.targets,),
            "sources": (room.sources,),
        }
        sizes |= dict.fromkeys(("order", "rank"), (2, nodes))
        sizes |= dict.fromkeys(("pred_ptr", "succ_ptr"), (2, nodes + 1))
        sizes |= dict.fromkeys(("pred", "pred_edge", "succ", "succ_slot"), (2, edges))
        shapes |= {name: sizes[name] for name in SCHEDULE}
    return shapes


def _carve(shapes: Shapes, pin: bool = False) -> tuple[Tensor, dict[str, Tensor]]:
    """One buffer on the CPU, and tensors of these shapes in it."""
    size = sum(math.prod(shape) for shape in shapes.values())
    buffer = torch.empty(size, dtype=torch.long, pin_memory=pin)
    return buffer, _views(buffer, shapes)


def _views(buffer: Tensor, shapes: Shapes) -> dict[str, Tensor]:
    pieces = buffer.split([math.prod(shape) for shape in shapes.values()])
    return {
        name: piece.view(shape) for (name, shape), piece in zip(shapes.items(), pieces, strict=True)
    }


def _fill(
    tables: Tables,
    graphs: np.ndarray,
    starts: Mapping[str, np.ndarray],
    host: Mapping[str, Tensor],
    rows: Mapping[str, Tensor],
    schedule: bool,
    room: Room,
) -> None:
    out = {name: part.numpy() for name, part in host.items()}
    out["ptr"][: len(graphs) + 1] = starts["node"]
    out["ptr"][len(graphs) + 1 :] = room.nodes
    compiled.gather_structure(
        graphs,
        tables.pointers["node"],
        tables.pointers["edge"],
        tables.edges.numpy(),
        tables.levels.numpy(),
        out["ptr"],
        out["batch"],
        out["edge_index"],
        out["levels"],
    )
    nodes, edges = int(starts["node"][-1]), int(starts["edge"][-1])
    if room.nodes > nodes:
        fill_room(nodes, edges, len(graphs), out["edge_index"], out["batch"], out["levels"])
    if schedule:
        # Places of the lists that are too many name the last node, which is the filler's.
        out["targets"][:] = out["sources"][:] = room.nodes - 1
        compiled.level_sort(out["edge_index"], out["levels"], *(out[name] for name in SCHEDULE))
    for kind, pointer in tables.pointers.items():
        own = rows[kind].numpy()
        size = int(starts[kind][-1])
        compiled.ragged_rows(pointer, graphs, own[:size])
        own[size:] = 0  # the filler has the attributes of the first node and the first edge
        if _shift_of(kind) in rows:
            shift = rows[_shift_of(kind)].numpy()
            shift[:size] = np.repeat(starts["node"][:-1], np.diff(starts[kind]))
            shift[size:] = 0


def _gather(column: Column, rows: Tensor, shift: Tensor | None, device: torch.device) -> Tensor:
    stored, _, dim = column
    if device == stored.device:
        values = stored.index_select(dim, rows)
    else:
        shape = [*stored.shape]
        shape[dim] = len(rows)
        values = torch.empty(shape, dtype=stored.dtype, pin_memory=device.type == "cuda")
        torch.index_select(stored, dim, rows, out=values)
    if shift is not None:
        values += shift
    return values.to(device, non_blocking=True)


def _assemble(
    tables: Tables,
    starts: Mapping[str, np.ndarray],
    parts: Mapping[str, Tensor],
    columns: Mapping[str, Tensor],
    schedule: bool,
) -> Batch:
    batch = DATA_BATCH.__new__(DATA_BATCH)  # PyG's constructor makes a class each time
    Data.__init__(batch)
    level, reverse_level = parts["levels"]
    batch.update(
        {
            **columns,
            "edge_index": parts["edge_index"],
            "level": level,
            "reverse_level": reverse_level,
            "batch": parts["batch"],
            "ptr": parts["ptr"],
        }
    )
    if tables.store_num_nodes:
        batch.num_nodes = int(starts["node"][-1])
        batch._store._num_nodes = np.diff(starts["node"]).tolist()
    if schedule:
        batch.schedule = LevelSchedule(*(parts[name] for name in SCHEDULE))
    # What PyG needs to take the batch apart again.
    slices = {kind: torch.from_numpy(s) for kind, s in starts.items()}
    kinds = {name: column.kind for name, column in tables.columns.items()}
    kinds |= {"edge_index": "edge", "level": "node", "reverse_level": "node"}
    batch._num_graphs = len(starts["node"]) - 1
    batch._slice_dict = {name: slices[kind] for name, kind in kinds.items()}
    batch._inc_dict = {name: slices["node"][:-1] if is_index(name) else None for name in kinds}
    return batch
