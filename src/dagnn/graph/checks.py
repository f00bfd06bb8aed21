"""Checks at the public boundary: what was expected, what came, what to do.

Values cannot be read while torch.compile or torch.export traces a graph. They are then checked when
it runs, by an operator that needs them; where none does, by one that hands them on, since what
nobody uses is left out of a graph.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = [
    "check_batch",
    "check_batch_values",
    "check_device",
    "check_edge_form",
    "check_edge_index",
    "check_edge_values",
    "check_levels",
    "check_same_device",
    "infer_num_nodes",
]


def check_edge_index(edge_index: Tensor, num_nodes: int | None = None) -> None:
    check_edge_form(edge_index, num_nodes)
    if not torch.compiler.is_compiling():
        check_edge_values(edge_index, num_nodes)


def check_edge_form(edge_index: Tensor, num_nodes: int | None = None) -> None:
    """All but the values."""
    _check_tensor("edge_index", edge_index)
    if edge_index.dtype != torch.long:
        raise TypeError(
            f"expected edge_index of dtype torch.int64, got {edge_index.dtype}; "
            "convert it with edge_index.long()"
        )
    if edge_index.dim() != 2 or edge_index.size(0) != 2:
        hint = "; transpose it with edge_index.t()" if edge_index.shape[1:] == (2,) else ""
        raise ValueError(
            f"expected edge_index of shape [2, num_edges], got {list(edge_index.shape)}{hint}"
        )
    if num_nodes is not None and num_nodes < 0:
        raise ValueError(f"expected num_nodes >= 0, got {num_nodes}")


def check_edge_values(edge_index: Tensor, num_nodes: int | None = None) -> None:
    if edge_index.numel() == 0:
        return
    low, high = _bounds(edge_index)
    if low < 0 or (num_nodes is not None and high >= num_nodes):
        bound = "the number of nodes" if num_nodes is None else num_nodes
        raise ValueError(
            f"expected node indices from 0 to {bound} (exclusive) in edge_index, "
            f"got {low if low < 0 else high}"
        )


def infer_num_nodes(edge_index: Tensor, num_nodes: int | None) -> int:
    if num_nodes is not None:
        return num_nodes
    return max(int(edge_index.max()) + 1, 0) if edge_index.numel() else 0


def check_device(device: torch.device) -> None:
    """That a CUDA device is one that torch can use."""
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(
            f"expected a device that is there, got {str(device)!r}, but torch finds no CUDA device"
        )


def check_levels(levels: Tensor, edge_index: Tensor, num_nodes: int) -> Tensor:
    """Any non-negative integers that rise along every edge are a valid order of computation.

    Returns them, checked: while a graph is traced, they are checked only if the result is used.
    """
    _check_tensor("levels", levels)
    if levels.is_floating_point() or levels.is_complex() or levels.dtype == torch.bool:
        found = " with NaN in it" if levels.is_floating_point() and levels.isnan().any() else ""
        raise TypeError(
            f"expected integer levels, got {levels.dtype}{found}; "
            "compute them with dagnn.topological_levels(edge_index, num_nodes)"
        )
    if levels.shape != (num_nodes,):
        raise ValueError(
            f"expected one level per node, shape [{num_nodes}], got {list(levels.shape)}"
        )
    check_same_device(edge_index=edge_index, levels=levels)
    if not torch.compiler.is_compiling():
        _check_level_values(levels, edge_index)
    elif levels.device.type == "cpu":  # elsewhere, a look would wait for the device
        levels = torch.ops.dagnn.checked_levels(levels, edge_index)
    return levels


@torch.library.custom_op("dagnn::checked_levels", mutates_args=())
def _checked_levels(levels: Tensor, edge_index: Tensor) -> Tensor:
    check_edge_values(edge_index, len(levels))
    _check_level_values(levels, edge_index)
    return levels.clone()


@_checked_levels.register_fake
def _(levels: Tensor, edge_index: Tensor) -> Tensor:
    return torch.empty_like(levels)


def _check_level_values(levels: Tensor, edge_index: Tensor) -> None:
    if levels.numel() == 0:
        return
    if int(levels.min()) < 0:
        raise ValueError(f"expected levels >= 0, got {int(levels.min())}")
    source, target = edge_index
    wrong = levels[source] >= levels[target]
    if bool(wrong.any()):
        e = int(wrong.nonzero()[0])
        u, v = int(source[e]), int(target[e])
        raise ValueError(
            f"expected levels that rise along every edge, got level {int(levels[u])} -> "
            f"{int(levels[v])} on edge {u} -> {v}. Levels must come from all edges that carry "
            "messages: recompute them with dagnn.topological_levels(edge_index, num_nodes)"
        )


def check_batch(batch: Tensor, num_nodes: int, batch_size: int | None = None) -> int:
    """Check a batch vector and return the number of graphs."""
    _check_tensor("batch", batch)
    if batch.dtype != torch.long:
        raise TypeError(f"expected batch of dtype torch.int64, got {batch.dtype}")
    if batch.shape != (num_nodes,):
        raise ValueError(
            f"expected batch to name the graph of each of the {num_nodes} nodes, shape "
            f"[{num_nodes}], got {list(batch.shape)}"
        )
    if torch.compiler.is_compiling():
        if batch_size is None:
            raise ValueError(
                "expected batch_size beside batch inside torch.compile or torch.export, got None"
            )
        return batch_size
    return check_batch_values(batch, batch_size)


def check_batch_values(batch: Tensor, batch_size: int | None = None) -> int:
    if batch.numel() == 0:
        return batch_size or 0
    if bool((batch[1:] < batch[:-1]).any()):
        at = int((batch[1:] < batch[:-1]).nonzero()[0]) + 1
        raise ValueError(
            f"expected batch in ascending order, got {int(batch[at])} after {int(batch[at - 1])} "
            f"at node {at}; reorder the nodes so that each graph's nodes are contiguous"
        )
    low, high = int(batch[0]), int(batch[-1])
    if low < 0 or (batch_size is not None and high >= batch_size):
        wanted = ">= 0" if batch_size is None else f"from 0 to {batch_size} (exclusive)"
        raise ValueError(
            f"expected graph indices {wanted} in batch, got {low if low < 0 else high}"
        )
    return high + 1 if batch_size is None else batch_size


def check_same_device(**tensors: Tensor | None) -> None:
    for name, tensor in tensors.items():
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(
                f"expected {name} as a torch.Tensor, got {type(tensor).__name__}; "
                f"convert it with torch.as_tensor({name})"
            )
    devices = {name: t.device for name, t in tensors.items() if t is not None}
    if len(set(devices.values())) > 1:
        found = ", ".join(f"{name} on {device}" for name, device in devices.items())
        raise ValueError(f"expected all tensors on one device, got {found}; move them with .to()")


def _check_tensor(name: str, value: object) -> None:
    if not isinstance(value, Tensor):
        raise TypeError(f"expected {name} as a torch.Tensor, got {type(value).__name__}")


def _bounds(index: Tensor) -> tuple[int, int]:
    """The smallest and the largest entry."""
    if index.device.type == "cpu":
        # Waking torch's threads takes longer than the search, by far so on a busy machine.
        array = index.numpy()
        return int(array.min()), int(array.max())
    low, high = index.aminmax()
    return int(low), int(high)
