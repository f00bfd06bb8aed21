r"""Bayesian optimisation in the latent space of an autoencoder of DAGs.

Each round fits a Gaussian process to latent points and scores, and chooses a batch by expected
improvement in the box of the pivots' points. The paper's way is to choose points, and to decode
them then: many of them decode to graphs that are known already, or lie elsewhere themselves. The
other way is to decode many more points than are wanted, which costs no score, and to choose among
their graphs, each judged where the encoder sees it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from dagnn.autoencoders.exact_gp import ExactGP
from dagnn.autoencoders.sparse_gp import CollapsedGP
from dagnn.autoencoders.vae import DagVAE
from dagnn.datasets.small_dags import SmallDags
from dagnn.search.expected_improvement import Box, Process, choose_greedily, climb

__all__ = ["Evaluated", "Round", "SearchSettings", "search_latent_space"]


PLACED = 20_000  # pivots that are encoded, half of them the best: no process is fitted to more
NEAR = 0.9  # the share of climbs that start near the best points
STARTS_A_POINT = 10  # near each of these
SPREAD = 0.1  # of starts around their point, in deviations of the known points
PARENTS = 10  # best points around and between which graphs are decoded to choose from
SCALES = 0.05, 0.8  # of the noise around them, in the same units


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
        batch: Graphs that are chosen in a round, or latent points, if graphs are not read first.
        decodings: Graphs decoded from each point. The first takes the likeliest decisions, any
            others draw them.
        process: The Gaussian process, ``"exact"``, or ``"sparse"`` as in the paper.
        points: How many pivots it is fitted to, beside all that the search has found.
        focus: The share of these that are the best ones; the others are drawn at random.
        num_inducing: Inducing points of a sparse process.
        steps: Of its fitting.
        starts: Points from which expected improvement is climbed.
        seed: Of all that is drawn.
    """

    rounds: int = 10
    batch: int = 50
    decodings: int = 1
    process: Literal["exact", "sparse"] = "exact"
    points: int = 400
    focus: float = 1.0
    num_inducing: int = 100
    steps: int = 40
    starts: int = 200
    seed: int = 0

    def __post_init__(self) -> None:
        if self.process not in ("exact", "sparse"):
            raise ValueError(f"expected process 'exact' or 'sparse', got {self.process!r}")
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
        decoded: The number of decoded graphs that were evaluated.
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
    *,
    read: Callable[[SmallDags], SmallDags] | None = None,
) -> Iterator[Round]:
    """Search for graphs with a high score.

    Args:
        model: The autoencoder, on the device to use.
        pivots: Graphs with their scores, from which the search starts.
        evaluate: From decoded graphs to those that are valid, with their scores; it may repair or
            improve them. Scores are to be maximised.
        settings: How to search.
        read: From decoded graphs to those that can be evaluated, perhaps repaired ones. With it, a
            batch is chosen among graphs, all of which are new; without, points are chosen, and
            decoded then.

    Yields:
        The rounds, as they come.
    """
    settings = settings or SearchSettings()
    model.eval()
    device = next(model.parameters()).device
    generator = torch.Generator(device).manual_seed(settings.seed)
    pivots = pivots.to(device)
    known = set(_keys(pivots))
    pivots = pivots.index_select(_placed(pivots.score, max(PLACED, settings.points), generator))
    z, y = model.encode_all(pivots).double(), pivots.score
    box = Box.around(z)
    worst, best = float(y.min()), float(y.max())
    for number in range(1, settings.rounds + 1):
        began = time.perf_counter()
        gp = _fit(z, y, len(pivots), settings, number, generator)
        points = climb(gp, _starts(z, y, box, settings.starts, generator), box, best)
        if read is None:
            points = points[choose_greedily(gp, points, best, settings.batch)]
            graphs = _decode(model, points, settings.decodings, generator)
        else:
            points = torch.cat([points, _around(z, y, box, settings.starts, generator)])
            graphs = read(_decode(model, points, settings.decodings, generator)).to(device)
            graphs = graphs.index_select(_first_of_each(graphs, set(known)))
            graphs = _choose_graphs(model, gp, graphs, best, settings.batch)
            points = points[:0]  # what is known then are graphs, where they lie themselves
        decoded = len(graphs)
        origin, graphs = evaluate(graphs)
        graphs = graphs.to(device)
        score = torch.full((len(points),), worst, dtype=y.dtype, device=device)
        if len(points):
            score.scatter_reduce_(0, origin.to(device) % len(points), graphs.score, "amax")
        new = _first_of_each(graphs, known)
        graphs = graphs.index_select(new)
        z = torch.cat([z, points, model.encode_all(graphs).double()] if len(new) else [z, points])
        y = torch.cat([y, score, graphs.score])
        best = float(y.max())
        yield Round(
            number, graphs, decoded, len(origin.unique()), best, time.perf_counter() - began
        )


def _placed(score: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """The pivots to encode: all, or half of them the best and half at random."""
    if len(score) <= count:
        return torch.arange(len(score), device=score.device)
    order = score.argsort(descending=True, stable=True)
    best, rest = order[: count // 2], order[count // 2 :]
    draw = torch.randperm(len(rest), generator=generator, device=score.device)
    return torch.cat([best, rest[draw[: count - len(best)]]])


def _fit(
    z: Tensor,
    y: Tensor,
    num_pivots: int,
    settings: SearchSettings,
    number: int,
    generator: torch.Generator,
) -> Process:
    """The process of a round.

    It has to tell good graphs from slightly better ones, so most of its points are good ones. All
    that the search itself has found is among them, bad as it may be: where the process was wrong,
    it would be wrong again.
    """
    order = y[:num_pivots].argsort(descending=True, stable=True)
    top = order[: round(settings.points * settings.focus)]
    rest = order[len(top) :]
    draw = torch.randperm(len(rest), generator=generator, device=z.device)
    found = torch.arange(num_pivots, len(z), device=z.device)
    chosen = torch.cat([top, rest[draw[: settings.points - len(top)]], found])
    seeds = [settings.seed * 1009 + number]
    if settings.process == "exact":
        # Length scales change little with what is found, and fitting them is most of the work.
        return ExactGP.fit(
            z[chosen], y[chosen], seeds, fit_points=settings.points, steps=settings.steps
        )
    return CollapsedGP.fit(
        z[chosen], y[chosen], seeds, num_inducing=settings.num_inducing, steps=settings.steps
    )


def _choose_graphs(
    model: DagVAE, gp: Process, graphs: SmallDags, best: float, count: int
) -> SmallDags:
    """At most so many graphs, by the expected improvement at their own latent points."""
    if not len(graphs):
        return graphs
    points = model.encode_all(graphs).double()
    return graphs.index_select(choose_greedily(gp, points, best, min(count, len(graphs))))


def _best(z: Tensor, y: Tensor, count: int) -> Tensor:
    return z[y.argsort(descending=True, stable=True)[: max(count, 1)]]


def _starts(z: Tensor, y: Tensor, box: Box, count: int, generator: torch.Generator) -> Tensor:
    """Most near the best points, the others anywhere in the box. ``[count, D]``"""
    few = _best(z, y, count // STARTS_A_POINT)
    near = few.repeat(STARTS_A_POINT, 1)[: round(NEAR * count)]
    near = near + SPREAD * z.std(dim=0) * _noise(near.shape, z, generator)
    anywhere = _uniform((count - len(near), z.size(1)), z, generator)
    return torch.cat([near, box.low + anywhere * (box.high - box.low)])


def _around(z: Tensor, y: Tensor, box: Box, count: int, generator: torch.Generator) -> Tensor:
    """Points around the best ones, near and less near, and half as many between two of these.
    ``[count + count // 2, D]``"""
    best = _best(z, y, PARENTS)

    def draw(size: int) -> Tensor:
        return best[torch.randint(len(best), (size,), generator=generator, device=z.device)]

    low, high = SCALES
    scale = low * (high / low) ** _uniform((count, 1), z, generator)
    centre, half = draw(count), count // 2
    near = centre + scale * z.std(dim=0) * _noise(centre.shape, z, generator)
    between = torch.lerp(draw(half), draw(half), _uniform((half, 1), z, generator))
    return torch.cat([near, between]).clamp(box.low, box.high)


def _noise(shape: tuple[int, ...], like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=generator, device=like.device, dtype=like.dtype)


def _uniform(shape: tuple[int, ...], like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.rand(shape, generator=generator, device=like.device, dtype=like.dtype)


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
