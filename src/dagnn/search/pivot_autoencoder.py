"""The autoencoder whose latent space is searched: trained on the pivots, or one that is there."""

from __future__ import annotations

import hashlib
import os
import tempfile

from dagnn.autoencoders.fitting import AutoencoderConfig, fit_autoencoder, load_autoencoder
from dagnn.autoencoders.vae import DagVAE
from dagnn.datasets.small_dags import SmallDags
from dagnn.search.learning_settings import LearningSettings

__all__ = ["load_for_networks", "train_on_pivots"]


def train_on_pivots(
    pivots: SmallDags,
    settings: LearningSettings,
    *,
    seed: int = 0,
    device: str = "cpu",
    folder: str | os.PathLike[str] | None = None,
    progress: bool = False,
) -> DagVAE:
    """Train an autoencoder.

    Args:
        pivots: The graphs to train on.
        settings: With all sizes chosen; see :meth:`LearningSettings.sized`.
        seed: Of the weights, the order of the graphs, and the noise.
        device: ``"cpu"`` or ``"cuda"``.
        folder: Where the run is kept, and goes on if it was interrupted; by default nowhere.
        progress: Whether to show progress on stderr.
    """
    config = AutoencoderConfig(
        model=settings.model,
        task="bn",
        hidden_channels=settings.hidden_channels or 0,
        latent_channels=settings.latent_channels or 0,
        epochs=settings.epochs or 0,
        batch_size=min(settings.batch_size or 0, len(pivots)),
        seed=seed,
    )
    with tempfile.TemporaryDirectory(prefix="dagnn-") as temporary:
        model, _ = fit_autoencoder(
            config,
            pivots,
            folder or temporary,
            data={"pivots": _fingerprint(pivots)},
            device=device,
            progress=progress,
        )
    return model.to(device)


def load_for_networks(
    run: str | os.PathLike[str], num_variables: int, *, device: str = "cpu"
) -> DagVAE:
    """The autoencoder of a run, if it is one of networks with so many variables.

    It knows structures and no scores: it serves every table with as many columns.

    Args:
        run: A run of ``dagnn train bn`` or of :func:`train_on_pivots`, its folder or a checkpoint.
        num_variables: Of the networks.
        device: ``"cpu"`` or ``"cuda"``.
    """
    model, config = load_autoencoder(run, device)
    task, sizes = config["autoencoder"]["task"], config["sizes"]
    found = sizes["num_types"] - 2  # without start and end
    if task != "bn" or found != num_variables:
        what = f"networks of {found} variables" if task == "bn" else f"the task {task!r}"
        raise ValueError(
            f"expected an autoencoder of networks of {num_variables} variables, got one of "
            f"{what} in {os.fspath(run)}"
        )
    return model


def _fingerprint(graphs: SmallDags) -> str:
    """The SHA-256 of structures, so that a kept training is not taken for that of other ones."""
    parts = graphs.types.numpy().tobytes() + graphs.adjacency.numpy().tobytes()
    return hashlib.sha256(parts).hexdigest()
