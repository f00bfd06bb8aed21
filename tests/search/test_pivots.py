from __future__ import annotations

import numpy as np
import pytest

from dagnn.bayesnet.constraints import Constraints
from dagnn.bayesnet.exact import exact_search
from dagnn.datasets.bayesian_networks import adjacency_of_networks
from dagnn.search.pivots import draw_pivots
from tests.search.cases import asia_scores, no_constraints


@pytest.mark.parametrize("kind", ["fixed", "random", "mixed"])
def test_pivots_are_different_networks_with_their_scores(kind: str) -> None:
    scores = asia_scores()
    pivots = draw_pivots(scores, no_constraints(scores), 300, kind=kind, seed=3)  # type: ignore[arg-type]
    pivots.check()
    adjacency = adjacency_of_networks(pivots).numpy()
    assert 200 < len(np.unique(adjacency, axis=0)) == len(pivots) <= 300
    assert np.allclose(scores.score_graphs(adjacency), pivots.score.numpy())
    backward = adjacency[:, np.triu_indices(5, 1)[0], np.triu_indices(5, 1)[1]].any()
    assert backward == (kind != "fixed")


def test_mixed_pivots_have_good_ones() -> None:
    scores = asia_scores()
    mixed = draw_pivots(scores, no_constraints(scores), 300, kind="mixed")
    drawn = draw_pivots(scores, no_constraints(scores), 300, kind="random")
    assert mixed.score.median() > drawn.score.median()
    assert float(mixed.score.max()) <= exact_search(scores).score + 1e-9


def test_pivots_meet_constraints_and_follow_from_the_seed() -> None:
    scores = asia_scores()
    constraints = Constraints.over(
        scores.table.names, require=["X:S"], forbid=["S:L", "L:S"], max_parents=2
    )
    first = draw_pivots(scores, constraints, 200, seed=5)
    assert constraints.allow(adjacency_of_networks(first).numpy()).all()
    again = draw_pivots(scores, constraints, 200, seed=5)
    assert (first.adjacency == again.adjacency).all()


def test_few_variables_have_few_pivots() -> None:
    scores = asia_scores(columns=["S", "L"])
    assert len(draw_pivots(scores, no_constraints(scores), 500)) == 3
    scores = asia_scores(columns=["S"])
    assert len(draw_pivots(scores, no_constraints(scores), 500)) == 1


def test_bad_arguments_are_refused() -> None:
    scores = asia_scores()
    with pytest.raises(ValueError, match="expected pivots fixed, random, mixed, got 'good'"):
        draw_pivots(scores, no_constraints(scores), 5, kind="good")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least 1 pivot"):
        draw_pivots(scores, no_constraints(scores), 0)
