r"""Where to look next: expected improvement under a Gaussian process, for a batch of points.

With mean :math:`\mu`, deviation :math:`\sigma` and the best score :math:`y^*` so far,

.. math::
    \mathrm{EI}(x) = \sigma\, (u \Phi(u) + \varphi(u)), \qquad u = (\mu - y^*) / \sigma.

A batch is chosen greedily: each point as if those before had been seen and had brought what was
expected of them. Then means stay, and :math:`\sigma^2(x)` falls by
:math:`c(x, s)^2 / (\sigma^2(s) + \text{noise})` for a chosen :math:`s`, where :math:`c` is the
posterior covariance.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from dagnn.autoencoders.exact_gp import ExactGP
from dagnn.autoencoders.sparse_gp import CollapsedGP

__all__ = ["Box", "Process", "choose_greedily", "climb", "expected_improvement"]

Process = ExactGP | CollapsedGP

STEPS = 30  # of the ascent from each start
RATE = 0.03  # of Adam, in deviations of the known points
REACH = 0.3  # how far a climb may go along each axis, in the same units


class Box(NamedTuple):
    """The region of the latent space to search. ``[D]`` each"""

    low: Tensor
    high: Tensor

    @classmethod
    def around(cls, z: Tensor) -> Box:
        """The smallest one with all of these points ``[N, D]``."""
        return cls(z.min(dim=0).values, z.max(dim=0).values)


def expected_improvement(mean: Tensor, deviation: Tensor, best: Tensor | float) -> Tensor:
    """How much more than :obj:`best` is expected of normal distributions. ``[N]``

    Example:
        >>> import torch
        >>> expected_improvement(torch.zeros(1), torch.ones(1), 0.0)  # 1 / √(2π)
        tensor([0.3989])
    """
    u = (mean - best) / deviation
    density = (-0.5 * u.square()).exp() / math.sqrt(2 * math.pi)
    return deviation * (u * torch.special.ndtr(u) + density)


def climb(gp: Process, starts: Tensor, box: Box, best: float, steps: int = STEPS) -> Tensor:
    """Points near the starts with a higher expected improvement. ``[S, D]``

    What climbs is the logarithm, whose gradient does not vanish where that of EI does. Most of a
    box of many dimensions is far from all that is known, and there everything is possible: climbs
    that may go anywhere end in its corners, where nothing decodes to a good graph.

    Args:
        gp: The process, of one seed.
        starts: From which to climb. ``[S, D]``
        box: What the points may not leave.
        best: The best score so far, in the units of the process.
        steps: Of Adam from each start.
    """
    starts = starts.double()
    low = torch.maximum(box.low, starts - REACH * gp.x_scale)
    high = torch.minimum(box.high, starts + REACH * gp.x_scale)
    move = torch.zeros_like(starts, requires_grad=True)
    optimiser = torch.optim.Adam([move], lr=RATE, maximize=True)
    for _ in range(steps):
        mean, deviation = gp.predict(starts + move * gp.x_scale)
        improvement = expected_improvement(mean[0], deviation[0], best)
        # Of the points alone: the process has parameters, which are not to be differentiated.
        (move.grad,) = torch.autograd.grad(improvement.clamp_min(1e-100).log().sum(), move)
        optimiser.step()
        with torch.no_grad():
            place = (starts + move * gp.x_scale).clamp(low, high)
            move.copy_((place - starts) / gp.x_scale)
    return (starts + move.detach() * gp.x_scale).clamp(low, high)


@torch.no_grad()
def choose_greedily(gp: Process, points: Tensor, best: float, count: int) -> Tensor:
    """Points with a high expected improvement together, each chosen as if those before had been
    seen.

    Args:
        gp: The process, of one seed.
        points: What to choose from. ``[N, D]``
        best: The best score so far, in the units of the process.
        count: How many to choose, at most :obj:`N`.

    Returns:
        Their indices. int64 ``[count]``
    """
    if len(points) < count:
        raise ValueError(f"expected at least {count} points, got {len(points)}")
    x = gp.standardised(points)
    noise = gp.noise[0]
    mean, variance = (part[0] for part in gp.posterior(x))
    variance = variance.clamp_min(0) + noise
    target = torch.as_tensor((best - gp.y_shift) / gp.y_scale, dtype=x.dtype, device=x.device)
    left, right = _explained(gp, x)
    seen: list[Tensor] = []  # of chosen points, their covariance with all, over their deviation
    chosen: list[Tensor] = []
    free = torch.ones(len(x), dtype=torch.bool, device=x.device)
    for _ in range(count):
        improvement = expected_improvement(mean, variance.clamp_min(noise).sqrt(), target)
        place = torch.where(free, improvement, -math.inf).argmax()
        chosen.append(place)
        free[place] = False
        covariance = gp.covariance(x[place][None, None], x[None])[0, 0] - right @ left[place]
        for column in seen:
            covariance = covariance - column[place] * column
        seen.append(covariance / variance[place].clamp_min(noise).sqrt())
        variance = variance - seen[-1].square()
        target = torch.maximum(target, mean[place])
    return torch.stack(chosen)


def _explained(gp: Process, x: Tensor) -> tuple[Tensor, Tensor]:
    """Factors :math:`A, B` ``[N, K]`` of the covariance of standardised points that the data
    explain: a posterior covariance is :math:`K_{xx} - A B^\\top`."""
    if isinstance(gp, ExactGP):
        k = gp.covariance(gp.points, x[None])[0]  # [K, N]
        root = torch.linalg.solve_triangular(gp.root[0], k, upper=False).T
        return root, root
    k = gp.covariance(x[None], gp.inducing)[0]
    return k @ gp.reduction[0], k
