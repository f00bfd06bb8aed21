from __future__ import annotations

from pathlib import Path

import pytest
import safetensors.torch
import torch

from dagnn.autoencoders.latent_predictor import LatentPredictor
from tests.autoencoders.latent_cases import wavy


def fitted() -> LatentPredictor:
    z, y, *_ = wavy(train=100)
    return LatentPredictor.fit(
        z, y, seeds=(0, 1), num_inducing=20, steps=30, metadata={"task": "na"}
    )


def test_prediction_is_the_mixture_of_the_seeds() -> None:
    predictor = fitted()
    test_z = wavy(train=100).test_z
    prediction = predictor.predict(test_z)
    with torch.no_grad():
        means, deviations = predictor.gp.predict(test_z)
    half = torch.randn(10_000, 1, 1, dtype=torch.double)
    draws = means + deviations * torch.cat([half, -half])  # [K, S, N]
    draws = draws.flatten(0, 1)
    torch.testing.assert_close(prediction.mean, draws.mean(dim=0))
    torch.testing.assert_close(prediction.std, draws.std(dim=0), rtol=0.05, atol=0.01)
    inside = (draws >= prediction.low) & (draws <= prediction.high)
    assert inside.double().mean().item() == pytest.approx(0.9, abs=0.02)


def test_file_gives_the_same_predictions(tmp_path: Path) -> None:
    predictor = fitted()
    path = tmp_path / "predictor.safetensors"
    predictor.save(path)
    other = LatentPredictor.load(path)
    assert other.metadata == {"task": "na"}
    test_z = wavy(train=100).test_z
    for a, b in zip(predictor.predict(test_z), other.predict(test_z), strict=True):
        assert torch.equal(a, b)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.safetensors"
    path.write_bytes(b"no such file")
    with pytest.raises(ValueError, match=r"expected a latent predictor in .*other"):
        LatentPredictor.load(path)
    safetensors.torch.save_file({"x": torch.zeros(1)}, path)
    with pytest.raises(ValueError, match="it is not marked as"):
        LatentPredictor.load(path)
    fitted().save(path)
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(ValueError, match="expected a latent predictor"):
        LatentPredictor.load(path)
    with pytest.raises(FileNotFoundError):
        LatentPredictor.load(tmp_path / "missing")
