"""Graphs from which a search for a Bayesian network starts."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
import torch

from dagnn.bayesnet.constraints import Constraints
from dagnn.bayesnet.hill_climbing import hill_climb
from dagnn.bayesnet.scores import FamilyScores, Progress
from dagnn.datasets.bayesian_networks import networks_from_adjacency
from dagnn.datasets.random_dags import Order, random_dags
from dagnn.datasets.small_dags import SmallDags
from dagnn.search.feasible import Structures, make_feasible

__all__ = ["Pivots", "draw_pivots"]

Pivots = Literal["fixed", "random", "mixed"]

CLIMBS = 20  # hill climbs, each from a random network, whose ends mixed pivots have
SHARE = 0.5  # of mixed pivots that are changed from those ends


def draw_pivots(
    scores: FamilyScores,
    constraints: Constraints,
    count: int,
    *,
    kind: Pivots = "mixed",
    seed: int = 0,
    progress: Progress | None = None,
) -> SmallDags:
    """Different structures that meet constraints, with their scores.

    Args:
        scores: The score.
        constraints: What networks must have.
        count: How many to draw; of few variables there may be fewer different ones.
        kind: ``"fixed"``: random networks whose edges go along the columns, as in the paper.
            ``"random"``: along an order drawn for each. ``"mixed"``: half of them so, the others
            the ends of hill climbs from random networks, with random edges changed.
        seed: Of all that is drawn.
        progress: Called with the number of climbs done, and of all.
    """
    if kind not in get_args(Pivots):
        raise ValueError(f"expected pivots {', '.join(get_args(Pivots))}, got {kind!r}")
    if count < 1:
        raise ValueError(f"expected at least 1 pivot, got {count}")
    generator = np.random.default_rng(seed)
    n = scores.num_variables
    order: Order = "fixed" if kind == "fixed" else "random"
    drawn = random_dags(n, count, order=order, seed=seed)
    drawn = make_feasible(Structures(drawn, _ranks(drawn)), constraints, generator)
    if kind == "mixed":
        ends = _climb_from(drawn[:CLIMBS], scores, constraints, progress)
        changed = _change(ends, int(count * SHARE) - len(ends), constraints, generator)
        drawn = np.concatenate([ends, changed, drawn])[:count]
    drawn = np.unique(drawn, axis=0)
    return networks_from_adjacency(
        torch.from_numpy(drawn), torch.from_numpy(scores.score_graphs(drawn))
    )


def _climb_from(
    starts: np.ndarray,
    scores: FamilyScores,
    constraints: Constraints,
    progress: Progress | None,
) -> np.ndarray:
    ends = []
    for done, start in enumerate(starts, start=1):
        ends.append(hill_climb(scores, constraints, start=start, restarts=0).adjacency)
        if progress is not None:
            progress(done, len(starts))
    return np.stack(ends)


def _change(
    structures: np.ndarray, count: int, constraints: Constraints, generator: np.random.Generator
) -> np.ndarray:
    """Structures with pairs of variables joined, parted or turned, about one to four in each."""
    count, n = max(count, 0), structures.shape[1]
    base = structures[generator.integers(len(structures), size=count)]
    rank = _ranks(base)
    # An order in which some variables have moved, so that edges can also be turned.
    moved = rank + n * generator.normal(size=rank.shape) * (generator.random(rank.shape) < 1 / n)
    rank = moved.argsort(axis=1).argsort(axis=1)
    joined = base | base.transpose(0, 2, 1)
    changes = generator.integers(1, 5, size=(count, 1, 1))
    toggled = generator.random(base.shape) < changes * 2 / max(n * (n - 1), 1)
    forward = rank[:, :, None] > rank[:, None, :]
    return make_feasible(Structures((joined ^ toggled) & forward, rank), constraints, generator)


def _ranks(adjacency: np.ndarray) -> np.ndarray:
    """The place of each variable in a topological order. int64 ``[G, n]``"""
    count, n, _ = adjacency.shape
    level = np.zeros((count, n), dtype=np.int64)
    for _ in range(n):
        level = np.where(adjacency, level[:, None, :] + 1, 0).max(axis=2, initial=0)
    return level.argsort(axis=1, kind="stable").argsort(axis=1)
