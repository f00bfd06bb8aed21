"""How a batch is cut out of flat tensors: sizes, one buffer for the structure, one gather each.

The structure (edges, levels, batch vector, schedule) is made by compiled loops on the CPU, in one
buffer, which an accelerator gets in one copy. Where the data set is on a GPU, its graphs' schedules
are stored there too, and two kernels merge them: see :mod:`dagnn.graph.device_batch`. Either way
sizes are always known on the host, and nothing ever waits for the accelerator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from dagnn.graph import compiled
from dagnn.graph.padding import Room, room_for
from dagnn.graph.schedule import LevelSchedule
from dagnn.graph.stored_sweeps import StoredSweeps, is_mergeable

__all__ = ["Column", "Tables", "cut_batch", "is_index"]

SCHEDULE = tuple(LevelSchedule.__dataclass_fields__)
PAIRS = {"edge_index", "levels", *SCHEDULE} - {"targets", "sources"}  # a row for each direction
DATA_BATCH: Any = type(Batch(_base_cls=Data))


class Column(NamedTuple):
    """An attribute of all graphs."""

    values: Tensor
    kind: str  # "node", "edge" or "graph", or one of its own: whose pointers it follows
    dim: int  # along which the rows of the graphs follow each other

    @property
    def is_ragged(self) -> bool:
        return self.kind not in ("node", "edge", "graph")


@dataclass
class Tables:
    """Graphs, one after the other."""

    pointers: dict[str, np.ndarray]  # [G + 1] where each graph's rows start, by kind
    edges: Tensor  # [2, E] int32, nodes counted from zero in each graph
    levels: Tensor  # [2, N] int32, along the edges and against them
    depths: np.ndarray  # [2, G] the number of levels
    num_sinks: np.ndarray  # [2, G] the number of nodes without successors; without predecessors
    columns: dict[str, Column]
    device: torch.device  # of the columns and the sweeps; all else is on the CPU
    store_num_nodes: bool
    sweeps: StoredSweeps | None = None  # from which batches are merged there

    @cached_property
    def sliced(self) -> list[tuple[str, str, bool]]:
        """What a batch has for each graph: its name, whose rows it has, and whether those are
        indices of nodes."""
        kinds = {name: column.kind for name, column in self.columns.items()}
        kinds |= {"edge_index": "edge", "level": "node", "reverse_level": "node"}
        return [(name, kind, is_index(name)) for name, kind in kinds.items()]


def is_index(name: str) -> bool:
    """Whether PyG takes an attribute of this name for indices of nodes."""
    return "index" in name or name == "face"


def _rows_of(kind: str) -> str:
    return f"rows of {kind}"


def _shift_of(kind: str) -> str:
    return f"number of nodes before each row of {kind}"


def cut_batch(
    tables: Tables,
    graphs: np.ndarray,
    schedule: bool,
    device: torch.device,
    padded: bool = False,
) -> tuple[Batch, list[Tensor]]:
    """Some graphs side by side, and the tensors that own the memory behind them."""
    columns = tables.columns
    kinds = dict.fromkeys(["node", "edge", *(column.kind for column in columns.values())])
    starts = {kind: compiled.batch_pointer(tables.pointers[kind], graphs) for kind in kinds}
    room = Room(
        int(starts["node"][-1]),
        int(starts["edge"][-1]),
        *compiled.totals(graphs, tables.depths, tables.num_sinks),
    )
    if padded:
        room = room_for(*room)
    num_graphs = len(graphs) + padded
    others = _other_rows(tables, graphs, columns, starts, room)
    sweeps = tables.sweeps if device == tables.device else None
    if sweeps is not None and is_mergeable(room, num_graphs, schedule):
        parts, rows, buffer = _merge(tables, sweeps, graphs, starts, room, others, schedule, padded)
    else:
        sizes = _sizes(room, num_graphs, schedule)
        host = _lay_out(tables, graphs, sizes, others, schedule, pin=device.type == "cuda")
        sizes |= {name: len(rows) for name, rows in others.items()}
        buffer = host.to(device, non_blocking=True)
        parts = _parts(buffer, sizes)
        rows = parts if tables.device.type != "cpu" or buffer is host else _parts(host, sizes)
    gathered = {
        name: _gather(
            column,
            rows[_rows_of(column.kind)],
            rows[_shift_of(column.kind)] if is_index(name) else None,
            device,
        )
        for name, column in columns.items()
    }
    if padded:
        _keep_filler_apart(columns, gathered, starts)
    batch = _assemble(parts, gathered, schedule, room.nodes if tables.store_num_nodes else None)
    hidden = {"_has_filler": True} if padded else _slices(tables, starts)
    vars(batch._store).update(hidden, _num_graphs=num_graphs)
    return batch, [buffer, *gathered.values()]


def _sizes(room: Room, num_graphs: int, schedule: bool) -> dict[str, int]:
    """What :func:`dagnn.graph.compiled.lay_out` makes, in its order."""
    nodes, edges, levels, targets, sources = room
    sizes = {
        "ptr": num_graphs + 1,
        "batch": nodes,
        "edge_index": 2 * edges,
        "levels": 2 * nodes,
        _rows_of("node"): nodes,
        _rows_of("edge"): edges,
    }
    if schedule:
        sizes |= {
            "order": 2 * nodes,
            "rank": 2 * nodes,
            "level_ptr": 2 * (levels + 1),
            "pred_ptr": 2 * (nodes + 1),
            "pred": 2 * edges,
            "pred_edge": 2 * edges,
            "succ_ptr": 2 * (nodes + 1),
            "succ": 2 * edges,
            "succ_slot": 2 * edges,
            "targets": targets,
            "sources": sources,
        }
    return sizes


def _other_rows(
    tables: Tables,
    graphs: np.ndarray,
    columns: Mapping[str, Column],
    starts: Mapping[str, np.ndarray],
    room: Room,
) -> dict[str, np.ndarray]:
    """Where the rows of attributes of graphs are stored, and how much indices are shifted."""
    rows = {}
    for kind, own in starts.items():
        if kind == "graph":
            rows[_rows_of(kind)] = graphs
        elif kind not in ("node", "edge"):
            rows[_rows_of(kind)] = np.empty(own[-1], dtype=np.int64)
            compiled.ragged_rows(tables.pointers[kind], graphs, rows[_rows_of(kind)])
    for kind in {column.kind for name, column in columns.items() if is_index(name)}:
        shift = np.repeat(starts["node"][:-1], np.diff(starts[kind]))
        size = {"node": room.nodes, "edge": room.edges}.get(kind, len(shift))
        rows[_shift_of(kind)] = np.zeros(size, dtype=np.int64)
        rows[_shift_of(kind)][: len(shift)] = shift
    return rows


def _lay_out(
    tables: Tables,
    graphs: np.ndarray,
    sizes: Mapping[str, int],
    others: Mapping[str, np.ndarray],
    schedule: bool,
    pin: bool,
) -> Tensor:
    """The structure, and other rows behind it."""
    made = sum(sizes.values())
    buffer = torch.empty(made + sum(map(len, others.values())), dtype=torch.long, pin_memory=pin)
    memory = buffer.numpy()
    compiled.lay_out(
        graphs,
        tables.pointers["node"],
        tables.pointers["edge"],
        tables.edges.numpy(),
        tables.levels.numpy(),
        memory,
        np.array([*sizes.values()]),
        schedule,
    )
    if others:
        np.concatenate([*others.values()], out=memory[made:])
    return buffer


def _merge(
    tables: Tables,
    sweeps: StoredSweeps,
    graphs: np.ndarray,
    starts: Mapping[str, np.ndarray],
    room: Room,
    others: Mapping[str, np.ndarray],
    schedule: bool,
    padded: bool,
) -> tuple[dict[str, Tensor], dict[str, Tensor], Tensor]:
    """The structure, the rows of columns, and the memory behind the former."""
    from dagnn.graph.device_batch import merge

    merged = merge(
        sweeps,
        graphs,
        tables.pointers,
        starts,
        tables.depths,
        tables.num_sinks,
        room,
        [*others.values()],
        schedule,
        padded,
    )
    rows = {_rows_of(kind): own for kind, own in merged.rows.items()}
    rows.update(zip(others, merged.others, strict=True))
    return merged.parts, rows, merged.buffer


def _parts(buffer: Tensor, sizes: Mapping[str, int]) -> dict[str, Tensor]:
    """The tensors that lie in a buffer."""
    pieces = buffer.split_with_sizes([*sizes.values()])
    return {
        name: piece.view(2, sizes[name] // 2) if name in PAIRS else piece
        for name, piece in zip(sizes, pieces, strict=True)
    }


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


def _keep_filler_apart(
    columns: Mapping[str, Column], gathered: Mapping[str, Tensor], starts: Mapping[str, np.ndarray]
) -> None:
    """Let indices of the filler's nodes and edges name its first node."""
    for name, column in columns.items():
        if is_index(name) and column.kind != "graph":
            size = int(starts[column.kind][-1])
            filler = gathered[name].narrow(column.dim, size, gathered[name].size(column.dim) - size)
            filler.fill_(int(starts["node"][-1]))


def _assemble(
    parts: Mapping[str, Tensor],
    columns: Mapping[str, Tensor],
    schedule: bool,
    num_nodes: int | None,
) -> Batch:
    batch = DATA_BATCH.__new__(DATA_BATCH)  # PyG's constructor makes a class each time
    Data.__init__(batch)
    level, reverse_level = parts["levels"].unbind()
    own = batch._store._mapping  # PyG's setters would take as long as the gathers
    own.update(
        columns,
        edge_index=parts["edge_index"],
        level=level,
        reverse_level=reverse_level,
        batch=parts["batch"],
        ptr=parts["ptr"],
    )
    if num_nodes is not None:
        own["num_nodes"] = num_nodes
    if schedule:
        own["schedule"] = LevelSchedule(*(parts[name] for name in SCHEDULE))
    return batch


def _slices(tables: Tables, starts: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """What PyG needs to take a batch apart again."""
    slices = {kind: torch.from_numpy(own) for kind, own in starts.items()}
    before = slices["node"][:-1]
    out = {
        "_slice_dict": {name: slices[kind] for name, kind, _ in tables.sliced},
        "_inc_dict": {name: before if shifts else None for name, _, shifts in tables.sliced},
    }
    if tables.store_num_nodes:
        out["_num_nodes"] = np.diff(starts["node"]).tolist()
    return out
