from __future__ import annotations

from typing import Any

import pytest
import torch
from scipy import stats

from dagnn.autoencoders.latent_scoring import (
    fit_process,
    regression_measures,
    score_latent,
)
from tests.autoencoders.latent_cases import NOISE, wavy

QUICK: dict[str, dict[str, Any]] = {
    "exact": {"fit_points": 150, "steps": 40},
    "vfe": {"num_inducing": 60, "steps": 60},
    "fitc": {"num_inducing": 60, "steps": 60},
    "svgp": {"num_inducing": 60, "passes": 100, "batch_size": 100},
}


@pytest.mark.parametrize("kind", QUICK)
def test_score_of_a_latent_space_that_tells_all_but_the_noise(kind: str) -> None:
    case = wavy(train=300)
    score = score_latent(*case, kind=kind, seeds=2, **QUICK[kind])
    assert len(score.rmse) == 2
    assert score.rmse[0] != score.rmse[1]
    summary = score.summary()
    floor = 2 * NOISE / case.train_y.std().item()
    assert floor < summary["rmse"]["mean"] < 4 * floor
    assert summary["pearson"]["mean"] > 0.97
    assert summary["kendall"]["mean"] > 0.8
    assert 0.75 < summary["coverage90"]["mean"] <= 1
    assert summary["rmse"]["std"] == pytest.approx(abs(score.rmse[0] - score.rmse[1]) / 2)


def test_score_is_a_function_of_the_seeds() -> None:
    case = wavy(train=100, test=50)
    options: dict[str, Any] = {"kind": "vfe", "num_inducing": 9, "steps": 5}
    assert score_latent(*case, seeds=2, **options) == score_latent(*case, seeds=2, **options)


def test_a_score_tells_whether_its_fit_had_come_to_rest() -> None:
    case = wavy(train=100, test=20)
    short = score_latent(*case, kind="vfe", seeds=1, num_inducing=9, steps=5)
    assert short.is_flat is False
    long = score_latent(*case, kind="vfe", seeds=1, num_inducing=9, steps=1000, tolerance=1e-4)
    assert long.is_flat is True
    assert long.objective[0] > short.objective[0]
    assert (short.steps, short.constant_axes) == ([5], [0])
    assert 100 <= long.steps[0] <= 1000
    # A rate that falls to zero brings any fit to a halt; that is not taken for rest.
    halted = score_latent(*case, kind="vfe", seeds=1, num_inducing=9, steps=60)
    assert halted.is_flat is False
    noisy = score_latent(*case, kind="svgp", seeds=1, num_inducing=9, passes=2)
    assert noisy.is_flat is None


def test_noise_is_not_learnt() -> None:
    z, _, test_z, _ = wavy(train=200, test=100)
    y, test_y = torch.randn(200), torch.randn(100)
    score = score_latent(z, y, test_z, test_y, kind="exact", seeds=1, steps=50)
    assert 0.8 < score.rmse[0] < 1.3
    assert abs(score.pearson[0]) < 0.3
    assert score.coverage90[0] > 0.8


def test_measures_are_those_of_scipy() -> None:
    a, b = torch.randn(50), torch.randn(50)
    measures = regression_measures(a, a + b, deviation=0.5)
    assert measures["rmse"] == pytest.approx((b**2).mean().sqrt().item() / 0.5)
    assert measures["pearson"] == pytest.approx(stats.pearsonr(a, a + b).statistic, rel=1e-5)
    assert measures["kendall"] == pytest.approx(stats.kendalltau(a, a + b).statistic)


def test_a_constant_prediction_tells_nothing() -> None:
    measures = regression_measures(torch.ones(4), torch.arange(4.0), deviation=1.0)
    assert measures["pearson"] == measures["kendall"] == 0


def test_bad_input() -> None:
    z, y, test_z, test_y = wavy(train=20, test=10)
    with pytest.raises(ValueError, match="expected at least one seed, got 0"):
        score_latent(z, y, test_z, test_y, seeds=0)
    with pytest.raises(ValueError, match="expected one of exact, vfe, fitc, svgp, got 'gp'"):
        fit_process("gp", z, y, [0])
    with pytest.raises(ValueError, match="training scores that differ"):
        score_latent(z, torch.ones(20), test_z, test_y)
    with pytest.raises(ValueError, match="expected finite latent points"):
        score_latent(z, y, test_z * torch.nan, test_y)
