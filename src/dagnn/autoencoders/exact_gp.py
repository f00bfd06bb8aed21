r"""The exact Gaussian process, as far as memory reaches."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from dagnn.autoencoders.gaussian_process import (
    GaussianProcess,
    ascend,
    check_points,
    draw_subsets,
    factorise,
)

__all__ = ["ExactGP"]


class ExactGP(GaussianProcess):
    r"""Regression with the full kernel matrix :math:`K = K_{ff} + \sigma^2 I`.

    Length scales, scale and noise climb the marginal likelihood
    :math:`\log \mathcal{N}(y \mid 0, K)`, whose gradient is

    .. math::
        \tfrac12 \sum_{ij} \bigl( \alpha \alpha^\top - K^{-1} \bigr)_{ij}
        \frac{\partial K_{ij}}{\partial \theta}, \qquad \alpha = K^{-1} y

    so a step costs one Cholesky factorisation and one inverse, and no pass back through either.

    Args:
        num_seeds: The number of processes :math:`S`.
        channels: The width :math:`D` of the points.
    """

    points: Tensor  # [S, N, D]
    root: Tensor  # [S, N, N]
    weights: Tensor  # [S, N]

    @classmethod
    def fit(
        cls,
        x: Tensor,
        y: Tensor,
        seeds: Sequence[int],
        *,
        points: int | None = None,
        fit_points: int | None = None,
        steps: int = 100,
        rate: float = 0.1,
        tolerance: float | None = None,
    ) -> ExactGP:
        """Fit one process per seed.

        Args:
            x: The points. ``[N, D]``
            y: Their targets. ``[N]``
            seeds: Of the draws of points; where all are used, nothing here is random.
            points: How many points, drawn at random, a prediction rests on; by default all.
            fit_points: How many of these the parameters are fitted on; by default all.
            steps: Of Adam on the marginal likelihood.
            rate: Of Adam.
            tolerance: When to stop earlier; see :func:`ascend`.
        """
        check_points(x, y)
        draw = draw_subsets(len(x), points, seeds).to(x.device)
        fit = draw[:, :fit_points]
        gp = cls(len(seeds), x.size(1))
        x, y = gp.standardise(x, y)
        fit_x, fit_y = x[fit], y[fit]
        gp.climb = ascend(
            lambda: gp.log_likelihood(fit_x, fit_y), gp.parameters(), steps, rate, tolerance
        )
        with torch.no_grad():
            gp.points = x[draw]
            gp.root = factorise(gp._observed(gp.points), gp.scale)
            gp.weights = torch.cholesky_solve(y[draw][..., None], gp.root).squeeze(-1)
        return gp

    def _observed(self, x: Tensor) -> Tensor:
        """The covariance of what is observed at standardised points ``[S, N, D]``."""
        noise = self.noise[:, None].expand(x.shape[:2])
        return self.covariance(x, x) + torch.diag_embed(noise)

    def log_likelihood(self, x: Tensor, y: Tensor) -> Tensor:
        """The log marginal likelihood per point, with the gradient above. ``[S]``"""
        observed = self._observed(x)
        with torch.no_grad():
            root = factorise(observed, self.scale)
            alpha = torch.cholesky_solve(y[..., None], root)  # [S, N, 1]
            slope = 0.5 * (alpha @ alpha.mT - torch.cholesky_inverse(root))
            log_det = 2 * root.diagonal(dim1=1, dim2=2).log().sum(dim=1)
            square = (y[..., None] * alpha).sum(dim=(1, 2))
            value = -0.5 * (log_det + square + x.size(1) * math.log(2 * math.pi))
        # Linear in the covariance, with the right slope: its own value is taken off again.
        surrogate = (slope * observed).sum(dim=(1, 2))
        return (value + surrogate - surrogate.detach()) / x.size(1)

    def posterior(self, x: Tensor) -> tuple[Tensor, Tensor]:
        k = self.covariance(self.points, x.expand(len(self.points), -1, -1))  # [S, N, B]
        mean = (self.weights[:, None] @ k).squeeze(1)
        explained = torch.linalg.solve_triangular(self.root, k, upper=False)
        return mean, self.scale[:, None] - explained.square().sum(dim=1)
