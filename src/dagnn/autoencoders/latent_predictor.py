"""A fitted Gaussian process that is kept in a file: scores of latent points, with uncertainty."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from dagnn.autoencoders.latent_scoring import Z90
from dagnn.autoencoders.sparse_gp import CollapsedGP
from dagnn.training.checkpoints import write_atomically

__all__ = ["LatentPredictor", "Prediction"]

FORMAT = "dagnn latent predictor 1"


class Prediction(NamedTuple):
    """Predicted scores ``[N]`` with their standard deviations and 90 % intervals."""

    mean: Tensor
    std: Tensor
    low: Tensor
    high: Tensor


class LatentPredictor:
    """Sparse Gaussian processes of several seeds, as one.

    The prediction is the mixture of the seeds': their mean, and as variance the mean of their
    variances plus the variance of their means.

    Args:
        gp: The processes.
        metadata: Words that are kept with them, such as the digest of the encoder's checkpoint.
    """

    def __init__(self, gp: CollapsedGP, metadata: Mapping[str, str] | None = None) -> None:
        self.gp = gp
        self.metadata = dict(metadata or {})

    @classmethod
    def fit(
        cls,
        z: Tensor,
        y: Tensor,
        *,
        seeds: Sequence[int] = (0,),
        metadata: Mapping[str, str] | None = None,
        **options: Any,
    ) -> LatentPredictor:
        """Fit on latent points ``[N, D]`` and their scores ``[N]``; see :meth:`CollapsedGP.fit`."""
        return cls(CollapsedGP.fit(z, y, seeds, **options), metadata)

    @torch.no_grad()
    def predict(self, z: Tensor) -> Prediction:
        """The scores to be observed at latent points ``[N, D]``."""
        means, deviations = self.gp.predict(z)
        mean = means.mean(dim=0)
        std = (deviations.square().mean(dim=0) + means.var(dim=0, correction=0)).sqrt()
        return Prediction(mean, std, mean - Z90 * std, mean + Z90 * std)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a safetensors file; it appears only when it is complete."""
        tensors = {name: value.cpu().contiguous() for name, value in self.gp.state_dict().items()}
        metadata = {**self.metadata, "format": FORMAT}
        data = safetensors.torch.save(tensors, metadata)
        write_atomically(path, lambda file: file.write(data))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> LatentPredictor:
        """Read what :meth:`save` wrote.

        Raises:
            ValueError: If the file is damaged, or is no such file.
        """
        try:
            with safetensors.safe_open(path, framework="pt") as file:
                metadata = dict(file.metadata() or {})
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            if metadata.pop("format", None) != FORMAT:
                raise ValueError(f"it is not marked as {FORMAT!r}")
            gp = CollapsedGP(*_sizes(tensors))
            gp.load_state_dict(tensors)
        except (safetensors.SafetensorError, KeyError, RuntimeError, ValueError) as error:
            raise ValueError(
                f"expected a latent predictor in {os.fspath(path)}: {error}; make it with dagnn "
                "score"
            ) from error
        return cls(gp, metadata)


def _sizes(tensors: Mapping[str, Tensor]) -> tuple[int, int, int]:
    seeds, inducing, channels = tensors["inducing"].shape
    return seeds, channels, inducing
