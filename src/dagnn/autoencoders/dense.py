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
    "one_hot_types",
    "toss",
]

HAS_TRITON = find_spec("triton") is not None


def has_static_shapes(tensor: Tensor) -> bool:
    """Whether shapes must not depend on the graphs: on a GPU, where they make a CUDA graph
    possible. A CPU gains more by leaving out what is computed twice."""
    return tensor.is_cuda


def has_kernels(tensor: Tensor) -> bool:
    """Whether there are kernels of our own for it (``dagnn.ops.triton.dense``)."""
    return HAS_TRITON and tensor.is_cuda and tensor.dtype == torch.float32


def kernels() -> Any:
    """The module of them, which needs Triton."""
    return importlib.import_module("dagnn.ops.triton.dense")


def one_hot_types(graphs: SmallDags, dtype: torch.dtype) -> Tensor:
    """``[n, B, T]``"""
    return one_hot(graphs.types.t(), graphs.num_types).to(dtype)


def at_last_node(h: Tensor, graphs: SmallDags) -> Tensor:
    """States ``[n, B, H]`` of every graph's last node, its output. ``[B, H]``"""
    # A product: the gradient of an indexed read is a scatter, slow and in no fixed order on a GPU.
    last = one_hot(graphs.num_nodes - 1, graphs.max_nodes).to(h.dtype)  # [B, n]
    return torch.bmm(last.unsqueeze(1), h.transpose(0, 1)).squeeze(1)


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
