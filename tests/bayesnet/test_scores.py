from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagnn.bayesnet.equivalence import equivalent
from dagnn.bayesnet.scores import FamilyScores
from dagnn.bayesnet.table import read_table
from dagnn.datasets.random_dags import random_dags
from tests.bayesnet.cases import (
    all_dags,
    asia_path,
    asia_structure,
    dags,
    dependent_table,
    make_table,
    plain_family,
    plain_score,
    tables,
)

SCORES = ("bic", "aic", "bdeu", "k2")


@pytest.mark.parametrize("score", SCORES)
@given(data=st.data())
def test_families_match_the_definition(score: str, data: st.DataObject) -> None:
    table = data.draw(tables())
    child = data.draw(st.integers(0, table.num_columns - 1))
    others = [u for u in range(table.num_columns) if u != child]
    parents = [u for u in others if data.draw(st.booleans())]
    scores = FamilyScores(table, score)
    expected = plain_family(table, score, child, parents)
    assert scores.family(child, parents) == pytest.approx(expected, abs=1e-8)
    scores.potentials()
    assert scores.family(child, parents) == pytest.approx(expected, abs=1e-8)


def test_hand_computed_cases() -> None:
    # b given a: (0: 2 and 1 times, 1: 0 and 1 times)
    table = make_table([[0, 0], [0, 0], [0, 1], [1, 1]], [2, 2])
    likelihood = 2 * math.log(2 / 3) + math.log(1 / 3)
    assert FamilyScores(table, "bic").family(1, [0]) == pytest.approx(likelihood - math.log(4))
    assert FamilyScores(table, "aic").family(1, [0]) == pytest.approx(likelihood - 2)
    # K2: (r-1)! / (N_j + r - 1)! · Π N_jk!, that is 1/4! · 2! · 1! and 1/2! · 0! · 1!
    assert FamilyScores(table, "k2").family(1, [0]) == pytest.approx(math.log(2 / 24 / 2))
    # BDeu with a = 4: a/q = 2, a/qr = 1: the same numbers as K2
    bdeu = FamilyScores(table, "bdeu", equivalent_sample_size=4)
    assert bdeu.family(1, [0]) == pytest.approx(math.log(2 / 24 / 2))
    # and with a = 1, no parents: Γ(1)/Γ(5) · (Γ(2.5)/Γ(0.5))² = (3/4)² / 24
    assert FamilyScores(table, "bdeu").family(1, []) == pytest.approx(math.log(9 / 16 / 24))


@pytest.mark.parametrize("score", SCORES)
def test_graphs_are_sums_of_families(score: str) -> None:
    table = dependent_table(4, 200, seed=1)
    graphs = all_dags(4)
    scored = FamilyScores(table, score).score_graphs(graphs)
    some = np.random.default_rng(0).choice(len(graphs), 40, replace=False)
    expected = [plain_score(table, score, graphs[i]) for i in some]
    np.testing.assert_allclose(scored[some], expected, atol=1e-8)


@pytest.mark.parametrize("score", ["bic", "aic", "bdeu"])
@given(data=st.data())
def test_equivalent_networks_have_the_same_score(score: str, data: st.DataObject) -> None:
    scores = FamilyScores(data.draw(tables(max_columns=3)), score)
    graphs = all_dags(scores.num_variables)
    scored = scores.score_graphs(graphs)
    first = data.draw(st.integers(0, len(graphs) - 1))
    same = [equivalent(graphs[first], graph) for graph in graphs]
    np.testing.assert_allclose(scored[same], scored[first], atol=1e-8)


def test_k2_tells_equivalent_networks_apart() -> None:
    scores = FamilyScores(dependent_table(2, 50, seed=0, cardinalities=[2, 3]), "k2")
    forward, backward = all_dags(2)[[1, 2]]
    first, second = scores.score_graphs(np.stack([forward, backward]))
    assert abs(first - second) > 1e-3


def test_asia() -> None:
    table = read_table(asia_path())
    scores = FamilyScores(table)
    true, without = asia_structure(table.names), asia_structure(table.names, without="AT")
    assert scores.score_graphs(np.stack([true, without])) == pytest.approx(
        [-11109.741872, -11107.293309], abs=1e-6
    )
    assert scores.node_scores(true).sum() == pytest.approx(-11109.741872, abs=1e-6)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("score", SCORES)
def test_as_pgmpy(score: str) -> None:
    structure_score = pytest.importorskip("pgmpy.structure_score", reason="pip install pgmpy")
    table = dependent_table(5, 300, seed=2)
    if score == "bdeu":
        theirs = structure_score.BDeu(table.to_frame(), equivalent_sample_size=5)
    else:
        names = {"bic": "BIC", "aic": "AIC", "k2": "K2"}
        theirs = getattr(structure_score, names[score])(table.to_frame())
    ours = FamilyScores(table, score, equivalent_sample_size=5)
    for child, parents in ((0, []), (1, [0]), (4, [1, 2]), (2, [0, 3, 4])):
        names = tuple(table.names[u] for u in parents)
        expected = theirs.local_score(table.names[child], names)
        assert ours.family(child, parents) == pytest.approx(expected, abs=1e-6)


@given(data=st.data())
def test_many_variables_are_scored_on_demand(data: st.DataObject) -> None:
    table = dependent_table(70, 40, seed=3)
    scores = FamilyScores(table)
    few = data.draw(dags(5))
    graphs = np.zeros((3, 70, 70), dtype=bool)
    graphs[1, :5, :5] = few
    graphs[2, 60:65, 60:65] = few
    scored = scores.score_graphs(graphs)
    expected = [scores.node_scores(graph).sum() for graph in graphs]
    np.testing.assert_allclose(scored, expected, atol=1e-8)
    assert scored[0] == pytest.approx(plain_score(table, "bic", graphs[0]), abs=1e-8)


def test_few_graphs_of_many_variables_score_as_many_do() -> None:
    table = dependent_table(13, 60, seed=3)
    graphs = random_dags(13, 700, order="random")
    many = FamilyScores(table).score_graphs(graphs)  # enough for potentials of all sets
    few = FamilyScores(table).score_graphs(graphs[:50])
    np.testing.assert_allclose(few, many[:50], atol=1e-8)


@pytest.mark.parametrize("score", SCORES)
def test_hundreds_of_levels_take_no_astronomic_arrays(score: str) -> None:
    generator = np.random.default_rng(0)
    table = make_table(generator.integers(0, 500, (200, 40)), [500] * 40)
    value = FamilyScores(table, score).family(0, range(1, 40))  # 500^39 configurations
    assert math.isfinite(value)


def test_fewer_sizes_leave_larger_sets_to_be_computed_later() -> None:
    table = dependent_table(6, 100, seed=4)
    scores = FamilyScores(table)
    potentials = scores.potentials(max_size=2)
    assert np.isnan(potentials[0, 0b111])
    assert not np.isnan(potentials[0, [0, 0b1, 0b11, 0b100001]]).any()
    expected = plain_family(table, "bic", 0, [1, 2, 3])
    assert scores.family(0, [1, 2, 3]) == pytest.approx(expected, abs=1e-8)
    assert not np.isnan(scores.potentials()).any()


def test_bad_arguments() -> None:
    table = dependent_table(3, 10, seed=0)
    with pytest.raises(ValueError, match="expected a score of bic, aic, bdeu, k2, got 'bci'"):
        FamilyScores(table, "bci")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="sample size > 0"):
        FamilyScores(table, "bdeu", equivalent_sample_size=0)
    with pytest.raises(ValueError, match=r"shape \[G, 3, 3\], got \[3, 3\]"):
        FamilyScores(table).score_graphs(np.zeros((3, 3), dtype=bool))
    with pytest.raises(ValueError, match="int64"):
        FamilyScores(table).score_graphs(np.zeros((1, 3, 3), dtype=np.int64))
    with pytest.raises(ValueError, match="other than the child"):
        FamilyScores(table).family(1, [1])
