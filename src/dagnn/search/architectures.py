"""Search for accurate neural architectures in the latent space of a trained autoencoder.

The accuracy of an architecture is looked up where the data know it. Of the others it is predicted
by a Gaussian process on the latent points of all known ones; the search goes on as if predictions
were true, but they are marked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from dagnn.autoencoders.latent_predictor import LatentPredictor
from dagnn.autoencoders.task_data import row_texts
from dagnn.autoencoders.vae import DagVAE
from dagnn.datasets.architectures import valid_architectures
from dagnn.datasets.small_dags import SmallDags
from dagnn.search.latent_search import Evaluated, Round, SearchSettings, search_latent_space

__all__ = ["ArchitectureScoring", "Proposal", "search_architectures"]


@dataclass(frozen=True)
class Proposal:
    """An architecture that a search found.

    Args:
        row: As in the data set's file.
        predicted: The accuracy that the Gaussian process expects.
        deviation: Of the prediction.
        known: The accuracy in the data, or None.
        round: In which round it was found.
    """

    row: str
    predicted: float
    deviation: float
    known: float | None
    round: int


class ArchitectureScoring:
    """Scores decoded graphs: the known accuracy, or else the predicted one.

    Args:
        model: The autoencoder.
        predictor: The Gaussian process on its latent points.
        known: Architectures with their accuracies.
    """

    def __init__(self, model: DagVAE, predictor: LatentPredictor, known: SmallDags) -> None:
        self._model, self._predictor = model, predictor
        self._known = dict(zip(row_texts("na", known), known.score.tolist(), strict=True))

    def __call__(self, graphs: SmallDags) -> Evaluated:
        """The valid ones of decoded graphs."""
        origin = valid_architectures(graphs).nonzero().squeeze(1)
        graphs = graphs.index_select(origin)
        if not len(graphs):
            return Evaluated(origin, graphs)
        predicted = self._predictor.predict(self._model.encode_all(graphs)).mean.tolist()
        rows = zip(row_texts("na", graphs), predicted, strict=True)
        accuracies = [self._known.get(row, value) for row, value in rows]
        scores = torch.tensor(accuracies, dtype=torch.double, device=graphs.device)
        return Evaluated(origin, replace(graphs, score=scores))

    def proposals(self, found: Round) -> list[Proposal]:
        """What a round found, best predictions first."""
        if not len(found.graphs):
            return []
        predicted = self._predictor.predict(self._model.encode_all(found.graphs))
        columns = zip(
            row_texts("na", found.graphs),
            predicted.mean.tolist(),
            predicted.std.tolist(),
            strict=True,
        )
        return sorted(
            (
                Proposal(row, mean, std, self._known.get(row), found.number)
                for row, mean, std in columns
            ),
            key=lambda proposal: -proposal.predicted,
        )


def search_architectures(
    model: DagVAE,
    train: SmallDags,
    known: SmallDags,
    settings: SearchSettings | None = None,
    *,
    points: int = 2000,
    num_inducing: int = 200,
) -> Iterator[tuple[Round, list[Proposal]]]:
    """Search for architectures with a high accuracy.

    Args:
        model: A trained autoencoder of architectures, on the device to use.
        train: The pivots: architectures with their accuracies.
        known: All architectures whose accuracy can be looked up; they need not be pivots.
        settings: How to search.
        points: How many pivots the predictions rest on.
        num_inducing: Inducing points of the Gaussian process that predicts.

    Yields:
        The rounds as they come, each with the architectures that were no pivots.
    """
    settings = settings or SearchSettings()
    model.eval()
    device = next(model.parameters()).device
    train = train.to(device)
    predictor = LatentPredictor.fit(
        model.encode_all(train),
        train.score,
        seeds=[settings.seed],
        points=points,
        num_inducing=num_inducing,
        steps=100,
    )
    scoring = ArchitectureScoring(model, predictor, known)
    for found in search_latent_space(model, train, scoring, settings):
        yield found, scoring.proposals(found)
