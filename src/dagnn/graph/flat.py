r"""A data set of graphs as a few long tensors, from which a batch is cut without a loop in Python.

Graph :math:`g` owns the nodes ``node_ptr[g]`` to ``node_ptr[g + 1]`` and the edges ``edge_ptr[g]``
to ``edge_ptr[g + 1]``; every attribute is one tensor, with the rows of all graphs one after the
other, and a batch is one gather per attribute. The structure (edges, levels, batch vector,
schedule) is made by compiled loops on the CPU, in one buffer, since a loop over 10,000 nodes takes
no longer than the launches of the kernels that would do it on an accelerator, which then gets it
in one copy. So sizes are always known, and nothing ever waits for the accelerator.
"""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from dagnn.graph import compiled
from dagnn.graph.checks import check_levels
from dagnn.graph.flat_build import check_name, columns_of, is_index
from dagnn.graph.flat_file import read_tensors, write_tensors
from dagnn.graph.levels import CycleError, topological_levels
from dagnn.graph.schedule import LevelSchedule

__all__ = ["FlatGraphs"]

Indices = Sequence[int] | np.ndarray | Tensor
SCHEDULE = tuple(LevelSchedule.__dataclass_fields__)


class Column(NamedTuple):
    """An attribute of all graphs."""

    values: Tensor
    kind: str  # "node", "edge" or "graph", or the attribute's own name: whose pointers it follows


class FlatGraphs:
    r"""Many DAGs as flat tensors: ``flat[i]`` is a PyG ``Data``, ``flat.batch([…])`` a ``Batch``.

    A batch is equal, attribute by attribute, to what PyG's own collation makes of the same graphs
    with the levels that :class:`dagnn.AddLevels` stores. As there, attributes with ``index`` in
    their names are indices of nodes: they run along their last dimension, and are shifted by the
    number of nodes before.

    Args:
        node_ptr: Where each graph's nodes start, and the number of all nodes. ``[G + 1]``
        edge_ptr: The same of the edges. ``[G + 1]``
        edge_index: The edges of all graphs; each graph counts its nodes from zero. ``[2, E]``
        node: Attributes of the nodes. ``[N, …]`` each
        edge: Attributes of the edges. ``[E, …]`` each
        graph: Attributes of the graphs. ``[G, …]`` each
        ragged: Other attributes, as pairs of pointers ``[G + 1]`` and rows ``[R, …]``.
        levels: Levels in the DAGs and in their reverse; by default they are computed. ``[2, N]``
        store_num_nodes: Whether graphs and batches have an attribute ``num_nodes``; by default if
            there is no ``x`` to read it off.
        metadata: Words that are saved with the graphs.

    Example:
        >>> import torch
        >>> path = Data(x=torch.ones(3, 1), edge_index=torch.tensor([[0, 1], [1, 2]]), y=3)
        >>> lone = Data(x=torch.zeros(1, 1), edge_index=torch.empty(2, 0, dtype=torch.long), y=1)
        >>> flat = FlatGraphs.from_data_list([path, lone])
        >>> flat
        FlatGraphs(num_graphs=2, num_nodes=4, num_edges=2, attributes=[x, y])
        >>> flat.depths
        tensor([3, 1])
        >>> batch = flat.batch([1, 0, 1], schedule=True)
        >>> batch.num_graphs, batch.y, batch.schedule
        (3, tensor([1, 3, 1]), LevelSchedule(num_nodes=5, num_edges=2, num_levels=3, reverse=True))
    """

    def __init__(
        self,
        node_ptr: Tensor,
        edge_ptr: Tensor,
        edge_index: Tensor,
        *,
        node: Mapping[str, Tensor] | None = None,
        edge: Mapping[str, Tensor] | None = None,
        graph: Mapping[str, Tensor] | None = None,
        ragged: Mapping[str, tuple[Tensor, Tensor]] | None = None,
        levels: Tensor | None = None,
        store_num_nodes: bool | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        self._pointers = {
            "node": _pointer("node_ptr", node_ptr),
            "edge": _pointer("edge_ptr", edge_ptr, len(node_ptr)),
            "graph": np.arange(len(node_ptr)),
        }
        self._columns: dict[str, Column] = {}
        self.device = torch.device("cpu")  # of the attributes; the structure stays on the CPU
        for kind, columns in (("node", node), ("edge", edge), ("graph", graph)):
            for name, values in (columns or {}).items():
                self._add(name, values, kind)
        for name, (pointer, values) in (ragged or {}).items():
            self._pointers[name] = _pointer(f"the pointers of {name}", pointer, len(node_ptr))
            self._add(name, values, name)

        self._edges = _int32("edge_index", edge_index, (2, self.num_edges))
        self._check_edges()
        if levels is None:
            levels = self._find_levels()
        self._levels = _int32("levels", levels, (2, self.num_nodes))
        self._depths, self._num_sinks = self._measure()  # [2, G] each
        self.store_num_nodes = "x" not in self._columns
        if store_num_nodes is not None:
            self.store_num_nodes = store_num_nodes
        self.metadata = dict(metadata or {})

    @classmethod
    def from_data_list(cls, graphs: Iterable[Data], *, exclude: Collection[str] = ()) -> FlatGraphs:
        """The data set of some PyG ``Data`` that have the same attributes: tensors and numbers.

        Stored levels (see :class:`dagnn.AddLevels`) are used, missing ones computed.

        Args:
            graphs: The graphs; they may be made one at a time.
            exclude: Attributes to leave behind, such as lists of names.
        """
        return cls(**columns_of(graphs, exclude))

    def __len__(self) -> int:
        return len(self._pointers["graph"]) - 1

    @property
    def num_nodes(self) -> int:
        """The number of nodes of all graphs."""
        return int(self._pointers["node"][-1])

    @property
    def num_edges(self) -> int:
        """The number of edges of all graphs."""
        return int(self._pointers["edge"][-1])

    @property
    def node_ptr(self) -> Tensor:
        """Where each graph's nodes start. ``[G + 1]``"""
        return torch.from_numpy(self._pointers["node"])

    @property
    def edge_ptr(self) -> Tensor:
        """Where each graph's edges start. ``[G + 1]``"""
        return torch.from_numpy(self._pointers["edge"])

    @property
    def depths(self) -> Tensor:
        """The number of levels of each graph. ``[G]``"""
        return torch.from_numpy(self._depths[0])

    def keys(self) -> list[str]:
        """The names of the attributes, without those of the structure."""
        return list(self._columns)

    def column(self, name: str) -> Tensor:
        """One attribute of all graphs."""
        return self._columns[name].values

    def __getitem__(self, index: int) -> Data:
        (g,) = self._check_indices([index])
        data = Data(edge_index=self._rows(self._edges, "edge", g, dim=1).long().to(self.device))
        for name, (values, kind) in self._columns.items():
            data[name] = self._rows(values, kind, g, dim=_dim(name, values))
        level, reverse_level = self._rows(self._levels, "node", g, dim=1).long().to(self.device)
        data.level, data.reverse_level = level, reverse_level
        if self.store_num_nodes:
            data.num_nodes = len(level)
        return data

    def _rows(self, values: Tensor, kind: str, graph: int, dim: int) -> Tensor:
        start, end = (int(p) for p in self._pointers[kind][graph : graph + 2])
        return values.narrow(dim, start, end - start)

    def select(self, indices: Indices) -> FlatGraphs:
        """The data set of some of the graphs, in the given order: a split, or a sample."""
        graphs = self._check_indices(indices)
        pointers = {k: compiled.batch_pointer(p, graphs) for k, p in self._pointers.items()}
        rows = {kind: self._stored_rows(kind, graphs, int(p[-1])) for kind, p in pointers.items()}
        chosen = copy.copy(self)
        chosen._pointers = pointers | {"graph": np.arange(len(graphs) + 1)}
        chosen._edges = self._edges.index_select(1, rows["edge"])
        chosen._levels = self._levels.index_select(1, rows["node"])
        chosen._depths = np.ascontiguousarray(self._depths[:, graphs])
        chosen._num_sinks = np.ascontiguousarray(self._num_sinks[:, graphs])
        chosen.metadata = dict(self.metadata)
        chosen._columns = {
            name: Column(values.index_select(_dim(name, values), rows[kind].to(self.device)), kind)
            for name, (values, kind) in self._columns.items()
        }
        return chosen

    def _stored_rows(self, kind: str, graphs: np.ndarray, count: int) -> Tensor:
        rows = torch.empty(count, dtype=torch.long)
        compiled.ragged_rows(self._pointers[kind], graphs, rows.numpy())
        return rows

    def to(self, device: torch.device | str) -> FlatGraphs:
        """The same graphs with their attributes on a device, where batches are then made.

        The structure stays on the CPU as well: see the head of this module.
        """
        moved = copy.copy(self)
        moved.device = _indexed(torch.device(device))
        moved._columns = {
            name: Column(values.to(moved.device), kind)
            for name, (values, kind) in self._columns.items()
        }
        return moved

    def batch(
        self,
        indices: Indices,
        *,
        schedule: bool = False,
        device: torch.device | str | None = None,
    ) -> Batch:
        """Some graphs side by side, as ``Batch.from_data_list([flat[i] for i in indices])``.

        Args:
            indices: Which graphs, in which order; a graph may occur more than once.
            schedule: Whether to add ``batch.schedule``, the :class:`dagnn.LevelSchedule`, which
                :class:`dagnn.DAGNN` uses if it is there.
            device: Where the batch shall be; by default where the attributes are.
        """
        return self.batch_and_buffers(indices, schedule, device)[0]

    def batch_and_buffers(
        self, indices: Indices, schedule: bool, device: torch.device | str | None
    ) -> tuple[Batch, list[Tensor]]:
        """A batch, and the tensors that own the memory behind it."""
        graphs = self._check_indices(indices)
        device = self.device if device is None else _indexed(torch.device(device))
        resident = self.device.type != "cpu"
        if resident and device != self.device:
            raise ValueError(
                f"expected batches on {self.device}, where the attributes are, got "
                f"device={str(device)!r}; move the data set with .to()"
            )
        starts = {k: compiled.batch_pointer(p, graphs) for k, p in self._pointers.items()}
        shapes = self._shapes(graphs, starts, schedule)
        index_shapes = {kind: (int(s[-1]),) for kind, s in starts.items()}
        if resident:
            shapes |= index_shapes
        buffer, host = _carve(shapes, pin=device.type == "cuda")
        index = host if resident else _carve(index_shapes)[1]
        self._fill(graphs, starts, host, index, schedule)

        parts = host
        if device.type != "cpu":
            buffer = buffer.to(device, non_blocking=True)
            parts = _views(buffer, shapes)
        if resident:
            index = parts
        columns = {
            name: self._gather(name, column, index[column.kind], starts, device)
            for name, column in self._columns.items()
        }
        batch = self._assemble(len(graphs), starts, parts, columns, schedule)
        return batch, [buffer, *columns.values()]

    def _shapes(
        self, graphs: np.ndarray, starts: Mapping[str, np.ndarray], schedule: bool
    ) -> dict[str, tuple[int, ...]]:
        nodes, edges = int(starts["node"][-1]), int(starts["edge"][-1])
        shapes: dict[str, tuple[int, ...]] = {
            "ptr": (len(graphs) + 1,),
            "batch": (nodes,),
            "edge_index": (2, edges),
            "levels": (2, nodes),
        }
        if schedule:
            targets, sources = self._num_sinks[:, graphs].sum(1).tolist()
            sizes: dict[str, tuple[int, ...]] = {
                "level_ptr": (2, int(self._depths[:, graphs].max()) + 1),
                "targets": (targets,),
                "sources": (sources,),
            }
            sizes |= dict.fromkeys(("order", "rank"), (2, nodes))
            sizes |= dict.fromkeys(("pred_ptr", "succ_ptr"), (2, nodes + 1))
            sizes |= dict.fromkeys(("pred", "pred_edge", "succ", "succ_slot"), (2, edges))
            shapes |= {name: sizes[name] for name in SCHEDULE}
        return shapes

    def _fill(
        self,
        graphs: np.ndarray,
        starts: Mapping[str, np.ndarray],
        host: Mapping[str, Tensor],
        index: Mapping[str, Tensor],
        schedule: bool,
    ) -> None:
        out = {name: part.numpy() for name, part in host.items()}
        out["ptr"][:] = starts["node"]
        compiled.gather_structure(
            graphs,
            self._pointers["node"],
            self._pointers["edge"],
            self._edges.numpy(),
            self._levels.numpy(),
            out["ptr"],
            out["batch"],
            out["edge_index"],
            out["levels"],
        )
        if schedule:
            compiled.level_sort(
                out["edge_index"], out["levels"], *(out[name] for name in SCHEDULE)
            )
        for kind, pointer in self._pointers.items():
            compiled.ragged_rows(pointer, graphs, index[kind].numpy())

    def _gather(
        self,
        name: str,
        column: Column,
        index: Tensor,
        starts: Mapping[str, np.ndarray],
        device: torch.device,
    ) -> Tensor:
        stored, dim = column.values, _dim(name, column.values)
        if device == stored.device or device.type != "cuda":
            values = stored.index_select(dim, index)
        else:
            shape = [*stored.shape]
            shape[dim] = len(index)
            values = torch.empty(shape, dtype=stored.dtype, pin_memory=True)
            torch.index_select(stored, dim, index, out=values)
        if is_index(name):
            shift = np.repeat(starts["node"][:-1], np.diff(starts[column.kind]))
            values += torch.from_numpy(shift).to(values.device)
        return values.to(device, non_blocking=True)

    def _assemble(
        self,
        num_graphs: int,
        starts: Mapping[str, np.ndarray],
        parts: Mapping[str, Tensor],
        columns: Mapping[str, Tensor],
        schedule: bool,
    ) -> Batch:
        level, reverse_level = parts["levels"]
        batch = Batch(_base_cls=Data)
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
        if self.store_num_nodes:
            batch.num_nodes = int(starts["node"][-1])
            batch._store._num_nodes = np.diff(starts["node"]).tolist()
        if schedule:
            batch.schedule = LevelSchedule(*(parts[name] for name in SCHEDULE))
        # What PyG needs to take the batch apart again.
        slices = {kind: torch.from_numpy(s) for kind, s in starts.items()}
        kinds = {name: column.kind for name, column in self._columns.items()}
        kinds |= {"edge_index": "edge", "level": "node", "reverse_level": "node"}
        batch._num_graphs = num_graphs
        batch._slice_dict = {name: slices[kind] for name, kind in kinds.items()}
        batch._inc_dict = {
            name: slices["node"][:-1] if is_index(name) else None for name in kinds
        }
        return batch

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the graphs to a safetensors file; it appears only when it is complete."""
        tensors = {
            "node_ptr": self.node_ptr,
            "edge_ptr": self.edge_ptr,
            "edge_index": self._edges,
            "levels": self._levels,
        }
        for name, (values, kind) in self._columns.items():
            if kind in ("node", "edge", "graph"):
                tensors[f"{kind}/{name}"] = values
            else:
                tensors[f"ragged/{name}"] = values
                tensors[f"pointer/{name}"] = torch.from_numpy(self._pointers[kind])
        write_tensors(path, tensors, self.store_num_nodes, self.metadata)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> FlatGraphs:
        """Read what :meth:`save` wrote. The file is mapped into memory, so that processes share it.

        Raises:
            ValueError: If the file is damaged, or is no such file.
        """
        arguments = read_tensors(path)
        try:
            return cls(**arguments)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"expected graphs saved by FlatGraphs.save in {os.fspath(path)}, got a damaged "
                f"file: {error}"
            ) from error

    def __repr__(self) -> str:
        device = "" if self.device.type == "cpu" else f", device={self.device}"
        return (
            f"FlatGraphs(num_graphs={len(self)}, num_nodes={self.num_nodes}, "
            f"num_edges={self.num_edges}, attributes=[{', '.join(self._columns)}]{device})"
        )

    def _add(self, name: str, values: Tensor, kind: str) -> None:
        check_name(name)
        if name in self._columns or kind == name in ("node", "edge", "graph"):
            raise ValueError(f"expected different names of attributes, got {name!r} twice")
        if not isinstance(values, Tensor) or values.layout != torch.strided:
            found = type(values).__name__ if not isinstance(values, Tensor) else values.layout
            raise TypeError(f"expected {name} as a dense torch.Tensor, got {found}")
        rows = int(self._pointers[kind][-1])
        if values.dim() == 0 or values.size(_dim(name, values)) != rows:
            whose = kind if kind in ("node", "edge", "graph") else "pointed-to"
            raise ValueError(
                f"expected {rows} rows in {name}, one per {whose} row, got shape "
                f"{list(values.shape)}"
            )
        self._columns[name] = Column(values.detach().cpu(), kind)

    def _check_indices(self, indices: Indices) -> np.ndarray:
        graphs = np.asarray(indices.cpu() if isinstance(indices, Tensor) else indices)
        if graphs.ndim != 1 or graphs.size == 0:
            raise ValueError(
                f"expected the indices of at least one graph, got shape {list(graphs.shape)}"
            )
        if graphs.dtype.kind not in "iu":
            raise TypeError(f"expected integers as indices of graphs, got {graphs.dtype}")
        low, high = int(graphs.min()), int(graphs.max())
        if low < -len(self) or high >= len(self):
            raise IndexError(
                f"expected indices of graphs from 0 to {len(self)} (exclusive), "
                f"got {low if low < -len(self) else high}"
            )
        graphs = graphs.astype(np.int64, copy=False)
        return graphs if low >= 0 else np.where(graphs < 0, graphs + len(self), graphs)

    def _check_edges(self) -> None:
        node_ptr, edge_ptr = self._pointers["node"], self._pointers["edge"]
        e = compiled.first_bad_edge(node_ptr, edge_ptr, self._edges.numpy())
        if e >= 0:
            g = _owner(edge_ptr, e)
            u, v = self._edges[:, e].tolist()
            raise ValueError(
                f"graph {g}: expected node indices from 0 to {node_ptr[g + 1] - node_ptr[g]} "
                f"(exclusive) in edge_index, got the edge {u} -> {v}"
            )

    def _find_levels(self) -> Tensor:
        node_ptr = self._pointers["node"]
        shift = np.repeat(node_ptr[:-1], np.diff(self._pointers["edge"]))
        edges = self._edges + torch.from_numpy(shift)  # of one graph with all nodes
        try:
            return torch.stack(
                [topological_levels(e, self.num_nodes).int() for e in (edges, edges.flip(0))]
            )
        except CycleError as error:
            g = _owner(node_ptr, error.cycle[0])
            cycle = [v - int(node_ptr[g]) for v in error.cycle]
            raise CycleError(f"graph {g}: {CycleError.of(cycle)}", cycle) from None

    def _measure(self) -> tuple[np.ndarray, np.ndarray]:
        depths, sinks, bad = compiled.measure(
            self._pointers["node"],
            self._pointers["edge"],
            self._edges.numpy(),
            self._levels.numpy(),
        )
        if bad >= 0:
            edges = self._rows(self._edges, "edge", bad, dim=1).long()
            levels = self._rows(self._levels, "node", bad, dim=1)
            try:
                check_levels(levels[0], edges, levels.size(1))
                check_levels(levels[1], edges.flip(0), levels.size(1))
            except ValueError as error:
                raise ValueError(f"graph {bad}: {error}") from error
            raise ValueError(
                f"graph {bad}: expected a node on every level from 0 to the highest; leave the "
                "levels out to have them computed"
            )
        return depths, sinks


def _pointer(name: str, pointer: Tensor, length: int | None = None) -> np.ndarray:
    if not isinstance(pointer, Tensor) or pointer.is_floating_point() or pointer.dim() != 1:
        raise TypeError(f"expected {name} as a vector of integers, got {_kind(pointer)}")
    if len(pointer) == 0 or (length is not None and len(pointer) != length):
        raise ValueError(
            f"expected {name} of length {length or '>= 1'}, one more than there are graphs, got "
            f"{len(pointer)}"
        )
    array = pointer.cpu().long().numpy()
    if array[0] != 0 or bool((np.diff(array) < 0).any()):
        raise ValueError(f"expected {name} to start at 0 and never fall")
    return array


def _int32(name: str, values: Tensor, shape: tuple[int, int]) -> Tensor:
    """Indices inside a graph, at half the size."""
    if not isinstance(values, Tensor) or values.dtype not in (torch.int32, torch.int64):
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
    return f"{value.dtype} of shape {list(value.shape)}"


def _dim(name: str, values: Tensor) -> int:
    return values.dim() - 1 if is_index(name) else 0


def _owner(pointer: np.ndarray, row: int) -> int:
    return int(np.searchsorted(pointer, row, side="right")) - 1


def _indexed(device: torch.device) -> torch.device:
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return device


def _carve(
    shapes: Mapping[str, tuple[int, ...]], pin: bool = False
) -> tuple[Tensor, dict[str, Tensor]]:
    """One buffer on the CPU, and tensors of these shapes in it."""
    size = sum(math.prod(shape) for shape in shapes.values())
    buffer = torch.empty(size, dtype=torch.long, pin_memory=pin)
    return buffer, _views(buffer, shapes)


def _views(buffer: Tensor, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Tensor]:
    pieces = buffer.split([math.prod(shape) for shape in shapes.values()])
    return {
        name: piece.view(shape) for (name, shape), piece in zip(shapes.items(), pieces, strict=True)
    }
