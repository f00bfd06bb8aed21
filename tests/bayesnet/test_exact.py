from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagnn.bayesnet.constraints import Constraints
from dagnn.bayesnet.dags import is_acyclic
from dagnn.bayesnet.equivalence import equivalent
from dagnn.bayesnet.exact import exact_search
from dagnn.bayesnet.scores import FamilyScores
from dagnn.bayesnet.table import read_table
from tests.bayesnet.cases import (
    all_dags,
    asia_path,
    asia_structure,
    dags,
    dependent_table,
    make_table,
    plain_score,
    tables,
)


@pytest.mark.parametrize("score", ["bic", "aic", "bdeu", "k2"])
@given(tables())
def test_best_of_all_dags(score: str, table: object) -> None:
    scores = FamilyScores(table, score)  # type: ignore[arg-type]
    found = exact_search(scores)
    assert is_acyclic(found.adjacency[None])[0]
    assert found.score == pytest.approx(scores.score_graphs(found.adjacency[None])[0], abs=1e-9)
    best = scores.score_graphs(all_dags(scores.num_variables)).max()
    assert found.score == pytest.approx(best, abs=1e-8)


def test_best_of_all_dags_by_the_definition() -> None:
    table = dependent_table(4, 120, seed=5)
    best = max(plain_score(table, "bic", graph) for graph in all_dags(4))
    assert exact_search(FamilyScores(table)).score == pytest.approx(best, abs=1e-8)


@given(st.data())
def test_best_of_those_allowed(data: st.DataObject) -> None:
    table = dependent_table(4, 100, seed=data.draw(st.integers(0, 5)))
    required = data.draw(dags(4)) & (data.draw(dags(4)))
    forbidden = ~required & data.draw(dags(4))
    most = data.draw(st.integers(int(required.sum(axis=1).max()), 3))
    pairs = [[(f"v{u}", f"v{v}") for v, u in np.argwhere(m)] for m in (required, forbidden)]
    constraints = Constraints.over(table.names, require=pairs[0], forbid=pairs[1], max_parents=most)
    scores = FamilyScores(table)
    graphs = all_dags(4)
    best = scores.score_graphs(graphs[constraints.allow(graphs)]).max()
    found = exact_search(scores, constraints)
    assert constraints.allow(found.adjacency[None])[0]
    assert found.score == pytest.approx(best, abs=1e-8)


def test_asia_has_a_proven_optimum() -> None:
    table = read_table(asia_path())
    found = exact_search(FamilyScores(table))
    assert found.score == pytest.approx(-11107.293309, abs=1e-6)
    assert equivalent(found.adjacency, asia_structure(table.names, without="AT"))


def test_twelve_variables_with_few_parents() -> None:
    scores = FamilyScores(dependent_table(12, 200, seed=6))
    constraints = Constraints.over(scores.table.names, max_parents=2)
    found = exact_search(scores, constraints)
    assert constraints.allow(found.adjacency[None])[0]
    assert found.score <= exact_search(scores).score


def test_one_variable() -> None:
    found = exact_search(FamilyScores(make_table([[0], [1]], [2])))
    assert found.adjacency.tolist() == [[False]]


def test_constant_columns_get_no_edges() -> None:
    table = make_table([[0, 0, 0], [1, 0, 1]] * 20, [2, 1, 2])
    adjacency = exact_search(FamilyScores(table)).adjacency
    assert not adjacency[1].any()
    assert not adjacency[:, 1].any()


def test_too_many_variables_are_refused() -> None:
    scores = FamilyScores(dependent_table(21, 5, seed=0))
    with pytest.raises(ValueError, match="at most 20 variables for the exact search, got 21"):
        exact_search(scores)
    with pytest.raises(ValueError, match="at most 20 variables for all sets, got 21"):
        scores.potentials()


def test_progress() -> None:
    told: list[tuple[int, int]] = []
    exact_search(
        FamilyScores(dependent_table(7, 20, seed=0)), progress=lambda *now: told.append(now)
    )
    assert told == [(i, 64) for i in range(1, 65)]
