from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from dagnn.autoencoders.vae import DagVAE
from dagnn.datasets.bayesian_networks import adjacency_of_networks
from dagnn.datasets.small_dags import SmallDags
from dagnn.search import latent_search
from dagnn.search.latent_search import Evaluated, Round, SearchSettings, search_latent_space
from dagnn.search.network_scoring import NetworkScoring
from dagnn.search.pivots import draw_pivots
from tests.search.cases import asia_scores, brief_training, no_constraints

SETTINGS = SearchSettings(
    rounds=3, batch=8, decodings=2, points=100, num_inducing=20, steps=15, starts=30
)
SPARSE = dataclasses.replace(SETTINGS, process="sparse")


def search(
    settings: SearchSettings = SETTINGS, foresee: bool = False, **options: bool
) -> tuple[SmallDags, list[Round]]:
    scores = asia_scores()
    constraints = no_constraints(scores)
    pivots = draw_pivots(scores, constraints, 200, kind="random")
    scoring = NetworkScoring(scores, constraints, **options)
    read = scoring.read if foresee else None
    model = brief_training(pivots)
    return pivots, list(search_latent_space(model, pivots, scoring, settings, read=read))


@pytest.mark.parametrize("settings", [SETTINGS, SPARSE])
@pytest.mark.parametrize("foresee", [False, True])
def test_rounds_have_new_networks_with_true_scores_and_the_best_never_falls(
    settings: SearchSettings, foresee: bool
) -> None:
    scores = asia_scores()
    pivots, rounds = search(settings, foresee, improve=False)
    assert [found.number for found in rounds] == [1, 2, 3]
    best, seen = float(pivots.score.max()), {a.tobytes() for a in np_adjacency(pivots)}
    for found in rounds:
        assert found.decoded == (8 if foresee else 16)
        assert len(found.graphs) == 8 or not foresee
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


def test_a_search_that_foresees_ends_where_all_graphs_are_known() -> None:
    scores = asia_scores(columns=["S", "L"])
    constraints = no_constraints(scores)
    pivots = draw_pivots(scores, constraints, 50, kind="random")
    assert len(pivots) == 3
    scoring = NetworkScoring(scores, constraints)
    model = brief_training(pivots, 2)
    rounds = list(search_latent_space(model, pivots, scoring, SETTINGS, read=scoring.read))
    assert [(found.decoded, len(found.graphs)) for found in rounds] == [(0, 0)] * 3
    assert scoring.scored == 0


def test_graphs_are_chosen_by_the_points_where_they_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    offered: list[torch.Tensor] = []

    def the_last(gp: object, points: torch.Tensor, best: float, count: int) -> torch.Tensor:
        offered.append(points)
        return torch.arange(len(points))[-count:]

    monkeypatch.setattr(latent_search, "choose_greedily", the_last)
    pivots, rounds = search(dataclasses.replace(SETTINGS, rounds=1), foresee=True, improve=False)
    (points,), (found,) = offered, rounds
    assert len(points) > len(found.graphs) == 8
    own = brief_training(pivots).encode_all(found.graphs).double()
    torch.testing.assert_close(points[-8:], own)


def test_a_search_in_which_nothing_is_valid_ends_in_order() -> None:
    scores = asia_scores()
    pivots = draw_pivots(scores, no_constraints(scores), 100, kind="random")

    def nothing(graphs: SmallDags) -> Evaluated:
        return Evaluated(torch.zeros(0, dtype=torch.long), graphs[:0])

    rounds = list(search_latent_space(brief_training(pivots, 2), pivots, nothing, SETTINGS))
    assert [len(found.graphs) for found in rounds] == [0, 0, 0]
    assert {found.best for found in rounds} == {float(pivots.score.max())}


@pytest.mark.parametrize(
    "wrong", [{"batch": 0}, {"rounds": -1}, {"starts": 3}, {"decodings": 0}, {"process": "x"}]
)
def test_bad_settings_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="expected"):
        dataclasses.replace(SETTINGS, **wrong)  # type: ignore[arg-type]


def np_adjacency(graphs: SmallDags) -> np.ndarray:
    return adjacency_of_networks(graphs).numpy()


def test_of_many_pivots_the_best_are_encoded_and_all_are_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(latent_search, "PLACED", 100)
    encoded = []
    original = DagVAE.encode_all

    def encode_all(self: DagVAE, graphs: SmallDags) -> torch.Tensor:
        encoded.append(graphs)
        return original(self, graphs)

    monkeypatch.setattr(DagVAE, "encode_all", encode_all)
    pivots, rounds = search(dataclasses.replace(SETTINGS, rounds=2))
    score = pivots.score.sort(descending=True).values
    placed = next(graphs.score for graphs in encoded if len(graphs) == 100)
    assert placed[:50].tolist() == score[:50].tolist()
    assert set(placed[50:].tolist()) <= set(score[50:].tolist())
    known = {a.tobytes() for a in np_adjacency(pivots)}
    for found in rounds:
        assert not known & {a.tobytes() for a in np_adjacency(found.graphs)}
        assert found.best >= score[0]
