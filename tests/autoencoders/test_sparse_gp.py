from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal

from dagnn.autoencoders.exact_gp import ExactGP
from dagnn.autoencoders.gaussian_process import GaussianProcess
from dagnn.autoencoders.sparse_gp import CollapsedGP, VariationalGP
from tests.autoencoders.latent_cases import wavy


def standardised(gp: GaussianProcess, z: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    x, target = gp.standardise(z, y)
    return x[None], target[None]


@pytest.mark.parametrize("fitc", [False, True])
def test_bound_is_a_density_of_low_rank(fitc: bool) -> None:
    z, y, *_ = wavy(train=40)
    gp = CollapsedGP(1, 4, 7, fitc=fitc)
    x, target = standardised(gp, z, y)
    with torch.no_grad():
        gp.inducing.copy_(x[:, :7] + 0.1)
        cross = gp.covariance(x, gp.inducing)[0]
        inner = gp.covariance(gp.inducing, gp.inducing)[0]
        low_rank = cross @ torch.linalg.solve(inner, cross.mT)
        full = gp.covariance(x, x)[0]
        missing = (full - low_rank).diagonal()
        spread = gp.noise + (missing if fitc else 0)
        normal = MultivariateNormal(torch.zeros(40).double(), low_rank + spread * torch.eye(40))
        expected = normal.log_prob(target[0])
        if not fitc:
            expected = expected - missing.sum() / (2 * gp.noise[0])
        torch.testing.assert_close(40 * gp.bound(x, target)[0], expected, rtol=1e-4, atol=0)


def test_bound_is_below_the_marginal_likelihood() -> None:
    z, y, *_ = wavy(train=40)
    gp = CollapsedGP(1, 4, 40)
    x, target = standardised(gp, z, y)
    exact = ExactGP(1, 4)
    with torch.no_grad():
        truth = MultivariateNormal(torch.zeros(40).double(), exact._observed(x)[0])
        likelihood = truth.log_prob(target[0]).item() / 40
        bounds = []
        for size in (5, 20, 40):
            gp.inducing = torch.nn.Parameter(x[:, :size])
            bounds.append(gp.bound(x, target).item())
    assert bounds[0] < bounds[1] < likelihood
    assert bounds[2] == pytest.approx(likelihood, rel=1e-3)


@pytest.mark.parametrize("fitc", [False, True])
def test_with_all_points_inducing_it_is_the_exact_process(fitc: bool) -> None:
    z, y, test_z, _ = wavy(train=40, test=10)
    exact = ExactGP.fit(z, y, [0], steps=10)
    gp = CollapsedGP(1, 4, 40, fitc=fitc)
    x, target = standardised(gp, z, y)
    gp.kernel.load_state_dict(exact.kernel.state_dict())
    gp.likelihood.load_state_dict(exact.likelihood.state_dict())
    with torch.no_grad():
        gp.inducing.copy_(x)
        gp._condition(x, target)
        for a, b in zip(gp.predict(test_z), exact.predict(test_z), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("kind", ["vfe", "fitc", "svgp"])
def test_sparse_is_close_to_exact(kind: str) -> None:
    z, y, test_z, test_y = wavy(train=300)
    exact = ExactGP.fit(z, y, [0], steps=60)
    sparse: GaussianProcess
    if kind == "svgp":
        sparse = VariationalGP.fit(
            z, y, [0], num_inducing=60, passes=150, batch_size=100, rate=0.05
        )
    else:
        sparse = CollapsedGP.fit(z, y, [0], num_inducing=60, steps=60, fitc=kind == "fitc")

    def error(gp: GaussianProcess) -> float:
        return (gp.predict(test_z)[0] - test_y).square().mean().sqrt().item()

    assert error(sparse) < (2 if kind == "svgp" else 1.2) * error(exact)
    agreement = torch.stack([gp.predict(test_z)[0][0].detach() for gp in (exact, sparse)])
    assert torch.corrcoef(agreement)[0, 1] > 0.99


def test_fewer_points_than_inducing_points() -> None:
    z, y, test_z, _ = wavy(train=30, test=5)
    assert CollapsedGP.fit(z, y, [0], num_inducing=500, steps=3).inducing.shape == (1, 30, 4)
    assert (
        VariationalGP.fit(z, y, [0], num_inducing=500, passes=2).predict(test_z)[0].isfinite().all()
    )


def test_state_is_enough_to_predict() -> None:
    z, y, test_z, _ = wavy(train=60, test=5)
    gp = CollapsedGP.fit(z, y, [0, 1], num_inducing=8, steps=5, fitc=True)
    other = CollapsedGP(2, 4, 8, fitc=True)
    other.load_state_dict(gp.state_dict())
    for a, b in zip(gp.predict(test_z), other.predict(test_z), strict=True):
        assert torch.equal(a, b)
