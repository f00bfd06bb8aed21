from __future__ import annotations

import numpy as np
import pytest

from dagnn.bayesnet.bif import parse_bif
from dagnn.bayesnet.cpt import Cpt
from dagnn.bayesnet.exact import exact_search
from dagnn.bayesnet.network import BayesianNetwork
from dagnn.bayesnet.scores import FamilyScores
from dagnn.bayesnet.table import Table
from dagnn.bayesnet.variables import Variable
from tests.bayesnet.cases import dependent_table, make_table


def awkward_network() -> BayesianNetwork:
    """Names and levels that no BIF reader would take as they are."""
    plain = dependent_table(5, 200, seed=2, cardinalities=[2, 3, 2, 2, 3])
    names = ("a b", "A_b", "größe; {x}", "probability", "日本")
    levels = (("ja", "nein"), ("<= 1", "1 to 2", "> 2"), ("x,y", "x y"), ("0", "1"), ("", "é", "E"))
    scores = FamilyScores(Table(tuple(map(Variable, names, levels)), plain.codes), "aic")
    return BayesianNetwork.fit(scores, exact_search(scores).adjacency)


def assert_same(first: BayesianNetwork, second: BayesianNetwork) -> None:
    assert first.names == second.names
    assert first.levels == second.levels
    assert (first.adjacency == second.adjacency).all()
    grid = np.indices([len(level) for level in first.levels]).reshape(len(first.levels), -1).T
    for v, (ours, theirs) in enumerate(zip(first.tables, second.tables, strict=True)):
        np.testing.assert_allclose(
            ours.look_up(grid, grid[:, v]), theirs.look_up(grid, grid[:, v]), atol=1e-12
        )


def test_there_and_back() -> None:
    network = awkward_network()
    assert network.adjacency.any()
    assert_same(BayesianNetwork.from_bif(network.to_bif()), network)


def test_words_are_plain_and_different() -> None:
    text = awkward_network().to_bif()
    assert text.isascii()
    assert "variable a_b {" in text
    assert "variable A_b_2 {" in text  # readers may ignore case
    assert "{ 0, 1 }" in text


def test_unseen_configurations_are_even() -> None:
    table = make_table([[0, 0], [0, 1]], [3, 2])
    network = BayesianNetwork.fit(FamilyScores(table), np.array([[0, 0], [1, 0]], dtype=bool))
    assert "  (s2) 0.5, 0.5;" in network.to_bif()


@pytest.mark.filterwarnings("ignore")
def test_pgmpy_reads_it() -> None:
    readwrite = pytest.importorskip("pgmpy.readwrite", reason="pip install pgmpy")
    network = awkward_network()
    model = readwrite.BIFReader(string=network.to_bif()).get_model()
    assert model.check_model()
    words = ["a_b", "A_b_2", "gr__e___x_", "probability", "__"]
    assert set(model.nodes) == set(words)
    expected = {
        (words[network.names.index(u)], words[network.names.index(v)]) for u, v in network.edges
    }
    assert set(model.edges) == expected
    for v, word in enumerate(words):
        theirs = model.get_cpds(word)
        ours = network.tables[v]
        for codes, chances in zip(ours.configurations, ours.probabilities, strict=True):
            place = tuple(
                codes[ours.parents.index(words.index(parent))] for parent in theirs.variables[1:]
            )
            np.testing.assert_allclose(theirs.values[(slice(None), *place)], chances)


def test_reads_what_others_write() -> None:
    names, levels, tables = parse_bif(
        """// a comment
        network "Rain" { property by hand; }
        variable "Rain" { type discrete [2] { "yes" "no" }; property position = (1, 2); }
        variable Grass { type discrete[ 2 ] { wet, dry }; }
        probability ( "Rain" ) { table 0.2 0.8; }
        probability ( Grass | Rain ) { (yes) 0.9, 0.1; /* and */ (no) 0.25, 0.75; }
        """
    )
    assert names == ("Rain", "Grass")
    assert levels == (("yes", "no"), ("wet", "dry"))
    np.testing.assert_allclose(tables[0].probabilities, [[0.2, 0.8]])
    assert tables[1].parents == (0,)
    np.testing.assert_allclose(tables[1].probabilities, [[0.9, 0.1], [0.25, 0.75]])


VARIABLE = "variable A { type discrete [ 2 ] { x, y }; }\n"
FAMILY = (
    VARIABLE
    + VARIABLE.replace("A", "B")
    + "probability ( A ) {{ table 0.5, 0.5; }} probability ( B | A ) {{ {} }}"
).replace("{ type", "{{ type").replace("{ x, y }; }", "{{ x, y }}; }}")  # fmt: skip


def test_a_default_is_for_what_has_no_row() -> None:
    *_, tables = parse_bif(FAMILY.format("default 0.25, 0.75; (y) 1, 0;"))
    found = dict(zip(tables[1].configurations[:, 0], tables[1].probabilities.tolist(), strict=True))
    assert found == {0: [0.25, 0.75], 1: [1.0, 0.0]}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "got no variable"),
        ("variable A { type continuous; }", "one discrete type for the variable A"),
        ("variable A { type discrete [ 3 ] { x, y }; }", "expected 3 levels of A, got 2"),
        (VARIABLE + VARIABLE, "one discrete type for the variable A"),
        (VARIABLE, "got none for A"),
        (VARIABLE + "probability ( B ) { table 1; }", r"got probability \(B\)"),
        (VARIABLE + "probability ( A ) { table 0.5; }", "expected 2 probabilities of A"),
        (VARIABLE + "probability ( A ) { table 0.5, 0.1; }", "that sum to 1"),
        (VARIABLE + "probability ( A ) { table x, y; }", "and numbers"),
        (VARIABLE + "probability ( A ) { (x) 0.5, 0.5; }", "a level of each parent of A"),
        (VARIABLE + "probability ( A ) { }", "expected probabilities of A"),
        (VARIABLE + "probability ( A ) { table nan, 0.5; }", "that sum to 1"),
        (VARIABLE + "probability ( A ) { tabel 0.5, 0.5; }", "table, default or .* 'tabel 0.5"),
        (VARIABLE + "probability ( A ) { table 0.5, 0.5; table 1, 0; }", "got table again"),
        (FAMILY.format("(x) 0.5, 0.5; (x) 0.1, 0.9; (y) 1, 0;"), r"got \(x\) again"),
        (FAMILY.format("default 0.5, 0.5; default 1, 0;"), "got default again"),
        (FAMILY.format("(x) 0.5, 0.5;"), "each of 2 configurations .*default, got 1"),
        (FAMILY.format("default 0.5;"), "expected 2 probabilities of B"),
        (VARIABLE + "probability ( A ) { table 1, 0; } utility U { }", "got 'utility U"),
        (VARIABLE.replace("x, y", "x, x"), "2 different levels of A"),
        (VARIABLE.replace("};", "}; property dagnn = a,b;"), "2 different levels of A"),
        (VARIABLE.replace("};", "}; property dagnn = a,b,b;"), "2 different levels of A"),
        (
            VARIABLE + VARIABLE.replace("A", "B").replace("};", "}; property dagnn = A,x,y;"),
            "expected different names, got A, A",
        ),
    ],
)
def test_bad_texts(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_bif(text)


def test_tables_beyond_the_format_are_refused() -> None:
    table = make_table([[0] * 6], [60] * 6)
    adjacency = np.zeros((6, 6), dtype=bool)
    adjacency[0, 1:] = True
    network = BayesianNetwork.fit(FamilyScores(table), adjacency)
    assert isinstance(network.tables[0], Cpt)
    with pytest.raises(ValueError, match="46,656,000,000 for v0; limit its parents"):
        network.to_bif()
