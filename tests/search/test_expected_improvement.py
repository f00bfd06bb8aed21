from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from dagnn.autoencoders.sparse_gp import CollapsedGP
from dagnn.search.expected_improvement import Box, choose_points, expected_improvement


def hill(z: Tensor) -> Tensor:
    return -(z - 0.3).square().sum(dim=1)


@pytest.fixture(scope="module")
def fitted() -> tuple[CollapsedGP, Tensor]:
    z = torch.rand(80, 2, generator=torch.Generator().manual_seed(0), dtype=torch.double) * 2 - 1
    return CollapsedGP.fit(z, hill(z), [0], num_inducing=40, steps=60), z


def test_expected_improvement_is_the_mean_of_improvements() -> None:
    mean, deviation = torch.tensor([0.0, 1.0, -2.0]), torch.tensor([1.0, 0.5, 2.0])
    draws = torch.randn(400_000, 3, generator=torch.Generator().manual_seed(0))
    sampled = (mean + deviation * draws - 0.4).clamp_min(0).mean(dim=0)
    assert torch.allclose(expected_improvement(mean, deviation, 0.4), sampled, atol=5e-3)


def test_points_stay_in_the_box_and_approach_the_top(fitted: tuple[CollapsedGP, Tensor]) -> None:
    gp, z = fitted
    box = Box.around(z)
    points = choose_points(gp, z, box, float(hill(z).max()), 10)
    assert points.shape == (10, 2)
    assert bool(((points >= box.low) & (points <= box.high)).all())
    assert float(hill(points).max()) >= float(hill(z).max())


def test_greedy_choice_follows_the_posterior_given_what_was_chosen(
    fitted: tuple[CollapsedGP, Tensor],
) -> None:
    gp, z = fitted
    best = float(hill(z).max())
    points = choose_points(gp, z, Box.around(z), best, 4, steps=0)
    # The same by joint Gaussians: condition on all chosen points at once, at each step.
    x = (z - gp.x_shift) / gp.x_scale
    with torch.no_grad():
        k = gp.covariance(x[None], gp.inducing)[0]
        joint = gp.covariance(x[None], x[None])[0] - k @ gp.reduction[0] @ k.T
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
    assert torch.allclose(points, z[chosen])


def test_too_few_starts_are_refused(fitted: tuple[CollapsedGP, Tensor]) -> None:
    gp, z = fitted
    with pytest.raises(ValueError, match="at least 5 starts, got 3"):
        choose_points(gp, z[:3], Box.around(z), 0.0, 5)
