r"""Where to look next: expected improvement under a sparse Gaussian process, for a batch of points.

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

from dagnn.autoencoders.sparse_gp import CollapsedGP

__all__ = ["Box", "choose_points", "expected_improvement"]

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


def choose_points(
    gp: CollapsedGP,
    starts: Tensor,
    box: Box,
    best: float,
    count: int,
    *,
    steps: int = STEPS,
) -> Tensor:
    """A batch of points with a high expected improvement together.

    Args:
        gp: The process, of one seed.
        starts: Points from which to climb, at least :obj:`count`. ``[S, D]``
        box: What the points may not leave.
        best: The best score so far, in the units of the process.
        count: How many points to choose.
        steps: Of Adam from each start.

    Returns:
        The points. ``[count, D]``
    """
    if len(starts) < count:
        raise ValueError(f"expected at least {count} starts, got {len(starts)}")
    points = _climb(gp, starts, box, best, steps)
    return points.index_select(0, _choose_greedily(gp, points, best, count))


def _climb(gp: CollapsedGP, starts: Tensor, box: Box, best: float, steps: int) -> Tensor:
    """Climb the logarithm of EI, whose gradient does not vanish where EI does.

    Most of a box of many dimensions is far from all that is known, and there everything is
    possible: climbs that may go anywhere end in its corners, where nothing decodes to a good graph.
    """
    starts = starts.double()
    low = torch.maximum(box.low, starts - REACH * gp.x_scale)
    high = torch.minimum(box.high, starts + REACH * gp.x_scale)
    move = torch.zeros_like(starts, requires_grad=True)
    optimiser = torch.optim.Adam([move], lr=RATE, maximize=True)
    for _ in range(steps):
        optimiser.zero_grad(set_to_none=True)
        mean, deviation = gp.predict(starts + move * gp.x_scale)
        improvement = expected_improvement(mean[0], deviation[0], best)
        improvement.clamp_min(1e-100).log().sum().backward()
        optimiser.step()
        with torch.no_grad():
            place = (starts + move * gp.x_scale).clamp(low, high)
            move.copy_((place - starts) / gp.x_scale)
    return (starts + move.detach() * gp.x_scale).clamp(low, high)


@torch.no_grad()
def _choose_greedily(gp: CollapsedGP, points: Tensor, best: float, count: int) -> Tensor:
    """Indices ``[count]`` of points, each chosen as if those before had been seen."""
    x = (points.double() - gp.x_shift) / gp.x_scale
    noise = gp.noise[0]
    mean, variance = (part[0] for part in gp.posterior(x))
    variance = variance.clamp_min(0) + noise
    target = torch.as_tensor((best - gp.y_shift) / gp.y_scale, dtype=x.dtype, device=x.device)
    k = gp.covariance(x[None], gp.inducing)[0]  # [N, M]
    seen: list[Tensor] = []  # of chosen points, their covariance with all, over their deviation
    chosen: list[Tensor] = []
    free = torch.ones(len(x), dtype=torch.bool, device=x.device)
    for _ in range(count):
        improvement = expected_improvement(mean, variance.clamp_min(noise).sqrt(), target)
        place = torch.where(free, improvement, -math.inf).argmax()
        chosen.append(place)
        free[place] = False
        own = x[place][None]
        covariance = gp.covariance(own[None], x[None])[0, 0] - (k[place] @ gp.reduction[0]) @ k.T
        for column in seen:
            covariance = covariance - column[place] * column
        seen.append(covariance / variance[place].clamp_min(noise).sqrt())
        variance = variance - seen[-1].square()
        target = torch.maximum(target, mean[place])
    return torch.stack(chosen)
