r"""The sparse Gaussian process that scored the latent spaces of D-VAE's paper and DAGNN's, anew.

It is stochastic expectation propagation (`Bui et al., 2016 <https://arxiv.org/abs/1602.04133>`_):
with the values :math:`u` of a function at inducing points, their prior :math:`\mathcal{N}(0, K)`,
and :math:`n` points to learn from,

.. math::
    q(u) \propto \mathcal{N}(u \mid 0, K) \, t(u)^n, \qquad
    t(u)^n \propto \exp(m^{\top} u - \tfrac12 u^{\top} L L^{\top} u)

is learned together with the kernel by Adam, on minibatches, from the energy in which each point is
seen by the cavity :math:`q(u) / t(u)`. Start, learning rate and number of steps are those of
D-VAE's code: length scales from the median distance, a noise as large as the targets, 100 passes
over minibatches of 1,000 at 5e-4. Points are not standardised.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

__all__ = ["PublishedProcess"]

JITTER = 1e-3


class _Values(NamedTuple):
    """A normal distribution of the values at the inducing points."""

    mean: Tensor  # [M]
    covariance: Tensor  # [M, M]
    log_normalizer: Tensor


class PublishedProcess(nn.Module):
    """A process that knows its start and nothing else; see :meth:`fit`.

    Args:
        x: Points to start from: distances, and inducing points among them. ``[P, D]``
        y: Their targets. ``[P]``
        num_inducing: The number of inducing points :math:`M`.
        generator: Of all that is random.
    """

    def __init__(self, x: Tensor, y: Tensor, num_inducing: int, generator: torch.Generator) -> None:
        super().__init__()
        chosen = torch.randperm(len(x), generator=generator)[:num_inducing].to(x.device)
        start = math.log(0.5 * (torch.pdist(x).square().median().item() + JITTER))
        root = torch.randn(len(chosen), len(chosen), generator=generator, dtype=x.dtype)
        self.log_squares = nn.Parameter(x.new_full((x.size(1),), start))  # of length scales
        self.log_scale = nn.Parameter(x.new_zeros(()))
        self.log_noise = nn.Parameter(x.new_zeros(()))
        self.inducing = nn.Parameter(x[chosen].clone())
        self.shift = nn.Parameter(y[chosen].clone())  # m
        self.root = nn.Parameter(root.to(x.device))  # L

    @classmethod
    def fit(
        cls,
        x: Tensor,
        y: Tensor,
        *,
        seed: int = 0,
        num_inducing: int = 500,
        passes: int = 100,
        batch_size: int = 1000,
        rate: float = 5e-4,
    ) -> PublishedProcess:
        """Learn from points ``[N, D]`` and standardised targets ``[N]``, in float64."""
        generator = torch.Generator().manual_seed(seed)

        def batches() -> tuple[Tensor, ...]:
            return torch.randperm(len(x), generator=generator).to(x.device).split(batch_size)

        first = batches()[0]
        process = cls(x[first], y[first], num_inducing, generator)
        optimizer = torch.optim.Adam(process.parameters(), lr=rate)
        for _ in range(passes):
            for batch in batches():
                optimizer.zero_grad()
                loss = -process.energy(x[batch], y[batch], len(x))
                loss.backward()
                optimizer.step()
        return process

    def energy(self, x: Tensor, y: Tensor, num_points: int) -> Tensor:
        """What is climbed, of some points of :obj:`num_points`."""
        inverse, prior = self._prior()
        cavity = self._values(inverse, 1 - 1 / num_points)
        posterior = self._values(inverse, 1.0)
        mean, variance = self._seen_by(cavity, inverse, x)
        log_density = -0.5 * ((2 * math.pi * variance).log() + (y - mean).square() / variance)
        normalizers = cavity.log_normalizer - posterior.log_normalizer
        normalizers = normalizers + (posterior.log_normalizer - prior) / num_points
        return len(x) * normalizers + log_density.sum()

    @torch.no_grad()
    def predict(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Means and variances of targets. ``[N]`` each"""
        inverse, _ = self._prior()
        return self._seen_by(self._values(inverse, 1.0), inverse, x)

    def _covariance(self, x: Tensor) -> Tensor:
        lengths = (0.5 * self.log_squares).exp()
        square = torch.cdist(x / lengths, self.inducing / lengths).square()
        return (self.log_scale - 0.5 * square).exp()

    def _prior(self) -> tuple[Tensor, Tensor]:
        """The inverse of K, and the logarithm of its normalizer."""
        jitter = JITTER * self.log_scale.exp() * torch.ones_like(self.shift).diag()
        root = torch.linalg.cholesky(self._covariance(self.inducing) + jitter)
        return torch.cholesky_inverse(root), root.diagonal().log().sum()

    def _values(self, inverse: Tensor, share: float) -> _Values:
        """With a share of what all points say."""
        precision = inverse + share * self.root @ self.root.T
        root = torch.linalg.cholesky(precision)
        covariance = torch.cholesky_inverse(root)
        mean = covariance @ (share * self.shift)
        return _Values(
            mean, covariance, 0.5 * mean @ precision @ mean - root.diagonal().log().sum()
        )

    def _seen_by(self, values: _Values, inverse: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        k = self._covariance(x)
        change = inverse @ values.covariance @ inverse - inverse
        variance = (self.log_scale.exp() + ((k @ change) * k).sum(1)).abs()
        return k @ (inverse @ values.mean), variance + self.log_noise.exp()
