from __future__ import annotations

from pathlib import Path

import pytest

from dagnn.autoencoders.fitting import AutoencoderConfig, fit_autoencoder
from dagnn.autoencoders.task_data import load_task, row_texts
from dagnn.cli import app
from dagnn.datasets.architectures import load_architectures, parse_architectures
from dagnn.search.architectures import search_architectures
from dagnn.search.latent_search import SearchSettings
from tests.autoencoders.na_file import write_architectures
from tests.search.cases import brief_training

SETTINGS = SearchSettings(
    rounds=2, batch=6, decodings=4, points=100, num_inducing=20, steps=15, starts=20
)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("na") / "final_structures6.txt"
    write_architectures(path, 120)
    return path


def test_proposals_are_valid_new_and_looked_up(file: Path) -> None:
    known = load_architectures(file)
    train = known[:60]
    model = brief_training(train, 60, task="na")
    found = list(search_architectures(model, train, known, SETTINGS, points=60, num_inducing=20))
    assert [one.number for one, _ in found] == [1, 2]
    proposals = [proposal for _, some in found for proposal in some]
    rows = [proposal.row for proposal in proposals]
    assert rows
    assert len(set(rows)) == len(rows)
    assert not set(rows) & set(row_texts("na", train))
    assert len(parse_architectures([f"{row}, 0.5" for row in rows])) == len(rows)
    accuracy = dict(zip(row_texts("na", known), known.score.tolist(), strict=True))
    for proposal in proposals:
        assert proposal.known == accuracy.get(proposal.row)
        assert proposal.deviation > 0


def test_the_command(file: Path, tmp_path: Path) -> None:
    import json

    from typer.testing import CliRunner

    config = AutoencoderConfig(hidden_channels=8, latent_channels=4, epochs=1, batch_size=32)
    fit_autoencoder(
        config, load_task("na", file).train, tmp_path / "run", device="cpu", progress=False
    )
    words = ["search", "na", tmp_path / "run", "--data", file, "--rounds", 1, "--batch", 4]
    words += ["--decodings", 8, "--device", "cpu", "--top", 3]
    arguments = list(map(str, words))
    result = CliRunner().invoke(app, [*arguments, "--json"], catch_exceptions=False)
    found = json.loads(result.stdout)
    assert len(found["architectures"]) <= 3
    assert "round 1/1" in result.stderr
    table = CliRunner().invoke(app, arguments, catch_exceptions=False).stdout
    assert "best of the training graphs" in table
    for architecture in found["architectures"]:
        assert architecture["row"] in table
