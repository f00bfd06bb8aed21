r"""Bayesian optimisation in the latent space of an autoencoder of DAGs.

Each round fits a sparse Gaussian process to latent points and scores, chooses a batch of points by
expected improvement in the box of the pivots' points, decodes them, has the graphs scored, and adds
all of it to what is known.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from dagnn.autoencoders.sparse_gp import CollapsedGP
from dagnn.autoencoders.vae import DagVAE
from dagnn.datasets.small_dags import SmallDags
from dagnn.search.expected_improvement import Box, choose_points

__all__ = ["Evaluated", "Round", "SearchSettings", "search_latent_space"]


NEAR = 0.9  # the share of climbs that start near the best points
STARTS_A_POINT = 10  # near each of these
SPREAD = 0.1  # of starts around their point, in deviations of the known points


class Evaluated(NamedTuple):
    """What became of decoded graphs.

    Args:
        origin: The decoded graph from which each graph came. int64 ``[K]``
        graphs: Valid graphs, with their scores.
    """

    origin: Tensor
    graphs: SmallDags


@dataclass(frozen=True)
class SearchSettings:
    """How to search.

    Args:
        rounds: The number of rounds.
        batch: Latent points in a round.
        decodings: Graphs decoded from each point. The first takes the likeliest decisions, any
            others draw them.
        points: How many known points the Gaussian process is fitted to.
        focus: The share of these that are the best ones; the others are drawn at random.
        num_inducing: Its inducing points.
        steps: Of its fitting.
        starts: Points from which expected improvement is climbed.
        seed: Of all that is drawn.
    """

    rounds: int = 10
    batch: int = 50
    decodings: int = 1
    points: int = 2000
    focus: float = 0.25
    num_inducing: int = 100
    steps: int = 60
    starts: int = 500
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.focus <= 1:
            raise ValueError(f"expected focus between 0 and 1, got {self.focus}")
        for name in ("batch", "decodings", "points", "num_inducing", "steps"):
            if getattr(self, name) < 1:
                raise ValueError(f"expected {name} of at least 1, got {getattr(self, name)}")
        if self.rounds < 0:
            raise ValueError(f"expected rounds of at least 0, got {self.rounds}")
        if self.starts < self.batch:
            raise ValueError(f"expected at least {self.batch} starts, got {self.starts}")


@dataclass(frozen=True)
class Round:
    """What a round found.

    Args:
        number: The first is 1.
        graphs: The valid graphs that were not known, with their scores.
        decoded: The number of graphs that were decoded.
        valid: How many of them were valid.
        best: The best score of all that is known.
        seconds: How long it took.
    """

    number: int
    graphs: SmallDags
    decoded: int
    valid: int
    best: float
    seconds: float


def search_latent_space(
    model: DagVAE,
    pivots: SmallDags,
    evaluate: Callable[[SmallDags], Evaluated],
    settings: SearchSettings | None = None,
) -> Iterator[Round]:
    """Search for graphs with a high score.

    Args:
        model: The autoencoder, on the device to use.
        pivots: Graphs with their scores, from which the search starts.
        evaluate: From decoded graphs to those that are valid, with their scores; it may repair or
            improve them. Scores are to be maximised.
        settings: How to search.

    Yields:
        The rounds, as they come.
    """
    settings = settings or SearchSettings()
    model.eval()
    device = next(model.parameters()).device
    generator = torch.Generator(device).manual_seed(settings.seed)
    pivots = pivots.to(device)
    z, y = model.encode_all(pivots).double(), pivots.score
    known = set(_keys(pivots))
    box = Box.around(z)
    worst, best = float(y.min()), float(y.max())
    for number in range(1, settings.rounds + 1):
        began = time.perf_counter()
        points = _propose(z, y, box, best, settings, number, generator)
        decoded = _decode(model, points, settings.decodings, generator)
        origin, graphs = evaluate(decoded)
        graphs = graphs.to(device)
        score = torch.full((len(points),), worst, dtype=y.dtype, device=device)
        score.scatter_reduce_(0, origin.to(device) % len(points), graphs.score, "amax")
        new = _first_of_each(graphs, known)
        graphs = graphs.index_select(new)
        z = torch.cat([z, points, model.encode_all(graphs).double()] if len(new) else [z, points])
        y = torch.cat([y, score, graphs.score])
        best = float(y.max())
        yield Round(
            number,
            graphs,
            len(decoded),
            len(origin.unique()),
            best,
            time.perf_counter() - began,
        )


def _propose(
    z: Tensor,
    y: Tensor,
    box: Box,
    best: float,
    settings: SearchSettings,
    number: int,
    generator: torch.Generator,
) -> Tensor:
    """The points of a round. ``[batch, D]``"""
    order = y.argsort(descending=True, stable=True)
    top = order[: round(settings.points * settings.focus)]
    rest = order[len(top) :]
    draw = torch.randperm(len(rest), generator=generator, device=z.device)
    chosen = torch.cat([top, rest[draw[: settings.points - len(top)]]])
    gp = CollapsedGP.fit(
        z[chosen],
        y[chosen],
        [settings.seed * 1009 + number],
        num_inducing=settings.num_inducing,
        steps=settings.steps,
    )
    return choose_points(
        gp, _starts(z, order, box, settings.starts, generator), box, best, settings.batch
    )


def _starts(z: Tensor, order: Tensor, box: Box, count: int, generator: torch.Generator) -> Tensor:
    """Most near the best points, the others anywhere in the box. ``[count, D]``"""
    few = order[: max(count // STARTS_A_POINT, 1)]
    near = z[few].repeat(STARTS_A_POINT, 1)[: round(NEAR * count)]
    noise = torch.randn(near.shape, generator=generator, device=z.device, dtype=z.dtype)
    near = near + SPREAD * z.std(dim=0) * noise
    shape = (count - len(near), z.size(1))
    anywhere = torch.rand(shape, generator=generator, device=z.device, dtype=z.dtype)
    return torch.cat([near, box.low + anywhere * (box.high - box.low)])


def _decode(model: DagVAE, points: Tensor, decodings: int, generator: torch.Generator) -> SmallDags:
    """Graphs of all points, then again: ``[decodings * batch]`` of them."""
    points = points.to(model.latent_mean.dtype)
    parts = [model.decode(points, stochastic=False)]
    if decodings > 1:
        parts.append(model.decode(points.repeat(decodings - 1, 1), generator=generator))
    columns = ("types", "adjacency", "num_nodes", "score")
    tensors = {name: torch.cat([getattr(part, name) for part in parts]) for name in columns}
    return SmallDags(**tensors, num_types=parts[0].num_types)


def _first_of_each(graphs: SmallDags, known: set[bytes]) -> Tensor:
    """The indices of graphs that were not known, each once; they are known from now on."""
    new = []
    for index, key in enumerate(_keys(graphs)):
        if key not in known:
            known.add(key)
            new.append(index)
    return torch.tensor(new, dtype=torch.long, device=graphs.device)


def _keys(graphs: SmallDags) -> list[bytes]:
    """Bytes that tell a graph from every other."""
    rows = torch.cat([graphs.types, graphs.adjacency.flatten(1)], -1).to(torch.uint8)
    return [row.tobytes() for row in rows.cpu().numpy()]
