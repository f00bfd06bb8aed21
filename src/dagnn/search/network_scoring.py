"""From decoded graphs to Bayesian networks with their scores."""

from __future__ import annotations

import numpy as np
import torch

from dagnn.bayesnet.constraints import Constraints
from dagnn.bayesnet.hill_climbing import hill_climb
from dagnn.bayesnet.scores import FamilyScores
from dagnn.datasets.bayesian_networks import networks_from_adjacency
from dagnn.datasets.small_dags import SmallDags
from dagnn.search.feasible import make_feasible, read_structures
from dagnn.search.latent_search import Evaluated

__all__ = ["NetworkScoring", "without_idle_edges"]

CLIMBS = 50  # at most, from the graphs of one call
TIE = 1e-9  # smaller differences of scores are rounding


class NetworkScoring:
    """Scores decoded graphs for :func:`~dagnn.search.latent_search.search_latent_space`.

    Args:
        scores: The score.
        constraints: What networks must have.
        repair: Whether a graph that is no network, or breaks a constraint, is made one; otherwise
            it is left out.
        improve: Whether hill climbing starts from the 50 best graphs, and its ends are graphs too.
        seed: Of what repairs draw.
    """

    def __init__(
        self,
        scores: FamilyScores,
        constraints: Constraints,
        *,
        repair: bool = True,
        improve: bool = True,
        seed: int = 0,
    ) -> None:
        self._scores, self._constraints = scores, constraints
        self._repair, self._improve = repair, improve
        self._generator = np.random.default_rng(seed)
        self._ends: dict[bytes, np.ndarray] = {}
        self.scored = 0  # different graphs of each call, climbs not counted

    @property
    def climbs(self) -> int:
        """The number of climbs so far."""
        return len(self._ends)

    def read(self, graphs: SmallDags) -> SmallDags:
        """The networks of decoded graphs, without scores."""
        adjacency, _ = self._networks(graphs)
        return networks_from_adjacency(
            torch.from_numpy(adjacency), torch.zeros(len(adjacency), dtype=torch.double)
        )

    def __call__(self, graphs: SmallDags) -> Evaluated:
        """The networks of decoded graphs."""
        adjacency, origin = self._networks(graphs)
        self.scored += len(np.unique(adjacency, axis=0))
        score = self._scores.score_graphs(adjacency)
        if self._improve:
            starts = _best_distinct(adjacency, score, CLIMBS)
            origin = np.concatenate([origin, origin[starts]])
            adjacency = np.concatenate([adjacency, *(self._climb(adjacency[i]) for i in starts)])
            score = self._scores.score_graphs(adjacency)
        networks = networks_from_adjacency(torch.from_numpy(adjacency), torch.from_numpy(score))
        return Evaluated(torch.from_numpy(origin), networks)

    def _networks(self, graphs: SmallDags) -> tuple[np.ndarray, np.ndarray]:
        """Networks ``[K, n, n]``, and the graph that each was. ``[K]``"""
        structures, valid = read_structures(graphs)
        if self._repair:
            repaired = make_feasible(structures, self._constraints, self._generator)
            return repaired, np.arange(len(graphs))
        origin = np.flatnonzero(valid & self._constraints.allow(structures.adjacency))
        return structures.adjacency[origin], origin

    def _climb(self, start: np.ndarray) -> np.ndarray:
        key = start.tobytes()
        if key not in self._ends:
            found = hill_climb(self._scores, self._constraints, start=start, restarts=0)
            self._ends[key] = found.adjacency
        return self._ends[key][None]


def _best_distinct(adjacency: np.ndarray, score: np.ndarray, count: int) -> np.ndarray:
    """The places of different graphs with the highest scores. int64 ``[K]``"""
    _, first = np.unique(adjacency, axis=0, return_index=True)
    best: np.ndarray = first[np.argsort(-score[first], kind="stable")][:count]
    return best


def without_idle_edges(
    adjacency: np.ndarray, scores: FamilyScores, constraints: Constraints
) -> np.ndarray:
    """A network without the edges that do not change its score, such as those of a column with one
    value. bool ``[n, n]``"""
    adjacency = adjacency.copy()
    for v, u in np.argwhere(adjacency & ~constraints.required):
        parents = np.flatnonzero(adjacency[v])
        rest = parents[parents != u]
        change = scores.family(int(v), rest.tolist()) - scores.family(int(v), parents.tolist())
        adjacency[v, u] = abs(change) > TIE
    return adjacency
