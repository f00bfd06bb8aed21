"""How sure the edges of a network are, by learning again from resampled tables."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dagnn.bayesnet.equivalence import cpdag
from dagnn.bayesnet.exact import SearchResult
from dagnn.bayesnet.scores import FamilyScores, Progress

__all__ = ["bootstrap_confidence"]


def bootstrap_confidence(
    scores: FamilyScores,
    search: Callable[[FamilyScores], SearchResult],
    *,
    samples: int = 100,
    seed: int = 0,
    progress: Progress | None = None,
) -> np.ndarray:
    """The share of bootstrap samples in which each edge is found.

    What counts is the class of the network found in a sample: an edge that has no direction there
    counts half in each. So ``confidence + confidence.T`` is the share of samples in which two
    variables are joined, in whatever direction.

    Args:
        scores: The score and the table to resample.
        search: What finds a network, such as :func:`~dagnn.bayesnet.exact.exact_search`.
        samples: How many tables to draw.
        seed: For the drawing.
        progress: Called with the number of samples done, and of all.

    Returns:
        float64 ``[n, n]``, at ``[v, u]`` for u → v.
    """
    if samples < 1:
        raise ValueError(f"expected at least 1 sample, got {samples}")
    generator = np.random.default_rng(seed)
    n = scores.num_variables
    total = np.zeros((n, n))
    for done in range(1, samples + 1):
        table = scores.table.resample(generator)
        again = FamilyScores(
            table, scores.name, equivalent_sample_size=scores.equivalent_sample_size
        )
        directed, undirected = cpdag(search(again).adjacency)
        total += directed + 0.5 * undirected
        if progress is not None:
            progress(done, samples)
    return total / samples
