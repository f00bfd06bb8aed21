from __future__ import annotations

import numpy as np
import pytest
import torch

from dagnn.autoencoders.exact_gp import ExactGP
from tests.autoencoders.latent_cases import NOISE, wavy


def test_posterior_is_the_textbook_formula() -> None:
    z, y, test_z, _ = wavy(train=40, test=10)
    gp = ExactGP.fit(z, y, [0], steps=10)
    length = gp.kernel.base_kernel.lengthscale.detach().numpy()[0, 0]
    scale, noise = gp.scale.item(), gp.noise.item()

    def kernel(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        difference = (a[:, None] - b[None]) / length
        return scale * np.exp(-0.5 * (difference**2).sum(axis=-1))

    shift, stretch = z.mean(dim=0).numpy(), z.std(dim=0, correction=0).numpy()
    x, test_x = (z.numpy() - shift) / stretch, (test_z.numpy() - shift) / stretch
    target = (y.numpy() - y.numpy().mean()) / y.numpy().std()
    observed = kernel(x, x) + noise * np.eye(40)
    cross = kernel(test_x, x)
    mean = cross @ np.linalg.solve(observed, target)
    variance = scale - np.einsum("ij,ji->i", cross, np.linalg.solve(observed, cross.T)) + noise
    found_mean, found_spread = (value.detach().numpy()[0] for value in gp.predict(test_z))
    np.testing.assert_allclose(found_mean, mean * y.numpy().std() + y.numpy().mean(), rtol=1e-4)
    np.testing.assert_allclose(found_spread, np.sqrt(variance) * y.numpy().std(), rtol=1e-4)


def test_objective_is_the_marginal_likelihood_with_its_gradient() -> None:
    z, y, *_ = wavy(train=30)
    gp = ExactGP(2, 4)
    x, target = gp.standardise(z, y)
    x, target = x.expand(2, -1, -1), torch.stack([target, target.square()])
    value = gp.log_likelihood(x, target)
    value.sum().backward()
    found = {name: p.grad.clone() for name, p in gp.named_parameters() if p.grad is not None}
    gp.zero_grad()
    normal = torch.distributions.MultivariateNormal(torch.zeros(2, 30).double(), gp._observed(x))
    torch.testing.assert_close(value, normal.log_prob(target) / 30, rtol=1e-4, atol=1e-6)
    (normal.log_prob(target) / 30).sum().backward()
    assert len(found) == 3
    for name, parameter in gp.named_parameters():
        torch.testing.assert_close(found[name], parameter.grad, rtol=1e-4, atol=1e-6)


def test_fit_finds_noise_and_the_coordinates_that_matter() -> None:
    z, y, *_ = wavy(train=300)
    gp = ExactGP.fit(z, y, [0], steps=150)
    true = (2 * NOISE / y.std()) ** 2
    assert gp.noise.item() == pytest.approx(true.item(), rel=0.3)
    lengths = gp.kernel.base_kernel.lengthscale.detach()[0, 0]
    assert lengths[2:].min() > 3 * lengths[:2].max()


def test_all_points_support_the_prediction_whatever_the_fit_saw() -> None:
    z, y, test_z, test_y = wavy(train=300)

    def error(**options: int) -> float:
        mean, _ = ExactGP.fit(z, y, [0], steps=40, **options).predict(test_z)
        return (mean[0] - test_y).square().mean().sqrt().item()

    assert error(fit_points=60) < 0.8 * error(points=60)
