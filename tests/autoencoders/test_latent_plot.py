from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from dagnn.autoencoders.latent_plot import draw_latent, principal_components


def test_components_are_eigenvectors_of_the_covariance() -> None:
    z = torch.randn(200, 5, dtype=torch.double) @ torch.randn(5, 5, dtype=torch.double) + 3
    projected, share = principal_components(z)
    values = np.linalg.eigvalsh(np.cov(z.numpy().T))[::-1]
    np.testing.assert_allclose(share.numpy(), values[:2] / values.sum(), rtol=1e-8)
    np.testing.assert_allclose(projected.numpy().var(axis=0, ddof=1), values[:2], rtol=1e-8)
    np.testing.assert_allclose(projected.numpy().mean(axis=0), 0, atol=1e-10)


def test_sign_does_not_depend_on_chance() -> None:
    z = torch.randn(50, 3, dtype=torch.double)
    first, _ = principal_components(z)
    second, _ = principal_components(z.flip(0))
    torch.testing.assert_close(first, second.flip(0))


def test_equal_points() -> None:
    projected, share = principal_components(torch.ones(4, 3))
    assert projected.abs().max() == 0
    assert share.tolist() == [0, 0]


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_picture(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / "deeper" / f"latent.{suffix}"
    draw_latent(torch.randn(30, 4), torch.randn(30), path, label="accuracy")
    head = path.read_bytes()[:300]
    assert head.startswith(b"\x89PNG") if suffix == "png" else b"<svg" in path.read_bytes()
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_bad_input(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"one score per point, \[3\], got \[2\]"):
        draw_latent(torch.randn(3, 4), torch.randn(2), tmp_path / "a.png")
    with pytest.raises(ValueError, match=r"N and D at least 2, got \[1, 4\]"):
        draw_latent(torch.randn(1, 4), torch.randn(1), tmp_path / "a.png")
    with pytest.raises(ValueError, match=r"name to end in .*png.*, got a\.txt"):
        draw_latent(torch.randn(3, 4), torch.randn(3), tmp_path / "a.txt")
    assert not list(tmp_path.iterdir())
