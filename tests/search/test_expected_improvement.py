from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from dagnn.autoencoders.exact_gp import ExactGP
from dagnn.autoencoders.sparse_gp import CollapsedGP
from dagnn.search.expected_improvement import (
    REACH,
    Box,
    Process,
    choose_greedily,
    climb,
    expected_improvement,
)


def hill(z: Tensor) -> Tensor:
    return -(z - 0.3).square().sum(dim=1)


@pytest.fixture(scope="module", params=["exact", "sparse"])
def fitted(request: pytest.FixtureRequest) -> tuple[Process, Tensor]:
    z = torch.rand(80, 2, generator=torch.Generator().manual_seed(0), dtype=torch.double) * 2 - 1
    if request.param == "exact":
        return ExactGP.fit(z, hill(z), [0], steps=60), z
    return CollapsedGP.fit(z, hill(z), [0], num_inducing=40, steps=60), z


def test_expected_improvement_is_the_mean_of_improvements() -> None:
    mean, deviation = torch.tensor([0.0, 1.0, -2.0]), torch.tensor([1.0, 0.5, 2.0])
    draws = torch.randn(400_000, 3, generator=torch.Generator().manual_seed(0))
    sampled = (mean + deviation * draws - 0.4).clamp_min(0).mean(dim=0)
    assert torch.allclose(expected_improvement(mean, deviation, 0.4), sampled, atol=5e-3)


def test_climbs_stay_in_the_box_and_approach_the_top(fitted: tuple[Process, Tensor]) -> None:
    gp, z = fitted
    box, best = Box.around(z), float(hill(z).max())
    points = climb(gp, z, box, best)
    assert bool(((points >= box.low) & (points <= box.high)).all())
    assert float(((points - z) / gp.x_scale).abs().max()) <= REACH + 1e-9
    chosen = points[choose_greedily(gp, points, best, 10)]
    assert chosen.shape == (10, 2)
    assert float(hill(chosen).max()) >= best - 1e-3
    with torch.no_grad():
        before, after = (
            expected_improvement(*(part[0] for part in gp.predict(x)), best) for x in (z, points)
        )
    assert float((after - before).min()) > -1e-9
    assert float(after.sum()) > float(before.sum())


def test_climbing_leaves_the_process_alone(fitted: tuple[Process, Tensor]) -> None:
    gp, z = fitted
    before = [None if p.grad is None else p.grad.clone() for p in gp.parameters()]
    climb(gp, z, Box.around(z), 0.0, steps=2)
    for parameter, gradient in zip(gp.parameters(), before, strict=True):
        assert (parameter.grad is None) == (gradient is None)
        assert gradient is None or bool((parameter.grad == gradient).all())


def test_greedy_choice_follows_the_posterior_given_what_was_chosen(
    fitted: tuple[Process, Tensor],
) -> None:
    gp, z = fitted
    best = float(hill(z).max())
    more = torch.rand(60, 2, generator=torch.Generator().manual_seed(1), dtype=torch.double)
    # The same by joint Gaussians: condition on all chosen points at once, at each step.
    x = gp.standardised(more)
    with torch.no_grad():
        joint = joint_covariance(gp, x)
        mean = gp.posterior(x)[0][0]
        target = (best - gp.y_shift) / gp.y_scale
        chosen: list[int] = []
        for _ in range(4):
            variance = joint.diagonal() + gp.noise[0]
            if chosen:
                seen = joint[chosen][:, chosen] + gp.noise[0] * torch.eye(len(chosen))
                cross = joint[:, chosen]
                variance = variance - (cross @ torch.linalg.inv(seen) * cross).sum(dim=1)
                target = torch.maximum(target, mean[chosen].max())
            improvement = expected_improvement(mean, variance.clamp_min(0).sqrt(), target)
            improvement[chosen] = -math.inf
            chosen.append(int(improvement.nan_to_num(-1).argmax()))
    assert choose_greedily(gp, more, best, 4).tolist() == chosen


def joint_covariance(gp: Process, x: Tensor) -> Tensor:
    """Of the function at standardised points, given the data. ``[N, N]``"""
    prior = gp.covariance(x[None], x[None])[0]
    if isinstance(gp, ExactGP):
        k = gp.covariance(x[None], gp.points)[0]
        return prior - k @ torch.linalg.inv(gp.root[0] @ gp.root[0].T) @ k.T
    k = gp.covariance(x[None], gp.inducing)[0]
    return prior - k @ gp.reduction[0] @ k.T


def test_too_few_points_are_refused(fitted: tuple[Process, Tensor]) -> None:
    gp, z = fitted
    with pytest.raises(ValueError, match="at least 5 points, got 3"):
        choose_greedily(gp, z[:3], 0.0, 5)
