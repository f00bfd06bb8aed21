from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from dagnn.datasets.bayesian_networks import adjacency_of_networks
from dagnn.datasets.small_dags import SmallDags
from dagnn.search.latent_search import Evaluated, Round, SearchSettings, search_latent_space
from dagnn.search.network_scoring import NetworkScoring
from dagnn.search.pivots import draw_pivots
from tests.search.cases import asia_scores, brief_training, no_constraints

SETTINGS = SearchSettings(
    rounds=3, batch=8, decodings=2, points=100, num_inducing=20, steps=15, starts=30
)


def search(settings: SearchSettings = SETTINGS, **options: bool) -> tuple[SmallDags, list[Round]]:
    scores = asia_scores()
    constraints = no_constraints(scores)
    pivots = draw_pivots(scores, constraints, 200, kind="random")
    scoring = NetworkScoring(scores, constraints, **options)
    return pivots, list(search_latent_space(brief_training(pivots), pivots, scoring, settings))


def test_rounds_have_new_networks_with_true_scores_and_the_best_never_falls() -> None:
    scores = asia_scores()
    pivots, rounds = search(improve=False)
    assert [found.number for found in rounds] == [1, 2, 3]
    best, seen = float(pivots.score.max()), {a.tobytes() for a in np_adjacency(pivots)}
    for found in rounds:
        assert found.decoded == 16
        adjacency = np_adjacency(found.graphs)
        assert np.allclose(scores.score_graphs(adjacency), found.graphs.score.numpy())
        keys = [a.tobytes() for a in adjacency]
        assert len(set(keys)) == len(keys)
        assert not seen & set(keys)
        seen |= set(keys)
        best = max([best, *found.graphs.score.tolist()])
        assert found.best == best


def test_the_search_follows_from_the_seed() -> None:
    settings = dataclasses.replace(SETTINGS, rounds=1)
    first, again = search(settings)[1], search(settings)[1]
    for a, b in zip(first, again, strict=True):
        assert (a.graphs.adjacency == b.graphs.adjacency).all()
    other = search(dataclasses.replace(settings, seed=1))[1]
    assert any(
        a.graphs.adjacency.shape != b.graphs.adjacency.shape
        or not bool((a.graphs.adjacency == b.graphs.adjacency).all())
        for a, b in zip(first, other, strict=True)
    )


def test_a_search_in_which_nothing_is_valid_ends_in_order() -> None:
    scores = asia_scores()
    pivots = draw_pivots(scores, no_constraints(scores), 100, kind="random")

    def nothing(graphs: SmallDags) -> Evaluated:
        return Evaluated(torch.zeros(0, dtype=torch.long), graphs[:0])

    rounds = list(search_latent_space(brief_training(pivots, 2), pivots, nothing, SETTINGS))
    assert [len(found.graphs) for found in rounds] == [0, 0, 0]
    assert {found.best for found in rounds} == {float(pivots.score.max())}


@pytest.mark.parametrize("wrong", [{"batch": 0}, {"rounds": -1}, {"starts": 3}, {"decodings": 0}])
def test_bad_settings_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="expected"):
        dataclasses.replace(SETTINGS, **wrong)  # type: ignore[arg-type]


def np_adjacency(graphs: SmallDags) -> np.ndarray:
    return adjacency_of_networks(graphs).numpy()
