from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagnn.bayesnet.constraints import Constraints
from dagnn.bayesnet.dags import is_acyclic
from dagnn.bayesnet.exact import exact_search
from dagnn.bayesnet.hill_climbing import _is_better, hill_climb
from dagnn.bayesnet.scores import FamilyScores, Score
from dagnn.bayesnet.table import read_table
from tests.bayesnet.cases import asia_path, dags, dependent_table, make_table, tables


@pytest.mark.parametrize("score", ["bic", "aic", "bdeu", "k2"])
def test_reaches_the_optimum_on_asia(score: str) -> None:
    scores = FamilyScores(read_table(asia_path()), score)  # type: ignore[arg-type]
    assert hill_climb(scores).score == pytest.approx(exact_search(scores).score, abs=1e-8)


@given(tables())
def test_a_valid_network_not_above_the_optimum(table: object) -> None:
    scores = FamilyScores(table, "k2")  # type: ignore[arg-type]
    found = hill_climb(scores, restarts=1)
    assert is_acyclic(found.adjacency[None])[0]
    assert found.score == pytest.approx(scores.score_graphs(found.adjacency[None])[0])
    assert found.score <= exact_search(scores).score + 1e-8


@given(st.data())
def test_constraints_hold(data: st.DataObject) -> None:
    table = dependent_table(5, 100, seed=data.draw(st.integers(0, 5)))
    required = data.draw(dags(5)) & (data.draw(dags(5)))
    forbidden = ~required & data.draw(dags(5))
    most = data.draw(st.integers(int(required.sum(axis=1).max()), 4))
    pairs = [[(f"v{u}", f"v{v}") for v, u in np.argwhere(m)] for m in (required, forbidden)]
    constraints = Constraints.over(table.names, require=pairs[0], forbid=pairs[1], max_parents=most)
    found = hill_climb(FamilyScores(table), constraints, restarts=2, seed=1)
    assert is_acyclic(found.adjacency[None])[0]
    assert constraints.allow(found.adjacency[None])[0]


def test_seeds_repeat_and_restarts_never_harm() -> None:
    scores = FamilyScores(dependent_table(10, 150, seed=7), "aic")
    once = hill_climb(scores, restarts=0)
    again = [hill_climb(scores, restarts=4, seed=3) for _ in range(2)]
    assert (again[0].adjacency == again[1].adjacency).all()
    assert again[0].score >= once.score


@pytest.mark.parametrize("score", ["bic", "bdeu", "k2"])
@pytest.mark.parametrize("require", [[], [("v5", "v0")]])
def test_constants_change_nothing(score: Score, require: list[tuple[str, str]]) -> None:
    """Edges with them are worth exactly nothing, and there are many of them."""
    for seed in range(8):
        table = dependent_table(5, 200, seed=seed)
        codes = np.column_stack([table.codes, np.zeros((200, 2), dtype=int)])
        wider = make_table(codes, [*table.cardinalities.tolist(), 1, 1])
        constraints = Constraints.over(wider.names, require=require)
        alone = hill_climb(FamilyScores(table, score), restarts=0)
        found = hill_climb(FamilyScores(wider, score), constraints, restarts=0)
        assert (found.adjacency[:5, :5] == alone.adjacency).all()
        assert found.adjacency[:, 5:].sum() + found.adjacency[5:].sum() == len(require)


def test_a_start_loses_its_edges_with_constants() -> None:
    table = make_table(np.column_stack([np.arange(40) % 2, np.zeros(40, dtype=int)]), [2, 1])
    start = np.array([[False, True], [False, False]])
    assert not hill_climb(FamilyScores(table), start=start, restarts=0).adjacency.any()


def test_progress() -> None:
    told: list[tuple[int, int]] = []
    scores = FamilyScores(dependent_table(3, 20, seed=0))
    hill_climb(scores, restarts=2, progress=lambda *now: told.append(now))
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_starts_where_told() -> None:
    scores = FamilyScores(dependent_table(6, 200, seed=8))
    best = exact_search(scores)
    found = hill_climb(scores, start=best.adjacency, restarts=0)
    assert found.score == pytest.approx(best.score, abs=1e-8)
    with pytest.raises(ValueError, match="start that meets the constraints"):
        hill_climb(
            scores,
            Constraints.over(scores.table.names, max_parents=0),
            start=best.adjacency,
        )


def test_sixty_columns() -> None:
    scores = FamilyScores(dependent_table(60, 100, seed=9, cardinalities=[2] * 60))
    constraints = Constraints.over(scores.table.names, max_parents=3)
    found = hill_climb(scores, constraints, restarts=0)
    empty = np.zeros((1, 60, 60), dtype=bool)
    assert found.score > scores.score_graphs(empty)[0]
    assert is_acyclic(found.adjacency[None])[0]


def test_rounding_is_in_units_of_the_score() -> None:
    small, large = -10.0, -1e9
    assert _is_better(small + 1e-9, small)
    assert not _is_better(np.nextafter(large, 0), large)
    assert _is_better(large + 1, large)
    assert _is_better(large, -np.inf)


def test_one_variable() -> None:
    found = hill_climb(FamilyScores(make_table([[0], [1]], [2])))
    assert found.adjacency.tolist() == [[False]]


def test_bad_arguments() -> None:
    scores = FamilyScores(make_table([[0], [1]], [2]))
    with pytest.raises(ValueError, match="at least 0 restarts"):
        hill_climb(scores, restarts=-1)
