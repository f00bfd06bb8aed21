"""What a model is called with: checked, and in one form."""

from __future__ import annotations

from numbers import Integral
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch_geometric.data import Data

from dagnn.graph.checks import check_batch, check_batch_values, check_same_device
from dagnn.graph.schedule import LevelSchedule

__all__ = ["OTHER_EDGES", "GraphInput", "GraphReader", "has_edges", "read_graph"]

OTHER_EDGES = (
    "expected the schedule of this very graph, got one of other edges; build it anew with "
    "LevelSchedule.from_edge_index (or remove a stale one from a Data: del data.schedule)"
)


class GraphInput(NamedTuple):
    """Checked arguments of a call."""

    x: Tensor  # [N, C]
    edge_type: Tensor | None  # [E]
    edge_attr: Tensor | None  # [E, edge_channels]
    batch: Tensor | None  # [N]
    batch_size: int
    schedule: LevelSchedule


class GraphReader(Protocol):
    """What a model says of the graphs that it takes."""

    in_channels: int
    edge_types: int | None
    edge_channels: int | None
    bidirectional: bool

    @property
    def _parameter(self) -> Tensor: ...


def read_graph(
    model: GraphReader,
    x: Tensor | Data,
    edge_index: Tensor | None,
    edge_type: Tensor | None,
    edge_attr: Tensor | None,
    batch: Tensor | None,
    schedule: LevelSchedule | None,
    batch_size: int | None,
) -> GraphInput:
    """Check the arguments and bring them into one form."""
    levels = reverse_levels = None
    if isinstance(x, Data):
        data = x
        if edge_index is not None or edge_type is not None or edge_attr is not None:
            raise ValueError(
                "expected either a PyG Data or tensors, got a Data and edge tensors beside it"
            )
        x, edge_index, edge_type, edge_attr = (
            data.get(name) for name in ("x", "edge_index", "edge_type", "edge_attr")
        )
        batch = data.get("batch") if batch is None else batch
        if batch is not None and batch_size is None:
            batch_size = getattr(data, "num_graphs", None)
        levels, reverse_levels = data.get("level"), data.get("reverse_level")
        schedule = data.get("schedule") if schedule is None else schedule
        if x is None:
            raise ValueError(
                f"expected data.x with node features [num_nodes, {model.in_channels}], got None"
            )
    if not isinstance(x, Tensor):
        raise TypeError(f"expected x as a torch.Tensor or a PyG Data, got {type(x).__name__}")
    given = {"edge_index": edge_index, "edge_type": edge_type, "edge_attr": edge_attr}
    for name, value in {**given, "batch": batch}.items():
        if value is not None and not isinstance(value, Tensor):
            raise TypeError(
                f"expected {name} as a torch.Tensor, got {type(value).__name__}; convert it with "
                f"torch.as_tensor({name})"
            )
    if batch_size is not None and not isinstance(batch_size, Integral | torch.SymInt):
        raise TypeError(f"expected batch_size as an int, got {type(batch_size).__name__}")
    # A model uses the edge information it was made for and ignores the rest, unless that does
    # not even fit the edges: then it was meant as another argument, such as batch.
    unused = {
        "edge_type": edge_type if model.edge_types is None else None,
        "edge_attr": edge_attr if model.edge_channels is None else None,
    }
    edge_type = edge_type if model.edge_types is not None else None
    edge_attr = edge_attr if model.edge_channels is not None else None
    if schedule is not None and not isinstance(schedule, LevelSchedule):
        raise TypeError(
            f"expected schedule as a LevelSchedule, got {type(schedule).__name__}; "
            "build it from the batch with LevelSchedule.from_data(batch)"
        )
    check_same_device(
        x=x,
        edge_index=edge_index,
        edge_type=edge_type,
        edge_attr=edge_attr,
        batch=batch,
        schedule=None if schedule is None else schedule.order,
        parameters=model._parameter,
    )
    _check_features(model, x)
    num_nodes = x.size(0)
    # With a ready schedule on an accelerator, values are trusted: reading them would make
    # the host wait for the device in every step.
    may_read = x.device.type == "cpu" or schedule is None
    if schedule is None:
        if edge_index is None:
            raise ValueError("expected edge_index or schedule, got neither")
        schedule = LevelSchedule.from_edge_index(
            edge_index, num_nodes, levels, reverse_levels, reverse=model.bidirectional
        )
    elif schedule.num_nodes != num_nodes:
        raise ValueError(
            f"expected features of all {schedule.num_nodes} nodes of the schedule, "
            f"got {num_nodes} rows"
        )
    elif edge_index is not None and edge_index.shape[1:] != (schedule.num_edges,):
        raise ValueError(
            f"expected the schedule of this very graph, with {schedule.num_edges} edges, "
            f"got edge_index of shape {list(edge_index.shape)} beside it"
        )
    elif model.bidirectional and schedule.num_directions == 1:
        raise ValueError(
            "expected a schedule with both directions for a bidirectional model, got one "
            "with the forward direction alone; build it with reverse=True"
        )
    elif edge_index is not None and may_read and not has_edges(schedule, edge_index):
        raise ValueError(OTHER_EDGES)
    if not model.bidirectional:
        schedule = schedule.forward_only()
    for name, value in unused.items():
        if value is not None and value.shape[:1] != (schedule.num_edges,):
            raise ValueError(
                f"expected {name} of the {schedule.num_edges} edges, or none, since the model "
                f"has no use for it; got shape {list(value.shape)}. If it was meant as "
                "another argument, pass that by name: batch=..."
            )
    edge_type = _check_edges(model, edge_type, edge_attr, schedule.num_edges, may_read)
    if batch is None:
        if batch_size not in (None, 1):
            raise ValueError(
                f"expected batch beside batch_size={batch_size}, got None; without it all nodes "
                "are one graph: pass the graph of every node as batch=..."
            )
        batch_size = 1
    elif may_read or batch_size is None:
        batch_size = check_batch(batch, num_nodes, batch_size)
        batch = _check_edges_stay_inside(batch, batch_size, schedule)
    return GraphInput(x, edge_type, edge_attr, batch, batch_size or 0, schedule)


def _check_features(model: GraphReader, x: Tensor) -> None:
    if x.dim() != 2 or x.size(1) != model.in_channels:
        raise ValueError(
            f"expected node features of shape [num_nodes, {model.in_channels}], got {list(x.shape)}"
        )
    if not x.is_floating_point():
        raise TypeError(
            f"expected floating point node features, got {x.dtype}; embed or one-hot encode "
            "categories, or convert with x.float()"
        )
    _check_dtype(model, "node features", x)


def _check_dtype(model: GraphReader, name: str, value: Tensor) -> None:
    dtype = model._parameter.dtype
    if value.dtype != dtype and not torch.is_autocast_enabled(value.device.type):
        raise TypeError(
            f"expected {name} of the model's dtype {dtype}, got {value.dtype}; convert either "
            "with .to(dtype)"
        )


def _check_edges(
    model: GraphReader,
    edge_type: Tensor | None,
    edge_attr: Tensor | None,
    num_edges: int,
    may_read: bool,
) -> Tensor | None:
    """Returns the edges' types: while a graph is traced, they are checked only if that is used."""
    if model.edge_types is not None:
        if edge_type is None:
            raise ValueError(
                f"expected edge_type, since the model has edge_types={model.edge_types}; got None"
            )
        if edge_type.dtype != torch.long or edge_type.shape != (num_edges,):
            raise ValueError(
                f"expected edge_type of dtype torch.int64 and shape [{num_edges}], one per "
                f"edge, got {edge_type.dtype} and {list(edge_type.shape)}"
            )
        if torch.compiler.is_compiling():
            if edge_type.device.type == "cpu":  # elsewhere, a look would wait for the device
                edge_type = torch.ops.dagnn.checked_edge_type(edge_type, model.edge_types)
        elif may_read:
            _check_type_values(edge_type, model.edge_types)
    if model.edge_channels is not None:
        if edge_attr is None or edge_attr.shape != (num_edges, model.edge_channels):
            found = None if edge_attr is None else list(edge_attr.shape)
            raise ValueError(
                f"expected edge_attr of shape [{num_edges}, {model.edge_channels}], got {found}"
            )
        _check_dtype(model, "edge_attr", edge_attr)
    return edge_type


@torch.library.custom_op("dagnn::checked_edge_type", mutates_args=())
def _checked_edge_type(edge_type: Tensor, edge_types: int) -> Tensor:
    _check_type_values(edge_type, edge_types)
    return edge_type.clone()


@_checked_edge_type.register_fake
def _(edge_type: Tensor, edge_types: int) -> Tensor:
    return torch.empty_like(edge_type)


def _check_type_values(edge_type: Tensor, edge_types: int) -> None:
    if edge_type.numel() == 0:
        return
    low, high = (int(value) for value in edge_type.aminmax())
    if low < 0 or high >= edge_types:
        raise ValueError(
            f"expected edge types from 0 to {edge_types} (exclusive), "
            f"got {low if low < 0 else high}"
        )


def has_edges(schedule: LevelSchedule, edge_index: Tensor) -> bool:
    """Whether a schedule was built from these very edges (or, while it is compiled, may be)."""
    if torch.compiler.is_compiling():
        return True
    sweep = schedule.forward
    target = torch.repeat_interleave(sweep.pred_ptr.diff(), output_size=sweep.num_edges)
    edges = torch.stack([sweep.order[sweep.pred], sweep.order[target]])
    return torch.equal(edges, edge_index[:, sweep.pred_edge])


def _check_edges_stay_inside(batch: Tensor, batch_size: int, schedule: LevelSchedule) -> Tensor:
    """Returns the batch vector: while a graph is traced, it is checked only if that is used."""
    sweep = schedule.forward
    edges = sweep.order, sweep.pred_ptr, sweep.pred
    if not torch.compiler.is_compiling():
        _check_crossing(batch, *edges)
    elif batch.device.type == "cpu":  # elsewhere, a look would wait for the device
        batch = torch.ops.dagnn.checked_batch(batch, batch_size, *edges)
    return batch


@torch.library.custom_op("dagnn::checked_batch", mutates_args=())
def _checked_batch(
    batch: Tensor, batch_size: int, order: Tensor, pred_ptr: Tensor, pred: Tensor
) -> Tensor:
    check_batch_values(batch, batch_size)
    _check_crossing(batch, order, pred_ptr, pred)
    return batch.clone()


@_checked_batch.register_fake
def _(batch: Tensor, batch_size: int, order: Tensor, pred_ptr: Tensor, pred: Tensor) -> Tensor:
    return torch.empty_like(batch)


def _check_crossing(batch: Tensor, order: Tensor, pred_ptr: Tensor, pred: Tensor) -> None:
    graph = batch[order]  # by position
    target = torch.repeat_interleave(pred_ptr.diff(), output_size=pred.numel())
    crossing = graph[pred] != graph[target]
    if bool(crossing.any()):
        slot = int(crossing.nonzero()[0])
        u, v = int(order[pred[slot]]), int(order[target[slot]])
        raise ValueError(
            f"expected edges inside one graph, got edge {u} -> {v} from graph {int(batch[u])} to "
            f"graph {int(batch[v])}"
        )
