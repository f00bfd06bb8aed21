"""The elementwise ends of a variational autoencoder of small DAGs, a program for each graph: its
latent point with its divergence, and the likelihood of its types and edges."""

# mypy: disable-error-code="no-untyped-def"
# (Arguments of kernels are typed when they are compiled.)

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from dagnn.kernels.call import call, next_power_of_2
from dagnn.ops.triton.primitives import sigmoid

__all__ = ["graph_likelihood", "latent_point", "latent_point_backward"]

_SIZES = ["n", "size", "types_count", "pair_count", "row_length", "by_graph", "by_row", "by_column"]
_INDICES = ["types", "adjacency", "num_nodes", "pairs"]


@triton.jit
def _latent_kernel(
    mean, log_variance, noise, z, divergence, L: tl.constexpr, SCALE: tl.constexpr,
    WIDTH: tl.constexpr,
):  # fmt: skip
    b = tl.program_id(0)
    i = tl.arange(0, WIDTH)
    live = i < L
    m = tl.load(mean + b * L + i, mask=live, other=0.0)
    log = tl.load(log_variance + b * L + i, mask=live, other=0.0)
    draw = tl.load(noise + b * L + i, mask=live, other=0.0)
    deviation = tl.exp(0.5 * log)
    tl.store(z + b * L + i, m + SCALE * draw * deviation, mask=live)
    # Zero where nothing is loaded.
    tl.store(divergence + b, -0.5 * tl.sum(1 + log - m * m - tl.exp(log), 0))


@triton.jit(do_not_specialize=["by_graph"])
def _latent_backward_kernel(
    z_grad, divergence_grad, mean, log_variance, noise, mean_grad, log_grad, by_graph,
    L: tl.constexpr, SCALE: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    b = tl.program_id(0)
    i = tl.arange(0, WIDTH)
    live = i < L
    at = b * L + i
    point = tl.load(z_grad + at, mask=live, other=0.0)
    weight = tl.load(divergence_grad + b * by_graph)
    log = tl.load(log_variance + at, mask=live, other=0.0)
    off = SCALE * tl.load(noise + at, mask=live, other=0.0) * tl.exp(0.5 * log)
    m = tl.load(mean + at, mask=live, other=0.0)
    tl.store(mean_grad + at, point + weight * m, mask=live)
    tl.store(log_grad + at, 0.5 * (point * off + weight * (tl.exp(log) - 1)), mask=live)


@triton.jit(do_not_specialize=_SIZES, do_not_specialize_on_alignment=_INDICES)
def _likelihood_kernel(
    type_logits, edge_logits, types, adjacency, num_nodes, pairs, total, type_slope, edge_slope,
    n, size, types_count, pair_count, row_length, by_graph, by_row, by_column,
    NODES: tl.constexpr, TYPES: tl.constexpr, PAIRS: tl.constexpr,
):  # fmt: skip
    """Log-probabilities of one graph's decisions, summed, and the slope of each."""
    b = tl.program_id(0).to(tl.int64)
    nodes = tl.load(num_nodes + b)

    v = 1 + tl.arange(0, NODES)
    t = tl.arange(0, TYPES)
    live = (v < n)[:, None] & (t < types_count)[None, :]
    at = ((v - 1).to(tl.int64) * size + b)[:, None] * types_count + t[None, :]
    logit = tl.load(type_logits + at, mask=live, other=-1e30)
    logit -= tl.max(logit, 1)[:, None]
    odds = tl.where(live, tl.exp(logit), 0.0)
    odds_sum = tl.sum(odds, 1)
    odds_sum = tl.where(v < n, odds_sum, 1.0)
    true = tl.load(types + b * n + v, mask=v < n, other=0)
    hit = t[None, :] == true[:, None]
    term = tl.sum(tl.where(hit & live, logit, 0.0), 1) - tl.log(odds_sum)
    is_node = v < nodes
    by_types = tl.sum(tl.where(is_node, term, 0.0), 0)
    slope = tl.where(hit, 1.0, 0.0) - odds / odds_sum[:, None]
    tl.store(type_slope + at, tl.where(is_node[:, None], slope, 0.0), mask=live)

    p = tl.arange(0, PAIRS)
    there = p < pair_count
    pair = tl.load(pairs + p, mask=there, other=0)
    asked = there & (pair % n < pair // n) & (pair // n < nodes)
    place = b * by_graph + p // row_length * by_row + p % row_length * by_column
    x = tl.load(edge_logits + place, mask=there, other=0.0)
    bit = tl.load(adjacency + b * n * n + pair, mask=there, other=0) != 0
    likely = tl.where(bit, x, -x)
    term = tl.minimum(likely, 0.0) - tl.log(1 + tl.exp(-tl.abs(x)))
    by_edges = tl.sum(tl.where(asked, term, 0.0), 0)
    slope = tl.where(bit, 1.0, 0.0) - sigmoid(x)
    tl.store(edge_slope + place, tl.where(asked, slope, 0.0), mask=there)
    tl.store(total + b, by_types + by_edges)


def latent_point(
    mean: Tensor, log_variance: Tensor, noise: Tensor, scale: float
) -> tuple[Tensor, Tensor]:
    """``mean + scale * noise * deviation`` ``[B, L]``, and the divergence from a standard normal
    ``[B]``. All contiguous and float32."""
    size, width = mean.shape
    z, divergence = torch.empty_like(mean), mean.new_empty(size)
    arguments = (mean, log_variance, noise, z, divergence)
    call(_latent_kernel, (size, 1), arguments, *_width(width, scale))
    return z, divergence


def latent_point_backward(
    z_grad: Tensor,
    divergence_grad: Tensor,
    mean: Tensor,
    log_variance: Tensor,
    noise: Tensor,
    scale: float,
) -> tuple[Tensor, Tensor]:
    """Gradients of mean and log-variance. ``[B, L]`` each"""
    size, width = mean.shape
    gradients = torch.empty_like(mean), torch.empty_like(mean)
    given = (z_grad.contiguous(), divergence_grad, mean, log_variance, noise)
    arguments = (*given, *gradients, divergence_grad.stride(0))
    call(_latent_backward_kernel, (size, 1), arguments, *_width(width, scale))
    return gradients


def graph_likelihood(
    type_logits: Tensor, edge_logits: Tensor, types: Tensor, adjacency: Tensor, num_nodes: Tensor,
    pairs: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The log-likelihood of each graph ``[B]``, and its slope in the logits of types and of edges;
    see :func:`dagnn.autoencoders.elbo.graph_likelihood`. The logits of edges may have any strides.
    """
    size, n = types.shape
    type_logits = type_logits.contiguous()
    total = type_logits.new_empty(size)
    type_slope = torch.empty_like(type_logits)
    edge_slope = torch.empty_strided(
        edge_logits.shape, edge_logits.stride(), device=total.device, dtype=total.dtype
    )
    graph = (types.contiguous(), adjacency.contiguous().view(torch.uint8))
    given = (*graph, num_nodes.contiguous(), pairs.contiguous())
    sizes = (n, size, type_logits.size(2), pairs.numel(), pairs.size(1), *edge_logits.stride())
    arguments = (type_logits, edge_logits, *given, total, type_slope, edge_slope, *sizes)
    constants = {
        "NODES": next_power_of_2(n),
        "TYPES": next_power_of_2(type_logits.size(2)),
        "PAIRS": next_power_of_2(pairs.numel()),
    }
    call(_likelihood_kernel, (size, 1), arguments, constants, {"num_warps": 1})
    return total, type_slope, edge_slope


def _width(width: int, scale: float) -> tuple[dict[str, float], dict[str, int]]:
    return {"L": width, "SCALE": scale, "WIDTH": next_power_of_2(width)}, {"num_warps": 1}
