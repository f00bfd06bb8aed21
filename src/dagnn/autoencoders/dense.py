"""What models ask of a dense batch of DAGs, in node-major form."""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from dagnn.datasets.small_dags import SmallDags

__all__ = [
    "at_last_node",
    "choose",
    "flip",
    "has_kernels",
    "has_static_shapes",
    "kernels",
    "node_rows",
    "one_hot_types",
    "sum_inner",
    "toss",
]

HAS_TRITON = find_spec("triton") is not None


def has_static_shapes(tensor: Tensor) -> bool:
    """Whether shapes must not depend on the graphs: on a GPU, where they make a CUDA graph
    possible. A CPU gains more by leaving out what is computed twice."""
    return tensor.is_cuda


def has_kernels(tensor: Tensor) -> bool:
    """Whether there are kernels of our own for it (``dagnn.ops.triton``)."""
    return _has_kernels(tensor.device, tensor.dtype)


def _has_kernels(device: torch.device, dtype: torch.dtype) -> bool:
    return HAS_TRITON and device.type == "cuda" and dtype == torch.float32


def kernels(name: str) -> Any:
    """A module of them, which needs Triton."""
    return importlib.import_module(f"dagnn.ops.triton.{name}")


def node_rows(graphs: SmallDags, dtype: torch.dtype) -> Tensor:
    """Types, one-hot, and bits of edges from all nodes but the last. ``[n, B, T + n - 1]``"""
    if _has_kernels(graphs.device, dtype):
        return _rows(graphs, graphs.max_nodes - 1)
    bits = graphs.adjacency.transpose(0, 1)[..., :-1].to(dtype)
    return torch.cat([one_hot_types(graphs, dtype), bits], -1)


def one_hot_types(graphs: SmallDags, dtype: torch.dtype) -> Tensor:
    """``[n, B, T]``"""
    if _has_kernels(graphs.device, dtype):
        return _rows(graphs, 0)
    return one_hot(graphs.types.t(), graphs.num_types).to(dtype)


def _rows(graphs: SmallDags, bits: int) -> Tensor:
    out: Tensor = kernels("small_dags").node_rows(
        graphs.types, graphs.adjacency, graphs.num_types, bits
    )
    return out


def at_last_node(h: Tensor, graphs: SmallDags) -> Tensor:
    """States ``[n, B, H]`` of every graph's last node, its output. ``[B, H]``"""
    if has_kernels(h):
        return _sum_nodes(h, graphs, inner=False)
    # A product: the gradient of an indexed read is a scatter, slow and in no fixed order on a GPU.
    last = one_hot(graphs.num_nodes - 1, graphs.max_nodes).to(h.dtype)  # [B, n]
    return torch.bmm(last.unsqueeze(1), h.transpose(0, 1)).squeeze(1)


def sum_inner(h: Tensor, graphs: SmallDags) -> Tensor:
    """The sum of states ``[n, B, H]`` over all nodes but the input and the output. ``[B, H]``"""
    if has_kernels(h):
        return _sum_nodes(h, graphs, inner=True)
    place = torch.arange(graphs.max_nodes, device=h.device).unsqueeze(-1)
    inner = (place > 0) & (place < graphs.num_nodes - 1)  # [n, B]
    return torch.bmm(inner.t().unsqueeze(1).to(h.dtype), h.transpose(0, 1)).squeeze(1)


def _sum_nodes(h: Tensor, graphs: SmallDags, inner: bool) -> Tensor:
    out: Tensor = _FusedSumNodes.apply(h, graphs.num_nodes, inner)
    return out


class _FusedSumNodes(torch.autograd.Function):
    """Both, by kernels of our own."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, num_nodes: Tensor, inner: bool) -> Tensor:
        ctx.save_for_backward(num_nodes)
        ctx.nodes, ctx.inner = len(h), inner
        out: Tensor = kernels("small_dags").sum_nodes(h, num_nodes, inner)
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (num_nodes,) = ctx.saved_tensors
        spread = kernels("small_dags").spread_nodes(grad, num_nodes, ctx.nodes, ctx.inner)
        return spread, None, None


def flip(edge: Tensor) -> Tensor:
    """The mask of the reverse DAG, its nodes numbered from the last one down. ``[B, n, n]``"""
    return edge.transpose(1, 2).flip(1, 2)


def choose(logits: Tensor, stochastic: bool, generator: torch.Generator | None) -> Tensor:
    """A class per row of ``[B, C]``: drawn, or the likeliest. ``[B]``"""
    if not stochastic:
        return logits.argmax(-1)
    return torch.multinomial(logits.softmax(-1), 1, generator=generator).squeeze(-1)


def toss(logits: Tensor, stochastic: bool, generator: torch.Generator | None) -> Tensor:
    """Yes or no for each logit: drawn, or the likelier. bool, same shape"""
    if not stochastic:
        return logits > 0
    draw = torch.rand(logits.shape, generator=generator, dtype=logits.dtype, device=logits.device)
    return draw < logits.sigmoid()
