r"""Sparse Gaussian processes: what :math:`M` inducing points know of all :math:`N` points.

:class:`CollapsedGP` trains on a bound of the marginal likelihood in which the distribution of the
inducing values is already optimal; :class:`VariationalGP` learns that distribution step by step, on
minibatches.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.means import ZeroMean
from gpytorch.mlls import VariationalELBO
from gpytorch.models import ApproximateGP
from gpytorch.variational import CholeskyVariationalDistribution, VariationalStrategy
from torch import Tensor, nn

from dagnn.autoencoders.gaussian_process import (
    GaussianProcess,
    ascend,
    check_points,
    draw_subsets,
    factorise,
    k_means,
)

__all__ = ["CollapsedGP", "VariationalGP"]


class CollapsedGP(GaussianProcess):
    r"""The Gaussian process of `Titsias (2009) <https://proceedings.mlr.press/v5/titsias09a.html>`_
    (VFE), or of `Snelson and Ghahramani (2006)
    <https://papers.nips.cc/paper/2857-sparse-gaussian-processes-using-pseudo-inputs>`_ (FITC).

    With :math:`Q = K_{fu} K_{uu}^{-1} K_{uf}`, the objective is

    .. math::
        \log \mathcal{N}(y \mid 0,\, Q + \Lambda) - t, \qquad
        \begin{cases}
        \Lambda = \sigma^2 I,\; t = \operatorname{tr}(K_{ff} - Q) / 2 \sigma^2 & \text{VFE} \\
        \Lambda = \sigma^2 I + \operatorname{diag}(K_{ff} - Q),\; t = 0 & \text{FITC}
        \end{cases}

    over length scales, scale, noise and inducing points, which start at centres of k-means.

    Args:
        num_seeds: The number of processes :math:`S`.
        channels: The width :math:`D` of the points.
        num_inducing: The number of inducing points :math:`M`.
        fitc: Whether it is FITC.
    """

    weights: Tensor
    reduction: Tensor

    def __init__(
        self, num_seeds: int, channels: int, num_inducing: int, *, fitc: bool = False
    ) -> None:
        super().__init__(num_seeds, channels)
        self.fitc = fitc
        shape = (num_seeds, num_inducing)
        self.inducing = nn.Parameter(torch.zeros(*shape, channels, dtype=torch.double))
        # Given the inducing points, a prediction needs these two and not the data.
        self.register_buffer("weights", torch.zeros(shape, dtype=torch.double))
        self.register_buffer("reduction", torch.zeros(*shape, num_inducing, dtype=torch.double))

    @classmethod
    def fit(
        cls,
        x: Tensor,
        y: Tensor,
        seeds: Sequence[int],
        *,
        points: int | None = None,
        fit_points: int | None = None,
        num_inducing: int = 500,
        steps: int = 200,
        rate: float = 0.1,
        tolerance: float | None = None,
        fitc: bool = False,
    ) -> CollapsedGP:
        """Fit one process per seed.

        Args:
            x: The points. ``[N, D]``
            y: Their targets. ``[N]``
            seeds: Of the draws of points and of the start of k-means.
            points: How many points, drawn at random, a prediction rests on; by default all.
            fit_points: How many of these the parameters are fitted on; by default all.
            num_inducing: The number of inducing points; at most one per point.
            steps: Of Adam on the bound.
            rate: Of Adam.
            tolerance: When to stop earlier; see :func:`ascend`.
            fitc: Whether it is FITC.
        """
        check_points(x, y)
        draw = draw_subsets(len(x), points, seeds).to(x.device)
        fit = draw[:, :fit_points]
        gp = cls(len(seeds), x.size(1), min(num_inducing, fit.size(1)), fitc=fitc)
        x, y = gp.standardise(x, y)
        fit_x, fit_y = x[fit], y[fit]
        with torch.no_grad():
            gp.inducing.copy_(k_means(fit_x, gp.inducing.size(1), seeds))
        gp.climb = ascend(lambda: gp.bound(fit_x, fit_y), gp.parameters(), steps, rate, tolerance)
        with torch.no_grad():
            gp._condition(x[draw], y[draw])
        return gp

    def _parts(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        """With L L' = K_uu, A = L^{-1} K_uf and L_B L_B' = I + A Λ^{-1} A': L^{-1}, Λ, the
        diagonal of K_ff - Q, L_B, and L_B^{-1} A Λ^{-1} y."""
        root = factorise(self.covariance(self.inducing, self.inducing), self.scale)  # [S, M, M]
        identity = torch.eye(root.size(1), dtype=root.dtype, device=root.device)
        # A small inverse and a large product: on a GPU that is faster than a large solution.
        inverse = torch.linalg.solve_triangular(root, identity.expand_as(root), upper=False)
        a = inverse @ self.covariance(self.inducing, x)  # [S, M, N]
        missing = (self.scale[:, None] - a.square().sum(dim=1)).clamp_min(0)  # [S, N]
        spread = self.noise[:, None].expand_as(missing)
        if self.fitc:
            spread = spread + missing
        scaled = a / spread.sqrt()[:, None]
        root_b = torch.linalg.cholesky(identity + scaled @ scaled.mT)
        c = torch.linalg.solve_triangular(root_b, a @ (y / spread)[..., None], upper=False)
        return inverse, spread, missing, root_b, c.squeeze(-1)

    def bound(self, x: Tensor, y: Tensor) -> Tensor:
        """The objective per point, of standardised points ``[S, N, D]``, targets ``[S, N]``."""
        _, spread, missing, root_b, c = self._parts(x, y)
        log_det = spread.log().sum(dim=1) + 2 * root_b.diagonal(dim1=1, dim2=2).log().sum(dim=1)
        square = (y.square() / spread).sum(dim=1) - c.square().sum(dim=1)
        value = -0.5 * (log_det + square + x.size(1) * math.log(2 * math.pi))
        if not self.fitc:
            value = value - 0.5 * (missing / spread).sum(dim=1)
        return value / x.size(1)

    def _condition(self, x: Tensor, y: Tensor) -> None:
        inverse, _, _, root_b, c = self._parts(x, y)
        # K_uu^{-1} - (K_uu + K_uf Λ^{-1} K_fu)^{-1} is what the data take away from the variance.
        inverse_b = torch.linalg.solve_triangular(root_b, inverse, upper=False)
        self.weights = (inverse_b.mT @ c[..., None]).squeeze(-1)
        self.reduction = inverse.mT @ inverse - inverse_b.mT @ inverse_b

    def posterior(self, x: Tensor) -> tuple[Tensor, Tensor]:
        k = self.covariance(x.expand(self.inducing.size(0), -1, -1), self.inducing)  # [S, N, M]
        mean = (k @ self.weights[..., None]).squeeze(-1)
        return mean, self.scale[:, None] - ((k @ self.reduction) * k).sum(dim=-1)


class VariationalGP(GaussianProcess):
    """The stochastic variational process of `Hensman et al. (2015)
    <https://proceedings.mlr.press/v38/hensman15.html>`_, by GPyTorch.

    Args:
        num_seeds: The number of processes :math:`S`.
        channels: The width :math:`D` of the points.
        num_inducing: The number of inducing points :math:`M`.
    """

    def __init__(self, num_seeds: int, channels: int, num_inducing: int) -> None:
        super().__init__(num_seeds, channels)
        self.process = _Process(self.kernel, num_seeds, num_inducing, channels)
        self.double()

    @classmethod
    def fit(
        cls,
        x: Tensor,
        y: Tensor,
        seeds: Sequence[int],
        *,
        points: int | None = None,
        num_inducing: int = 500,
        passes: int = 100,
        batch_size: int = 1000,
        rate: float = 0.05,
    ) -> VariationalGP:
        """Fit one process per seed.

        Args:
            x: The points. ``[N, D]``
            y: Their targets. ``[N]``
            seeds: Of the draw and the order of the points and of the start of k-means.
            points: How many points, drawn at random, are used; by default all.
            num_inducing: The number of inducing points; at most one per point.
            passes: How often Adam sees every point.
            batch_size: The number of points in a step.
            rate: Of Adam.
        """
        check_points(x, y)
        draw = draw_subsets(len(x), points, seeds)
        size = draw.size(1)
        gp = cls(len(seeds), x.size(1), min(num_inducing, size))
        x, y = gp.standardise(x, y)
        with torch.no_grad():
            centres = k_means(x[draw.to(x.device)], min(num_inducing, size), seeds)
            gp.process.variational_strategy.inducing_points.copy_(centres)
        objective = VariationalELBO(gp.likelihood, gp.process, num_data=size)
        batches = _endless_batches(draw, batch_size, seeds)

        def bound() -> Tensor:
            batch = next(batches).to(x.device)  # [S, B]
            return objective(gp.process(x[batch]), y[batch])

        gp.train()
        gp.climb = ascend(bound, gp.parameters(), passes * math.ceil(size / batch_size), rate)
        return gp.eval()

    def posterior(self, x: Tensor) -> tuple[Tensor, Tensor]:
        f = self.process(x.expand(self.noise.size(0), -1, -1))
        return f.mean, f.variance


class _Process(ApproximateGP):
    """Prior and variational distribution, in the library's terms."""

    def __init__(self, kernel: nn.Module, num_seeds: int, num_inducing: int, channels: int) -> None:
        seeds = torch.Size([num_seeds])
        super().__init__(
            VariationalStrategy(
                self,
                torch.zeros(num_seeds, num_inducing, channels, dtype=torch.double),
                # Without noise at the start, which would come from the global generator.
                CholeskyVariationalDistribution(num_inducing, batch_shape=seeds, mean_init_std=0.0),
            )
        )
        self.mean = ZeroMean(batch_shape=seeds)
        self.kernel = kernel

    def forward(self, x: Tensor) -> MultivariateNormal:
        return MultivariateNormal(self.mean(x), self.kernel(x))


def _endless_batches(draw: Tensor, batch_size: int, seeds: Sequence[int]) -> Iterator[Tensor]:
    """Each seed's next points ``[S, B]`` out of its own ``[S, N]``, in a new order every pass."""
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    while True:
        orders = [torch.randperm(draw.size(1), generator=generator) for generator in generators]
        yield from draw.gather(1, torch.stack(orders)).split(batch_size, dim=1)
