from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from dagnn.autoencoders.exact_gp import ExactGP
from dagnn.autoencoders.gaussian_process import (
    Climb,
    ascend,
    check_points,
    draw_subsets,
    factorise,
    k_means,
)
from dagnn.autoencoders.sparse_gp import CollapsedGP, VariationalGP
from tests.autoencoders.latent_cases import wavy

FITS = {
    "exact": lambda x, y, seeds: ExactGP.fit(x, y, seeds, points=80, fit_points=60, steps=5),
    "vfe": lambda x, y, seeds: CollapsedGP.fit(
        x, y, seeds, points=80, fit_points=60, num_inducing=9, steps=5
    ),
    "fitc": lambda x, y, seeds: CollapsedGP.fit(x, y, seeds, num_inducing=9, steps=5, fitc=True),
    "svgp": lambda x, y, seeds: VariationalGP.fit(
        x, y, seeds, num_inducing=9, passes=3, batch_size=64
    ),
}


@pytest.mark.parametrize("kind", FITS)
def test_seeds_do_not_know_of_each_other(kind: str) -> None:
    z, y, test_z, _ = wavy(train=100, test=20)
    together = FITS[kind](z, y, [4, 7])
    for place, seed in enumerate([4, 7]):
        alone = FITS[kind](z, y, [seed])
        for a, b in zip(alone.predict(test_z), together.predict(test_z), strict=True):
            torch.testing.assert_close(a[0], b[place], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("kind", FITS)
def test_predictions_follow_the_units(kind: str) -> None:
    """Shifted and stretched latents and targets are the same problem."""
    z, y, test_z, _ = wavy(train=100, test=20)
    mean, spread = FITS[kind](z, y, [0]).predict(test_z)
    other = FITS[kind](z * 3 - 1, 10 * y + 4, [0])
    other_mean, other_spread = other.predict(test_z * 3 - 1)
    torch.testing.assert_close(other_mean, 10 * mean + 4, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(other_spread, 10 * spread, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", FITS)
def test_a_coordinate_that_never_changes(kind: str) -> None:
    z, y, test_z, _ = wavy(train=100, test=20)
    z[:, 2], test_z[:, 2] = 1.0, 1.0
    for values in FITS[kind](z, y, [0]).predict(test_z):
        assert values.isfinite().all()


@pytest.mark.parametrize("kind", FITS)
@pytest.mark.parametrize("unit", [1e-9, 1.0, 1e9])
def test_a_coordinate_that_is_constant_up_to_rounding(kind: str, unit: float) -> None:
    """It changes nothing, in whatever units the points are."""
    z, y, test_z, _ = wavy(train=100, test=20)
    z[:, 2], test_z[:, 2] = 1.0, 1.0
    expected = FITS[kind](z * unit, y, [0]).predict(test_z * unit)
    generator = torch.Generator().manual_seed(0)
    for points in (z, test_z):
        points[:, 2] += 1e-6 * torch.randn(len(points), generator=generator, dtype=torch.double)
    gp = FITS[kind](z * unit, y, [0])
    assert gp.constant_axes == 1
    for found, same in zip(gp.predict(test_z * unit), expected, strict=True):
        torch.testing.assert_close(found, same, rtol=1e-4, atol=1e-4)


def parabola(top: Tensor, parameter: nn.Parameter) -> Tensor:
    return -(parameter.squeeze(-1) - top).square()


def test_a_climb_stops_where_it_is_flat_each_seed_by_itself() -> None:
    tops = torch.tensor([0.0, 10.0])

    def climb(top: Tensor) -> tuple[Climb, Tensor]:
        parameter = nn.Parameter(torch.ones(len(top), 1))
        found = ascend(lambda: parabola(top, parameter), [parameter], 1000, 0.1, tolerance=1e-4)
        return found, parameter.detach()

    together, values = climb(tops)
    assert 100 <= together.steps[0] < together.steps[1] <= 1000
    assert together.steps[0] % 50 == 0
    assert together.late_change.abs().max() < 1e-3
    for place in (0, 1):
        alone, value = climb(tops[place : place + 1])
        assert alone.steps[0] == together.steps[place]
        assert torch.equal(value[0], values[place])
        assert alone.objective[0] == together.objective[place]


def test_a_climb_that_is_cut_off_tells_that_it_was_not_flat() -> None:
    parameter = nn.Parameter(torch.zeros(1, 1))
    found = ascend(lambda: parabola(torch.tensor([30.0]), parameter), [parameter], 20, 0.1)
    assert found.steps.tolist() == [20]
    assert found.late_change.item() > 0.1
    with pytest.raises(ValueError, match="expected at least 2 steps, got 1"):
        ascend(lambda: parabola(torch.ones(1), parameter), [parameter], 1, 0.1)


@pytest.mark.parametrize("kind", FITS)
def test_float32_points_are_fitted_in_float64(kind: str) -> None:
    z, y, test_z, _ = wavy(train=100, test=20)
    mean, spread = FITS[kind](z.float(), y.float(), [0]).predict(test_z.float())
    assert mean.dtype == spread.dtype == torch.double
    assert mean.shape == spread.shape == (1, 20)


@pytest.mark.parametrize("kind", FITS)
def test_predictions_in_small_batches_are_the_same(kind: str) -> None:
    z, y, test_z, _ = wavy(train=100, test=20)
    gp = FITS[kind](z, y, [0, 1])
    for a, b in zip(gp.predict(test_z), gp.predict(test_z, batch_size=7), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("kind", FITS)
def test_predictions_have_gradients(kind: str) -> None:
    """A search in the latent space climbs along them."""
    z, y, test_z, _ = wavy(train=100, test=5)
    gp = FITS[kind](z, y, [0])
    point = test_z.clone().requires_grad_()
    mean, spread = gp.predict(point)
    (mean + spread).sum().backward()
    assert point.grad is not None
    assert point.grad.abs().sum() > 0


def test_far_from_all_points_the_prior_returns() -> None:
    z, y, *_ = wavy(train=100)
    gp = ExactGP.fit(z, y, [0], steps=20)
    mean, spread = gp.predict(z[:1] + 1000 * z.std(dim=0))
    torch.testing.assert_close(mean[0, 0], y.mean())
    prior = (gp.scale + gp.noise).sqrt() * y.std(correction=0)
    torch.testing.assert_close(spread[0], prior.detach())


def test_k_means_finds_clusters() -> None:
    generator = torch.Generator().manual_seed(0)
    true = torch.tensor([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]])
    points = true.repeat_interleave(40, dim=0) + 0.1 * torch.randn(120, 2, generator=generator)
    centres = [k_means(points[None], 3, [seed])[0] for seed in range(6)]

    def cost(centre: Tensor) -> float:
        return torch.cdist(points, centre).amin(dim=1).square().sum().item()

    best = min(centres, key=cost)
    assert torch.cdist(true, best).amin(dim=1).max() < 0.1
    start = points[draw_subsets(120, 3, [0])[0]]
    assert cost(centres[0]) <= cost(start)


def test_k_means_with_as_many_centres_as_points_is_the_points() -> None:
    points = torch.randn(1, 12, 3)
    centres = k_means(points, 12, [5])
    assert torch.cdist(points, centres).amin(dim=2).max() < 1e-5


def test_k_means_of_equal_points_is_finite() -> None:
    assert k_means(torch.ones(2, 10, 3), 4, [0, 1]).eq(1).all()


def test_subsets_are_draws_without_repetition() -> None:
    draw = draw_subsets(50, 20, [0, 1, 0])
    assert draw.shape == (3, 20)
    assert all(len(row.unique()) == 20 for row in draw)
    assert torch.equal(draw[0], draw[2])
    assert not torch.equal(draw[0], draw[1])
    assert draw_subsets(5, None, [0]).sort().values.tolist() == [[0, 1, 2, 3, 4]]
    assert draw_subsets(5, 9, [0]).shape == (1, 5)


def test_jitter_lets_equal_points_pass() -> None:
    root = factorise(torch.full((2, 4, 4), 3.0, dtype=torch.double), torch.tensor([3.0, 3.0]))
    torch.testing.assert_close(
        root @ root.mT, torch.full((2, 4, 4), 3.0).double(), rtol=1e-5, atol=0
    )


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (torch.zeros(3), None, r"expected latent points of shape \[N, D\], N > 0, got \[3\]"),
        (torch.zeros(0, 2), None, r"got \[0, 2\]"),
        (torch.zeros(3, 2), torch.zeros(4), r"one target per point, \[3\], got \[4\]"),
        (torch.full((3, 2), torch.nan), None, "expected finite latent points"),
        (torch.zeros(3, 2), torch.full((3,), torch.inf), "expected finite targets"),
    ],
)
def test_what_cannot_be_fitted(x: Tensor, y: Tensor | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_points(x, y)
