from __future__ import annotations

from pathlib import Path

import pytest
import torch

from dagnn.autoencoders.fitting import AutoencoderConfig, fit_autoencoder
from dagnn.search.learning_settings import LearningSettings
from dagnn.search.pivot_autoencoder import load_for_networks, train_on_pivots
from dagnn.search.pivots import draw_pivots
from tests.search.cases import asia_scores, no_constraints

SETTINGS = LearningSettings(
    epochs=1, hidden_channels=8, latent_channels=4, batch_size=16, num_pivots=40
)


def test_a_kept_training_is_loaded_as_it_was(tmp_path: Path) -> None:
    scores = asia_scores()
    pivots = draw_pivots(scores, no_constraints(scores), 40, kind="random")
    trained = train_on_pivots(pivots, SETTINGS, folder=tmp_path / "run").eval()
    loaded = load_for_networks(tmp_path / "run", 5)
    assert torch.equal(trained.encode_all(pivots), loaded.encode_all(pivots))


def test_an_autoencoder_of_other_graphs_is_refused(tmp_path: Path) -> None:
    scores = asia_scores()
    pivots = draw_pivots(scores, no_constraints(scores), 40, kind="random")
    train_on_pivots(pivots, SETTINGS, folder=tmp_path / "five")
    with pytest.raises(ValueError, match="networks of 3 variables, got one of networks of 5"):
        load_for_networks(tmp_path / "five", 3)
    config = AutoencoderConfig(task="na", hidden_channels=8, latent_channels=4, epochs=1)
    fit_autoencoder(config, pivots, tmp_path / "na", device="cpu", progress=False)
    with pytest.raises(ValueError, match="got one of the task 'na'"):
        load_for_networks(tmp_path / "na", 5)
