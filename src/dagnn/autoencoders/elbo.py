r"""The two ends of a variational autoencoder's loss: the latent point, and the graph's decisions.

On a GPU with Triton each is one kernel forward (``dagnn.ops.triton.elbo``), in place of dozens of
operations on a few hundred numbers.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from dagnn.autoencoders.dense import has_kernels, kernels
from dagnn.autoencoders.heads import type_terms
from dagnn.datasets.small_dags import SmallDags

__all__ = ["graph_likelihood", "latent_point"]


def latent_point(
    mean: Tensor, log_variance: Tensor, noise: Tensor, scale: float
) -> tuple[Tensor, Tensor]:
    r""":math:`z = \mu + s \, \epsilon \odot \sigma` ``[B, L]``, and how much the normal
    distribution of :math:`\mu, \sigma` diverges from the standard one ``[B]``.

    Args:
        mean, log_variance, noise: :math:`\mu`, :math:`\log \sigma^2` and :math:`\epsilon`.
            ``[B, L]`` each
        scale: :math:`s`.
    """
    if has_kernels(mean):
        z, divergence = _FusedLatentPoint.apply(mean, log_variance, noise, scale)
        return z, divergence
    z = mean + scale * noise * (0.5 * log_variance).exp()
    return z, -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum(-1)


def graph_likelihood(
    type_logits: Tensor, edge_logits: Tensor, graphs: SmallDags, pairs: Tensor
) -> Tensor:
    """Log-probabilities of graphs, from those of their decisions. ``[B]``

    Args:
        type_logits: Of the types of nodes 1, 2, … ``[n - 1, B, T]``
        edge_logits: Of pairs of nodes, in rows and columns. ``[B, R, C]``
        graphs: The graphs.
        pairs: Which pair it is: ``v * n + u`` for an edge from ``u`` to ``v``. Those with
            ``u >= v`` are left out. ``[R, C]``
    """
    if has_kernels(edge_logits):
        given = graphs.types, graphs.adjacency, graphs.num_nodes, pairs
        out: Tensor = _FusedLikelihood.apply(type_logits, edge_logits, *given)
        return out
    return type_terms(type_logits, graphs) + _edge_terms(edge_logits, graphs, pairs)


def _edge_terms(logits: Tensor, graphs: SmallDags, pairs: Tensor) -> Tensor:
    v, u = pairs // graphs.max_nodes, pairs % graphs.max_nodes
    true = graphs.adjacency.flatten(1).index_select(1, pairs.flatten()).view(logits.shape)
    loss = binary_cross_entropy_with_logits(logits, true.to(logits.dtype), reduction="none")
    asked = (u < v) & (v < graphs.num_nodes.view(-1, 1, 1))
    return -(loss * asked).sum((1, 2))


class _FusedLatentPoint(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, mean: Tensor, log_variance: Tensor, noise: Tensor, scale: float
    ) -> tuple[Tensor, Tensor]:
        given = mean.contiguous(), log_variance.contiguous(), noise.contiguous()
        ctx.save_for_backward(*given)
        ctx.scale = scale
        z, divergence = kernels("elbo").latent_point(*given, scale)
        return z, divergence

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, z: Tensor, divergence: Tensor) -> tuple[Tensor | None, ...]:
        given = z, divergence, *ctx.saved_tensors, ctx.scale
        return *kernels("elbo").latent_point_backward(*given), None, None


class _FusedLikelihood(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, type_logits: Tensor, edge_logits: Tensor, *given: Tensor) -> Tensor:
        total, *slopes = kernels("elbo").graph_likelihood(type_logits, edge_logits, *given)
        ctx.save_for_backward(*slopes)
        out: Tensor = total
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        types, edges = ctx.saved_tensors
        return types * grad.view(-1, 1), edges * grad.view(-1, 1, 1), *[None] * 4
