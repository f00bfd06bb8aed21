"""Hill climbing over DAGs with a tabu list and restarts: the baseline of structure learning."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from dagnn.bayesnet.constraints import Constraints
from dagnn.bayesnet.dags import ancestors, check_dag, parent_bits
from dagnn.bayesnet.exact import SearchResult
from dagnn.bayesnet.scores import FamilyScores, Progress

__all__ = ["hill_climb"]

TABU_LENGTH = 100  # networks not to be visited again
PATIENCE = 30  # steps without a new best network before a climb ends
GAIN = 1e-12  # of the score; less is rounding, for which equivalent networks would take turns


def hill_climb(
    scores: FamilyScores,
    constraints: Constraints | None = None,
    *,
    start: np.ndarray | None = None,
    restarts: int = 20,
    seed: int = 0,
    progress: Progress | None = None,
) -> SearchResult:
    """Add, remove and reverse edges, always the best that is not tabu, also downhill for a while.

    A restart climbs from the best network so far, after random changes to it.

    Args:
        scores: The score to climb.
        constraints: What networks must have.
        start: The first network; by default that of the required edges alone. bool ``[n, n]``
        restarts: How often to start again.
        seed: For the random changes.
        progress: Called with the number of climbs done, and of all.
    """
    if restarts < 0:
        raise ValueError(f"expected at least 0 restarts, got {restarts}")
    names = scores.table.names
    if constraints is None:
        constraints = Constraints.over(names)
    first = constraints.required.copy() if start is None else check_dag(start, names).copy()
    if not constraints.allow(first[None])[0]:
        raise ValueError("expected a start that meets the constraints, got one that does not")
    constraints = _without_constants(constraints, scores.table.cardinalities)
    first &= ~constraints.forbidden
    generator = np.random.default_rng(seed)
    best = SearchResult(first, -np.inf)
    for climb in range(1 + restarts):
        begin = first if climb == 0 else _shake(best.adjacency, constraints, generator)
        found = _climb(scores, constraints, begin)
        if _is_better(found.score, best.score):
            best = found
        if progress is not None:
            progress(climb + 1, 1 + restarts)
    return best


def _without_constants(constraints: Constraints, cardinalities: np.ndarray) -> Constraints:
    """Leave out edges with constants, unless they are required: all are worth exactly nothing, and
    a climb that may not go back would spend its patience on them."""
    constant = cardinalities == 1
    worthless = (constant[:, None] | constant[None, :]) & ~constraints.required
    np.fill_diagonal(worthless, False)
    return replace(constraints, forbidden=constraints.forbidden | worthless)


def _climb(scores: FamilyScores, constraints: Constraints, adjacency: np.ndarray) -> SearchResult:
    gain = np.zeros(adjacency.shape)  # of adding or removing u → v, at [v, u]
    for v in range(len(adjacency)):
        gain[v] = _gains(scores, constraints, adjacency, v)
    score = float(scores.node_scores(adjacency).sum())
    best = SearchResult(adjacency.copy(), score)
    visited = deque([adjacency.tobytes()], maxlen=TABU_LENGTH)
    since_best = 0
    while since_best < PATIENCE:
        step = next(_untried_steps(adjacency, gain, constraints, visited), None)
        if step is None:
            break
        adjacency, change, children = step
        score += change
        visited.append(adjacency.tobytes())
        for v in children:
            gain[v] = _gains(scores, constraints, adjacency, v)
        since_best += 1
        if _is_better(score, best.score):
            best, since_best = SearchResult(adjacency.copy(), score), 0
    return SearchResult(best.adjacency, float(scores.node_scores(best.adjacency).sum()))


def _is_better(score: float, best: float) -> bool:
    return score > best + GAIN * max(abs(score), 1)


def _gains(
    scores: FamilyScores, constraints: Constraints, adjacency: np.ndarray, v: int
) -> np.ndarray:
    """What it brings to toggle each parent of v; −∞ where that is not allowed. ``[n]``"""
    parents = parent_bits(adjacency[v : v + 1])[0]
    now = scores.family_of_bits(v, parents)
    full = parents.bit_count() >= constraints.max_parents
    fixed = constraints.required[v] | (constraints.forbidden[v] & ~adjacency[v])
    fixed |= ~adjacency[v] & full
    fixed[v] = True
    return np.array(
        [
            -np.inf if fixed[u] else scores.family_of_bits(v, parents ^ (1 << u)) - now
            for u in range(len(adjacency))
        ]
    )


def _legal_steps(adjacency: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Which edges u → v may be added, removed and reversed without a cycle. ``[n, n]`` each"""
    reached = ancestors(adjacency)
    add = ~adjacency & ~reached.T
    np.fill_diagonal(add, False)
    detour = (adjacency.astype(np.float32) @ reached.astype(np.float32)) > 0  # u ⇝ p → v
    return add, adjacency, adjacency & ~detour


def _untried_steps(
    adjacency: np.ndarray,
    gain: np.ndarray,
    constraints: Constraints,
    visited: deque[bytes],
) -> Iterator[tuple[np.ndarray, float, tuple[int, ...]]]:
    """Steps to networks that are not tabu, best first: the network, the gain, changed children."""
    add, remove, reverse = _legal_steps(adjacency)
    toggled = np.where(add | remove, gain, -np.inf)
    reversed_ = np.where(reverse, gain + gain.T, -np.inf)
    both = np.concatenate([toggled.ravel(), reversed_.ravel()])
    for step in np.argsort(-both, kind="stable"):
        change = float(both[step])
        if change == -np.inf:
            return
        flip, place = divmod(int(step), adjacency.size)
        v, u = divmod(place, len(adjacency))
        after = adjacency.copy()
        after[v, u] = not after[v, u]
        if flip:
            after[u, v] = True
        if after.tobytes() not in visited:
            yield after, change, (v, u) if flip else (v,)


def _shake(
    adjacency: np.ndarray, constraints: Constraints, generator: np.random.Generator
) -> np.ndarray:
    """The network after as many random legal steps as it has nodes."""
    adjacency = adjacency.copy()
    for _ in range(len(adjacency)):
        add, remove, reverse = _legal_steps(adjacency)
        room = adjacency.sum(axis=1) < constraints.max_parents  # [n]
        add = add & ~constraints.forbidden & room[:, None]
        remove = remove & ~constraints.required
        reverse = reverse & remove & ~constraints.forbidden.T & room[None, :]
        steps = np.argwhere(np.stack([add | remove, reverse]))
        if not len(steps):
            return adjacency
        flip, v, u = generator.choice(steps)
        adjacency[v, u] = not adjacency[v, u]
        adjacency[u, v] |= bool(flip)
    return adjacency
