r"""A data set of graphs as a few long tensors, from which a batch is cut without a loop in Python.

Graph :math:`g` owns the nodes ``node_ptr[g]`` to ``node_ptr[g + 1]`` and the edges ``edge_ptr[g]``
to ``edge_ptr[g + 1]``; every attribute is one tensor, with the rows of all graphs one after the
other, and a batch is one gather per attribute.
"""

from __future__ import annotations

import copy
import operator
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from dagnn.graph import compiled
from dagnn.graph.checks import check_device
from dagnn.graph.flat_batch import Tables, cut_batch
from dagnn.graph.flat_build import columns_of, make_tables
from dagnn.graph.flat_file import read_tensors, write_tensors
from dagnn.graph.stored_sweeps import StoredSweeps, can_be_merged, make_sweeps, there_is_room

__all__ = ["FlatGraphs", "Indices"]

Indices = Sequence[int] | np.ndarray | Tensor


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
        kinds = {"node": node or {}, "edge": edge or {}, "graph": graph or {}}
        self._tables = make_tables(
            node_ptr, edge_ptr, edge_index, kinds, ragged or {}, levels, store_num_nodes
        )
        self.metadata = dict(metadata or {})

    @classmethod
    def from_data_list(
        cls,
        graphs: Iterable[Data],
        *,
        exclude: Collection[str] = (),
        kinds: Mapping[str, str] | None = None,
    ) -> FlatGraphs:
        """The data set of some PyG ``Data`` that have the same attributes: tensors and numbers.

        Stored levels (see :class:`dagnn.AddLevels`) are used, missing ones computed.

        Args:
            graphs: The graphs; they may be made one at a time.
            exclude: Attributes to leave behind, such as lists of names.
            kinds: What attributes are of: ``"node"``, ``"edge"``, ``"graph"`` (a row for each) or
                ``"ragged"``. By default this is told by the numbers of rows, which may fit several
                where all graphs have the same size: then :obj:`edge_…` is of the edges, a single
                row of the graph, and three rows of a graph of three nodes are the nodes'.
        """
        return cls(**columns_of(graphs, exclude, kinds or {}))

    def __len__(self) -> int:
        return len(self._tables.pointers["graph"]) - 1

    @property
    def num_nodes(self) -> int:
        """The number of nodes of all graphs."""
        return int(self._tables.pointers["node"][-1])

    @property
    def num_edges(self) -> int:
        """The number of edges of all graphs."""
        return int(self._tables.pointers["edge"][-1])

    @property
    def node_ptr(self) -> Tensor:
        """Where each graph's nodes start. ``[G + 1]``"""
        return torch.from_numpy(self._tables.pointers["node"])

    @property
    def edge_ptr(self) -> Tensor:
        """Where each graph's edges start. ``[G + 1]``"""
        return torch.from_numpy(self._tables.pointers["edge"])

    @property
    def depths(self) -> Tensor:
        """The number of levels of each graph, the length of its longest path. ``[G]``"""
        return torch.from_numpy(self._tables.depths[0])

    @property
    def device(self) -> torch.device:
        """Where the attributes are."""
        return self._tables.device

    @property
    def stores_schedules(self) -> bool:
        """Whether every graph's own schedule is stored on the device, which then makes whole
        batches; see :meth:`to`."""
        return self._tables.sweeps is not None

    def keys(self) -> list[str]:
        """The names of the attributes, without those of the structure."""
        return list(self._tables.columns)

    def column(self, name: str) -> Tensor:
        """One attribute of all graphs."""
        if name not in self._tables.columns:
            raise KeyError(f"expected one of {', '.join(self._tables.columns)}, got {name!r}")
        return self._tables.columns[name].values

    def pointer(self, name: str) -> Tensor:
        """Where each graph's rows of an attribute start, and the number of all rows. ``[G + 1]``"""
        self.column(name)  # that it is there
        return torch.from_numpy(self._tables.pointers[self._tables.columns[name].kind])

    def __getitem__(self, index: int) -> Data:
        try:
            index = operator.index(index)
        except TypeError:
            raise TypeError(
                f"expected the index of one graph, got {type(index).__name__}; several are a data "
                "set by .select(indices), or a batch by .batch(indices)"
            ) from None
        tables = self._tables
        (g,) = self._check_indices([index])

        def rows(values: Tensor, kind: str, dim: int) -> Tensor:
            start, end = tables.pointers[kind][g : g + 2].tolist()
            return values.narrow(dim, start, end - start)

        data = Data(edge_index=rows(tables.edges, "edge", 1).long().to(self.device))
        for name, column in tables.columns.items():
            data[name] = rows(*column)
        data.level, data.reverse_level = rows(tables.levels, "node", 1).long().to(self.device)
        if tables.store_num_nodes:
            data.num_nodes = len(data.level)
        return data

    def select(self, indices: Indices) -> FlatGraphs:
        """The data set of some of the graphs, in the given order: a split, or a sample."""
        tables = self._tables
        graphs = self._check_indices(indices)
        pointers = {k: compiled.batch_pointer(p, graphs) for k, p in tables.pointers.items()}
        rows = {kind: torch.empty(int(p[-1]), dtype=torch.long) for kind, p in pointers.items()}
        for kind, pointer in tables.pointers.items():
            compiled.ragged_rows(pointer, graphs, rows[kind].numpy())
        chosen = Tables(
            pointers,
            tables.edges.index_select(1, rows["edge"]),
            tables.levels.index_select(1, rows["node"]),
            np.ascontiguousarray(tables.depths[:, graphs]),
            np.ascontiguousarray(tables.num_sinks[:, graphs]),
            {
                name: c._replace(
                    values=c.values.index_select(c.dim, rows[c.kind].to(c.values.device))
                )
                for name, c in tables.columns.items()
            },
            tables.device,
            tables.store_num_nodes,
        )
        if tables.sweeps is not None and _has_room(chosen, chosen.device):
            chosen.sweeps = tables.sweeps.select(graphs, rows)
        return self._with(chosen)

    def without(self, *names: str) -> FlatGraphs:
        """The same graphs without some of their attributes."""
        for name in names:
            self.column(name)  # that it is there
        tables = self._tables
        columns = {name: c for name, c in tables.columns.items() if name not in names}
        gone = {tables.columns[name].kind for name in names if tables.columns[name].is_ragged}
        pointers = {kind: p for kind, p in tables.pointers.items() if kind not in gone}
        store = tables.store_num_nodes or "x" in names
        return self._with(
            replace(tables, columns=columns, pointers=pointers, store_num_nodes=store)
        )

    def to(self, device: torch.device | str) -> FlatGraphs:
        """The same graphs with their attributes on a device, where batches are then made.

        On a GPU, where Triton is installed, every graph's own schedule is made and stored beside
        them (40 bytes per node and 24 per edge, and 12 per level in each direction), so that the
        GPU makes whole batches. Where that would take more than half of its free memory, the
        structure of batches is still made on the CPU and copied, which takes longer;
        :attr:`stores_schedules` tells. See :mod:`dagnn.graph.flat_batch`.
        """
        device = _indexed(torch.device(device))
        columns = {
            name: column._replace(values=column.values.to(device))
            for name, column in self._tables.columns.items()
        }
        sweeps = _sweeps_on(self._tables, device)
        return self._with(replace(self._tables, columns=columns, device=device, sweeps=sweeps))

    def batch(
        self,
        indices: Indices,
        *,
        schedule: bool = False,
        device: torch.device | str | None = None,
        padded: bool = False,
    ) -> Batch:
        """Some graphs side by side, as ``Batch.from_data_list([flat[i] for i in indices])``.

        Args:
            indices: Which graphs, in which order; a graph may occur more than once.
            schedule: Whether to add ``batch.schedule``, the :class:`dagnn.LevelSchedule`, which
                :class:`dagnn.DAGNN` uses if it is there.
            device: Where the batch shall be; by default where the attributes are.
            padded: Whether to add one more graph, a filler, so that there are few different sizes
                of batches (see :mod:`dagnn.graph.padding`). Attributes of graphs have no row for
                it, and ragged attributes, whose sizes would be as many as ever, are refused.
        """
        return self.batch_and_buffers(indices, schedule, device, padded)[0]

    def batch_and_buffers(
        self,
        indices: Indices,
        schedule: bool,
        device: torch.device | str | None,
        padded: bool = False,
    ) -> tuple[Batch, list[Tensor]]:
        """A batch, and the tensors that own the memory behind it."""
        device = self.device if device is None else _indexed(torch.device(device))
        if self.device.type != "cpu" and device != self.device:
            raise ValueError(
                f"expected batches on {self.device}, where the attributes are, got device "
                f"{str(device)!r}; move the data set with .to()"
            )
        if padded and not self.num_edges:
            raise ValueError(
                "expected graphs with edges to pad their batches, got none; use padded=False"
            )
        if padded and (ragged := [n for n, c in self._tables.columns.items() if c.is_ragged]):
            raise ValueError(
                f"expected attributes of nodes, edges or graphs in padded batches, got "
                f"{ragged[0]!r} with a number of rows of its own; leave it behind with "
                f".without({', '.join(map(repr, ragged))}), give graphs a single row [1, …] of it, "
                "or use padded=False"
            )
        return cut_batch(self._tables, self._check_indices(indices), schedule, device, padded)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the graphs to a safetensors file; it appears only when it is complete."""
        write_tensors(path, self._tables, self.metadata)

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
            raise ValueError(f"{os.fspath(path)} is damaged: {error}") from error

    def __repr__(self) -> str:
        device = "" if self.device.type == "cpu" else f", device={self.device}"
        return (
            f"FlatGraphs(num_graphs={len(self)}, num_nodes={self.num_nodes}, "
            f"num_edges={self.num_edges}, attributes=[{', '.join(self.keys())}]{device})"
        )

    def _with(self, tables: Tables) -> FlatGraphs:
        other = copy.copy(self)
        other._tables, other.metadata = tables, dict(self.metadata)
        return other

    def _check_indices(self, indices: Indices) -> np.ndarray:
        graphs = np.asarray(indices.cpu().numpy() if isinstance(indices, Tensor) else indices)
        if graphs.ndim != 1 or graphs.size == 0:
            raise ValueError(
                f"expected a list with the index of at least one graph, got "
                f"{'an empty one' if graphs.ndim == 1 else _shown(indices)}"
            )
        if graphs.dtype.kind not in "iu":
            hint = "; of a mask, mask.nonzero().flatten()" if graphs.dtype == bool else ""
            raise TypeError(f"expected integers as indices of graphs, got {graphs.dtype}{hint}")
        low, high = int(graphs.min()), int(graphs.max())
        if low < -len(self) or high >= len(self):
            raise IndexError(
                f"expected indices of graphs from 0 to {len(self)} (exclusive), or from the end, "
                f"got {low if low < -len(self) else high}"
            )
        graphs = graphs.astype(np.int64, copy=False)
        return graphs if low >= 0 else np.where(graphs < 0, graphs + len(self), graphs)


def _sweeps_on(tables: Tables, device: torch.device) -> StoredSweeps | None:
    """The graphs' own schedules on a device, if it can make batches of them."""
    if tables.sweeps is not None and device == tables.device:
        return tables.sweeps
    if not can_be_merged(device) or not _has_room(tables, device):
        return None
    pointers = tables.pointers
    sweeps = tables.sweeps or make_sweeps(
        pointers["node"], pointers["edge"], tables.edges, tables.levels, tables.depths
    )
    return sweeps.to(device)


def _has_room(tables: Tables, device: torch.device) -> bool:
    return there_is_room(tables.levels.size(1), tables.edges.size(1), tables.depths, device)


def _shown(indices: object) -> str:
    if isinstance(indices, Tensor | np.ndarray | Sequence):
        return f"shape {list(np.shape(indices))}"
    return repr(indices)


def _indexed(device: torch.device) -> torch.device:
    check_device(device)
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return device
