r"""Gaussian processes on points of a latent space, for several seeds side by side.

All of them are regressions :math:`y = f(x) + \varepsilon` with :math:`f \sim \mathcal{GP}(0, k)`,
noise :math:`\varepsilon \sim \mathcal{N}(0, \sigma^2)` and the kernel

.. math::
    k(x, x') = s \exp\Bigl( -\tfrac12 \sum_d (x_d - x'_d)^2 / \ell_d^2 \Bigr)

with a length scale per coordinate (ARD), on standardised inputs and targets, in float64, on the
device of the inputs. The first dimension of every tensor is the seed's: the processes of all seeds
are fitted in the same steps, and do not know of each other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch
from gpytorch.constraints import GreaterThan, Positive
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from torch import Tensor, nn

__all__ = [
    "Climb",
    "GaussianProcess",
    "ascend",
    "check_points",
    "draw_subsets",
    "factorise",
    "k_means",
]

NOISE_FLOOR = 1e-5
ROUNDING = 1e-5  # of the largest deviation of a coordinate: less is rounding, not information
WINDOW = 50  # steps over which an objective must not change any more
JITTER = 1e-6  # on the diagonal of a kernel matrix, in units of the kernel's own scale


class Climb(NamedTuple):
    """How an objective was climbed, per seed. ``[S]`` each

    Args:
        steps: The number of steps.
        objective: Its value at the last of them.
        late_change: The mean of the last tenth of the steps less the mean of the tenth before.
    """

    steps: Tensor
    objective: Tensor
    late_change: Tensor


class GaussianProcess(nn.Module, ABC):
    """Kernel, noise and standardisation of the processes of all seeds, and how to ask them.

    Args:
        num_seeds: The number of processes :math:`S`.
        channels: The width :math:`D` of the points.

    Once fitted, ``climb`` tells how.
    """

    climb: Climb
    x_shift: Tensor
    x_scale: Tensor
    x_used: Tensor
    y_shift: Tensor
    y_scale: Tensor

    def __init__(self, num_seeds: int, channels: int) -> None:
        super().__init__()
        seeds = torch.Size([num_seeds])
        # Adam's steps are of one size. On a logarithmic scale, some dozens of them reach the length
        # scales of coordinates that matter much as well as of those that do not matter at all.
        in_logarithm = {"transform": torch.exp, "inv_transform": torch.log}
        rbf = RBFKernel(
            ard_num_dims=channels,
            batch_shape=seeds,
            lengthscale_constraint=Positive(**in_logarithm),
        )
        self.kernel = ScaleKernel(
            rbf, batch_shape=seeds, outputscale_constraint=Positive(**in_logarithm)
        )
        self.likelihood = GaussianLikelihood(
            batch_shape=seeds, noise_constraint=GreaterThan(NOISE_FLOOR, **in_logarithm)
        )
        # Standardised points are about (2 D)^½ apart: with length scales near 1, as the library
        # starts, all of them would be strangers to each other, and no gradient would change it.
        self.kernel.base_kernel.lengthscale = channels**0.5
        self.kernel.outputscale = 1.0
        self.likelihood.noise = 0.5  # too much at first finds better length scales than too little
        for name in ("x_shift", "x_scale", "x_used"):
            self.register_buffer(name, torch.zeros(channels))
        for name in ("y_shift", "y_scale"):
            self.register_buffer(name, torch.zeros(()))
        self.double()

    def standardise(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Take the points' and targets' mean and deviation over, and return both standardised."""
        self.to(x.device)
        x, y = x.double(), y.double()
        self.x_shift, self.y_shift = x.mean(dim=0), y.mean(dim=0)
        deviation = x.std(dim=0, correction=0)
        largest = _or_one(deviation.max())
        constant = deviation <= ROUNDING * largest
        self.x_scale = torch.where(constant, largest, deviation)
        self.x_used = (~constant).double()
        self.y_scale = _or_one(y.std(dim=0, correction=0))
        return self.standardised(x), (y - self.y_shift) / self.y_scale

    def standardised(self, x: Tensor) -> Tensor:
        """Points ``[N, D]``, standardised.

        A coordinate that never changes says nothing. Where an encoder has made it, it is constant
        up to rounding. It becomes 0 exactly: Adam would follow even the slightest gradient in steps
        of full size.
        """
        return (x.double() - self.x_shift) / self.x_scale * self.x_used

    @property
    def constant_axes(self) -> int:
        """How many coordinates never change, up to rounding."""
        return int((self.x_used == 0).sum())

    @property
    def noise(self) -> Tensor:
        r"""The variance :math:`\sigma^2` of the noise, of standardised targets. ``[S]``"""
        return self.likelihood.noise.squeeze(-1)

    @property
    def scale(self) -> Tensor:
        r"""The kernel's scale :math:`s`, the variance of :math:`f`. ``[S]``"""
        return self.kernel.outputscale

    def covariance(self, a: Tensor, b: Tensor) -> Tensor:
        """The kernel between standardised points ``[S, N, D]`` and ``[S, M, D]``. ``[S, N, M]``"""
        return self.kernel(a, b).to_dense()

    @abstractmethod
    def posterior(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of :math:`f` at standardised points ``[N, D]``. ``[S, N]`` each"""

    def predict(self, x: Tensor, batch_size: int = 4096) -> tuple[Tensor, Tensor]:
        """What will be observed at some points: mean and deviation, in the targets' units.

        Args:
            x: The points. ``[N, D]``
            batch_size: The number of points at a time.

        Returns:
            The means and the standard deviations, of the noise too. ``[S, N]`` each
        """
        check_points(x)
        means, variances = [], []
        for chunk in self.standardised(x).split(batch_size):
            mean, variance = self.posterior(chunk)
            means.append(mean)
            variances.append(variance.clamp_min(0) + self.noise[:, None])
        mean = torch.cat(means, dim=1) * self.y_scale + self.y_shift
        return mean, torch.cat(variances, dim=1).sqrt() * self.y_scale


def factorise(matrix: Tensor, scale: Tensor | float = 1.0) -> Tensor:
    """Lower Cholesky factors of kernel matrices ``[S, N, N]``, jitter added in units of scale."""
    jitter = JITTER * torch.as_tensor(scale, dtype=matrix.dtype, device=matrix.device)
    diagonal = jitter.reshape(-1, 1).expand(matrix.shape[:-1])
    return torch.linalg.cholesky(matrix + torch.diag_embed(diagonal))


def _or_one(scale: Tensor) -> Tensor:
    """A scale to divide by."""
    return torch.where(scale > 0, scale, torch.ones_like(scale))


def ascend(
    objective: Callable[[], Tensor],
    parameters: Iterable[nn.Parameter],
    steps: int,
    rate: float,
    tolerance: float | None = None,
) -> Climb:
    """Climb an objective ``[S]`` by Adam; the rate falls to zero along half a cosine.

    The gradients of the seeds do not touch, and Adam scales every number by itself, so one
    optimiser over all seeds does to each what it would do to it alone.

    Args:
        objective: Values to climb, in units per point.
        parameters: Of all seeds, which are their first dimension.
        steps: The largest number of steps.
        rate: Of Adam, at the start.
        tolerance: A seed stops where the mean of 50 steps differs by less from the mean of the 50
            before, relative to itself or to 1, whichever is larger.
    """
    if steps < 2:
        raise ValueError(f"expected at least 2 steps, got {steps}")
    parameters = list(parameters)
    optimiser = torch.optim.Adam(parameters, lr=rate, maximize=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    kept = [parameter.detach().clone() for parameter in parameters]
    trace: list[Tensor] = []
    running: Tensor | None = None  # [S]
    taken = torch.zeros(0)
    for step in range(1, steps + 1):
        optimiser.zero_grad(set_to_none=True)
        value = objective()
        value.sum().backward()
        trace.append(value.detach())
        optimiser.step()
        schedule.step()
        looks = tolerance is not None and step % WINDOW == 0 and step >= 2 * WINDOW
        if not looks and step < steps:
            continue
        if running is None:
            running = torch.ones_like(value, dtype=torch.bool)
            taken = torch.zeros_like(value, dtype=torch.long)
        # A seed ends with the values that it stopped at, however long the others go on.
        taken[running] = step
        for parameter, own in zip(parameters, kept, strict=True):
            own[running] = parameter.detach()[running]
        if looks and tolerance is not None:
            before, now = (part.mean(0) for part in torch.stack(trace[-2 * WINDOW :]).chunk(2))
            running = running & ((now - before).abs() >= tolerance * now.abs().clamp_min(1))
            if not bool(running.any()):
                break
    with torch.no_grad():
        for parameter, own in zip(parameters, kept, strict=True):
            parameter.copy_(own)
    return _climb(torch.stack(trace), taken)


def _climb(trace: Tensor, taken: Tensor) -> Climb:
    """From the objectives of all steps ``[steps, S]`` and the number of steps ``[S]``."""
    changes, last = [], []
    for values, count in zip(trace.t(), taken.tolist(), strict=True):
        tenth = max(count // 10, 1)
        end = values[:count]
        changes.append(end[-tenth:].mean() - end[-2 * tenth : -tenth].mean())
        last.append(end[-1])
    return Climb(taken, torch.stack(last), torch.stack(changes))


def draw_subsets(num_points: int, size: int | None, seeds: Sequence[int]) -> Tensor:
    """For every seed some points at random, or all of them. ``[S, N]``"""
    size = num_points if size is None else min(size, num_points)
    draws = [
        torch.randperm(num_points, generator=torch.Generator().manual_seed(seed))[:size]
        for seed in seeds
    ]
    return torch.stack(draws)


def k_means(x: Tensor, centres: int, seeds: Sequence[int], rounds: int = 10) -> Tensor:
    """Centres of clusters by Lloyd's algorithm, from points at random.

    Args:
        x: The points, per seed. ``[S, N, D]``
        centres: The number of centres :math:`M`; at most one per point.
        seeds: Which points each seed starts from.
        rounds: How often points are assigned and centres moved.

    Returns:
        The centres. ``[S, M, D]``
    """
    start = draw_subsets(x.size(1), centres, seeds).to(x.device)  # [S, M]
    found = []
    for points, centre in zip(x, (p[i] for p, i in zip(x, start, strict=True)), strict=True):
        for _ in range(rounds):
            nearest = torch.cdist(points, centre).argmin(dim=1)
            # A product with a table of ones and zeros sums in the same order every time.
            member = nn.functional.one_hot(nearest, len(centre)).to(points.dtype)  # [N, M]
            count = member.sum(dim=0)[:, None]
            centre = torch.where(count > 0, member.t() @ points / count.clamp_min(1), centre)
        found.append(centre)
    return torch.stack(found)


def check_points(x: Tensor, y: Tensor | None = None) -> None:
    """That these are points to fit or to ask about."""
    if x.dim() != 2 or not len(x):
        raise ValueError(f"expected latent points of shape [N, D], N > 0, got {list(x.shape)}")
    if y is not None and y.shape != x.shape[:1]:
        raise ValueError(f"expected one target per point, [{len(x)}], got {list(y.shape)}")
    for name, values in (("latent points", x), ("targets", y)):
        if values is not None and not bool(values.isfinite().all()):
            raise ValueError(f"expected finite {name}, got NaN or infinity among them")
