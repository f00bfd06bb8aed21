r"""How well a latent space tells the score of a graph: Gaussian processes over several seeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from scipy.stats import kendalltau
from torch import Tensor

from dagnn.autoencoders.exact_gp import ExactGP
from dagnn.autoencoders.gaussian_process import GaussianProcess, check_points
from dagnn.autoencoders.sparse_gp import CollapsedGP, VariationalGP

__all__ = [
    "KINDS",
    "Z90",
    "LatentScore",
    "fit_process",
    "prediction_measures",
    "regression_measures",
    "score_latent",
]

Z90 = 1.6448536269514722  # 90 % of a normal distribution is at most as many deviations away

FLAT = 2e-4  # nats per point: a fit that gained less in 50 steps, of its last tenth, is at rest

KINDS: Mapping[str, Callable[..., GaussianProcess]] = {
    "exact": ExactGP.fit,
    "vfe": CollapsedGP.fit,
    "fitc": partial(CollapsedGP.fit, fitc=True),
    "svgp": VariationalGP.fit,
}


@dataclass(frozen=True)
class LatentScore:
    """Measures on the test points, one number per seed.

    Args:
        kind: The Gaussian process.
        rmse: Root mean square error, in standard deviations of the training targets.
        pearson: Pearson's correlation of prediction and target.
        kendall: Kendall's rank correlation of prediction and target.
        coverage90: The share of targets inside the 90 % interval of their predictions.
        log_density: Mean log density of the targets, of standardised targets.
        steps: The number of steps of the fit.
        objective: What it climbed, per point, at the end.
        late_change: How much of that came in the last tenth of the steps.
        constant_axes: How many coordinates of the points never change.
    """

    kind: str
    rmse: list[float]
    pearson: list[float]
    kendall: list[float]
    coverage90: list[float]
    log_density: list[float]
    steps: list[int]
    objective: list[float]
    late_change: list[float]
    constant_axes: list[int]

    @property
    def is_flat(self) -> bool | None:
        """Whether the fits of all seeds had come to rest; of ``"svgp"``, whose objective is that of
        a minibatch and never rests, nobody knows."""
        if self.kind == "svgp":
            return None
        climbs = zip(self.late_change, self.objective, self.steps, strict=True)
        return all(
            abs(change) * 50 / max(steps // 10, 1) < FLAT * max(abs(value), 1)
            for change, value, steps in climbs
        )

    def summary(self) -> dict[str, dict[str, float]]:
        """Mean and standard deviation over the seeds, per measure."""
        measures = ("rmse", "pearson", "kendall", "coverage90", "log_density")
        return {name: _mean_and_deviation(getattr(self, name)) for name in measures}


def score_latent(
    train_z: Tensor,
    train_y: Tensor,
    test_z: Tensor,
    test_y: Tensor,
    *,
    kind: str = "fitc",
    seeds: int = 10,
    tell: Callable[[str], None] = lambda _: None,
    **options: Any,
) -> LatentScore:
    """Fit a Gaussian process per seed on latent points, and measure it on others.

    Args:
        train_z: Latent points. ``[N, D]``
        train_y: Their scores. ``[N]``
        test_z: Other points. ``[T, D]``
        test_y: Their scores. ``[T]``
        kind: ``"exact"``; ``"vfe"`` or ``"fitc"``, which are sparse; or ``"svgp"``, sparse and
            stochastic.
        seeds: Seeds 0 to ``seeds - 1`` are used; but seed 0 alone for an exact process on all
            points, since nothing is random there.
        tell: Called with a few words before each fit, which may take minutes.
        options: Of the process, such as ``points``, ``fit_points`` or ``num_inducing``; see
            :class:`ExactGP`, :class:`CollapsedGP` and :class:`VariationalGP`.
    """
    check_points(train_z, train_y)
    check_points(test_z, test_y)
    if seeds < 1:
        raise ValueError(f"expected at least one seed, got {seeds}")
    deviation = train_y.double().std(correction=0).item()
    if not deviation > 0:
        raise ValueError("expected training scores that differ, got one and the same")
    rows: list[dict[str, Any]] = []
    for group in _groups(kind, seeds, train_z.device, options):
        which = f"seed {group[0]}" if len(group) == 1 else f"seeds {group[0]} to {group[-1]}"
        tell(f"{kind}: fitting {which} of {seeds}")
        gp = fit_process(kind, train_z, train_y, group, **options)
        with torch.no_grad():
            mean, spread = gp.predict(test_z)
        for m, s, *climb in zip(mean, spread, *gp.climb, strict=True):
            measures = prediction_measures(m, s, test_y, deviation)
            names = ("steps", "objective", "late_change")
            fit = {name: value.item() for name, value in zip(names, climb, strict=True)}
            rows.append({**measures, **fit, "constant_axes": gp.constant_axes})
    return LatentScore(kind, **{name: [row[name] for row in rows] for name in rows[0]})


def fit_process(
    kind: str, z: Tensor, y: Tensor, seeds: list[int], **options: Any
) -> GaussianProcess:
    """A Gaussian process of a kind, by name; see :func:`score_latent`."""
    if kind not in KINDS:
        raise ValueError(f"expected one of {', '.join(KINDS)}, got {kind!r}")
    return KINDS[kind](z, y, seeds, **options)


def _groups(
    kind: str, seeds: int, device: torch.device, options: Mapping[str, Any]
) -> list[list[int]]:
    """Which seeds are fitted side by side."""
    if kind == "exact" and options.get("points") is options.get("fit_points") is None:
        return [[0]]  # nothing is random, so one seed is all
    # Small products fill no GPU, so there all sparse processes run side by side. An exact one has
    # matrices of gigabytes, and on a CPU more at once is only more memory.
    at_once = seeds if device.type == "cuda" and kind != "exact" else 1
    return [list(range(seeds))[i : i + at_once] for i in range(0, seeds, at_once)]


def regression_measures(prediction: Tensor, target: Tensor, deviation: float) -> dict[str, float]:
    r"""RMSE in training deviations, Pearson's :math:`r` and Kendall's :math:`\tau`.

    Args:
        prediction: Predicted scores. ``[T]``
        target: The scores. ``[T]``
        deviation: Standard deviation of the training scores.

    Example:
        >>> import torch
        >>> target = torch.tensor([1.0, 2.0, 3.0])
        >>> measures = regression_measures(target + 1, target, deviation=2.0)
        >>> {name: round(value, 6) for name, value in measures.items()}
        {'rmse': 0.5, 'pearson': 1.0, 'kendall': 1.0}
    """
    prediction, target = prediction.double().cpu(), target.double().cpu()
    rmse = (prediction - target).square().mean().sqrt().item() / deviation
    a, b = prediction - prediction.mean(), target - target.mean()
    lengths = (a.norm() * b.norm()).item()
    # Of a constant there is neither correlation nor order: it tells nothing, which is 0.
    pearson = (a @ b).item() / lengths if lengths > 0 else 0.0
    kendall = kendalltau(prediction.numpy(), target.numpy()).statistic if lengths > 0 else 0.0
    return {"rmse": rmse, "pearson": pearson, "kendall": float(kendall)}


def prediction_measures(
    mean: Tensor, spread: Tensor, y: Tensor, deviation: float
) -> dict[str, float]:
    """Those of :func:`regression_measures`, and of the uncertainty; see :class:`LatentScore`.

    Args:
        mean: Predicted scores. ``[T]``
        spread: Their standard deviations. ``[T]``
        y: The scores. ``[T]``
        deviation: Standard deviation of the training scores.
    """
    y = y.double()
    normal = torch.distributions.Normal(mean / deviation, spread / deviation)
    return {
        **regression_measures(mean, y, deviation),
        "coverage90": ((mean - y).abs() <= Z90 * spread).double().mean().item(),
        "log_density": normal.log_prob(y / deviation).mean().item(),
    }


def _mean_and_deviation(values: list[float]) -> dict[str, float]:
    tensor = torch.tensor(values, dtype=torch.double)
    return {"mean": tensor.mean().item(), "std": tensor.std(correction=0).item()}
