"""How a Bayesian network is searched for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from dagnn.search.pivots import Pivots

__all__ = ["LearningSettings"]


@dataclass(frozen=True)
class LearningSettings:
    """How to search.

    Args:
        pivots: Which graphs the search starts from; see
            :func:`~dagnn.search.pivots.draw_pivots`.
        foresee: Whether graphs to score are chosen among many decoded ones, each judged where it
            lies itself; otherwise latent points are chosen, and decoded then.
        process: The Gaussian process, ``"exact"`` or ``"sparse"``.
        decodings: Graphs decoded from each latent point.
        repair: Whether decoded graphs that are no networks are made ones.
        improve: Whether hill climbing starts from the best decoded graphs of each round.
        model: The autoencoder, ``"dagnn"``, ``"d-vae"``, or another of
            :data:`dagnn.autoencoders.models.MODELS`.
        num_pivots, epochs, hidden_channels, latent_channels, batch_size: Sizes of the
            autoencoder's training; where they are None, :meth:`sized` chooses them.
    """

    pivots: Pivots = "mixed"
    foresee: bool = True
    process: Literal["exact", "sparse"] = "exact"
    decodings: int = 4
    repair: bool = True
    improve: bool = True
    model: str = "dagnn"
    num_pivots: int | None = None
    epochs: int | None = None
    hidden_channels: int | None = None
    latent_channels: int | None = None
    batch_size: int | None = None

    @classmethod
    def paper(cls) -> LearningSettings:
        """The paper's search: pivots along a fixed order of the variables, a sparse process, the
        likeliest graph of each latent point as it is."""
        return cls(
            pivots="fixed",
            foresee=False,
            process="sparse",
            decodings=1,
            repair=False,
            improve=False,
        )

    def sized(self, num_variables: int, on_gpu: bool) -> LearningSettings:
        """The same with all sizes chosen.

        A training step takes time in proportion to the pairs of nodes, so that with many variables
        there are fewer of them. On a GPU they are the paper's sizes, but for fewer epochs.
        """
        share = min(1.0, (10 / (num_variables + 2)) ** 2)
        visits = int((1_500_000 if on_gpu else 120_000) * share)
        pivots = max(min(200_000 if on_gpu else 15_000, visits // 8), 500)
        pivots = self.num_pivots or pivots
        return replace(
            self,
            num_pivots=pivots,
            epochs=self.epochs or max(visits // pivots, 1),
            hidden_channels=self.hidden_channels or (501 if on_gpu else 64),
            latent_channels=self.latent_channels or (56 if on_gpu else 32),
            batch_size=self.batch_size or (128 if on_gpu else 32),
        )
