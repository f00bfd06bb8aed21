from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch

from benchmarks.latent_processes import main
from benchmarks.published_process import PublishedProcess
from dagnn.autoencoders.fitting import AutoencoderConfig, fit_autoencoder
from dagnn.autoencoders.task_data import load_task
from dagnn.bayesnet.generate import generate_networks
from dagnn.bayesnet.scores import FamilyScores
from dagnn.bayesnet.table import read_table
from dagnn.datasets.bayesian_networks import sample_asia, save_bayesian_networks
from tests.autoencoders.na_file import write_architectures


def trained(task: str, file: Path, folder: Path) -> Path:
    found = load_task(task, file)
    config = AutoencoderConfig(
        task=task, hidden_channels=8, latent_channels=4, epochs=1, batch_size=64
    )
    data = {"file": file.name, "sha256": found.fingerprint}
    fit_autoencoder(config, found.train, folder, data=data, device="cpu", progress=False)
    return folder


def test_one_latent_space_by_two_processes(tmp_path: Path) -> None:
    file = tmp_path / "na.txt"
    write_architectures(file, 200)
    run = trained("na", file, tmp_path / "run")
    where = ["--preset", "quick", "--device", "cpu", "--json", str(tmp_path / "r.json")]
    result = main([str(run), "--data", str(file), "--seeds", "2", *where])
    assert json.loads((tmp_path / "r.json").read_text(encoding="utf-8")) == result
    (scored,) = result["runs"]
    assert scored["epochs"] == 1
    assert list(scored["scores"]) == ["fitc", "published"]
    published = scored["scores"]["published"]
    assert published["options"] == {
        "points": 3000, "num_inducing": 200, "passes": 100, "batch_size": 1000, "rate": 5e-4
    }  # fmt: skip
    assert len(set(published["seeds"]["rmse"])) == 2
    for measures in scored["scores"].values():  # of all kinds alike
        one, other = measures["seeds"]["rmse"]
        of_both = {"mean": (one + other) / 2, "std": abs(one - other) / 2}
        assert measures["rmse"] == pytest.approx(of_both)
    for measures in scored["scores"].values():
        assert 0 < measures["rmse"]["mean"] < 1.2  # 1 is the mean's
    with pytest.raises(SystemExit):
        main([str(run), "--data", str(file), "--seeds", "0", *where])
    with pytest.raises(SystemExit, match="expected a checkpoint"):
        main([str(tmp_path / "nowhere"), "--data", str(file), *where])
    write_architectures(file, 200, seed=1)
    with pytest.raises(SystemExit, match="trained on, got others"):
        main([str(run), "--data", str(file), *where])


def test_distinct_networks(tmp_path: Path) -> None:
    file = tmp_path / "bn.txt"
    table = tmp_path / "asia.csv"
    sample_asia(200, seed=0).to_csv(table, index=False)
    save_bayesian_networks(file, generate_networks(FamilyScores(read_table(table)), 300))
    run = trained("bn", file, tmp_path / "run")
    result = main([str(run), "--data", str(file), "--preset", "quick", "--device", "cpu"])
    assert result["runs"][0]["scores"]["published"]["pearson"]["mean"] <= 1


def start(points: int = 40) -> tuple[PublishedProcess, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(points, 2, generator=generator, dtype=torch.double)
    y = (3 * x).sin().sum(1) + 0.1 * torch.randn(points, generator=generator, dtype=torch.double)
    y = (y - y.mean()) / y.std()
    return PublishedProcess(x, y, 12, generator), x, y


def test_energy_is_that_of_the_cavity() -> None:
    """By normal distributions of torch, and normalizers by their definition."""
    process, x, y = start()
    n = len(x)
    with torch.no_grad():
        lengths = (0.5 * process.log_squares).exp()
        scale = process.log_scale.exp()

        def kernel(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            distance = ((a[:, None] - b[None]) / lengths).square().sum(2)
            return scale * (-0.5 * distance).exp()

        z = process.inducing
        prior = kernel(z, z) + 1e-3 * scale * torch.eye(len(z), dtype=torch.double)

        def posterior(share: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
            precision = prior.inverse() + share * process.root @ process.root.T
            mean = torch.linalg.solve(precision, share * process.shift)
            # log of the integral of exp(-u' P u / 2 + (P mean)' u)
            log_z = 0.5 * (
                len(z) * math.log(2 * math.pi) - precision.logdet() + mean @ precision @ mean
            )
            return mean, precision.inverse(), log_z

        mean, covariance, cavity = posterior(1 - 1 / n)
        weights = torch.linalg.solve(prior, kernel(z, x)).T
        seen = weights @ (covariance - prior) @ weights.T
        variance = scale + seen.diagonal() + process.log_noise.exp()
        density = torch.distributions.Normal(weights @ mean, variance.sqrt()).log_prob(y).sum()
        log_prior = 0.5 * (len(z) * math.log(2 * math.pi) + prior.logdet())
        full = posterior(1.0)[2]
        energy = n * (cavity - full + (full - log_prior) / n) + density
    torch.testing.assert_close(process.energy(x, y, n).detach(), energy)


def test_it_learns_given_time() -> None:
    _, x, y = start(points=300)
    rmse = [
        (PublishedProcess.fit(x, y, num_inducing=30, passes=passes, batch_size=100, rate=0.02)
         .predict(x)[0] - y).square().mean().sqrt().item()
        for passes in (1, 60)
    ]  # fmt: skip
    assert rmse[1] < 0.25 < rmse[0]
