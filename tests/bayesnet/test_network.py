from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dagnn.bayesnet.exact import exact_search
from dagnn.bayesnet.network import BayesianNetwork
from dagnn.bayesnet.scores import FamilyScores
from dagnn.bayesnet.table import Table, encode_frame
from dagnn.graph.levels import CycleError
from tests.bayesnet.cases import all_dags, dependent_table, plain_family, plain_score


def learned(**options: float) -> tuple[Table, BayesianNetwork]:
    table = dependent_table(5, 400, seed=1)
    scores = FamilyScores(table)
    return table, BayesianNetwork.fit(scores, exact_search(scores).adjacency, **options)


def test_score_and_shares() -> None:
    table, network = learned()
    assert network.score() == pytest.approx(plain_score(table, "bic", network.adjacency))
    assert network.node_scores is not None
    for v, share in enumerate(network.node_scores):
        parents = np.flatnonzero(network.adjacency[v]).tolist()
        assert share == pytest.approx(plain_family(table, "bic", v, parents))
    assert f"{network.score():.3f}" in repr(network)


def test_likelihood_is_the_score_without_its_penalty() -> None:
    table, network = learned()
    parameters = sum(
        (len(levels) - 1) * math.prod(cpt.cardinalities)
        for levels, cpt in zip(network.levels, network.tables, strict=True)
    )
    expected = network.score() + parameters * math.log(table.num_rows) / 2
    assert network.log_likelihood(table.to_frame()) == pytest.approx(expected)


def test_probabilities_of_all_rows_sum_to_one() -> None:
    _, network = learned(smoothing=1.0)
    grid = pd.MultiIndex.from_product(network.levels, names=network.names).to_frame(index=False)
    assert np.exp(network.log_probability(grid)).sum() == pytest.approx(1)


def test_impossible_rows() -> None:
    frame = pd.DataFrame({"a": [0, 1], "b": [0, 1]})
    network = BayesianNetwork.fit(FamilyScores(Table.from_frame(frame)), all_dags(2)[1])
    assert network.log_likelihood(pd.DataFrame({"a": [0], "b": [1]})) == -math.inf
    assert network.log_likelihood(frame) == pytest.approx(2 * math.log(0.5))


def test_numbers_are_cut_as_they_were() -> None:
    frame = pd.DataFrame({"x": np.linspace(0, 1, 50), "y": [None, *range(49)]})
    table = Table.from_frame(frame, bins=3, missing="category")
    scores = FamilyScores(table)
    network = BayesianNetwork.fit(scores, exact_search(scores).adjacency)
    likelihood = network.log_likelihood(frame)
    assert likelihood == pytest.approx(network.log_likelihood(table.to_frame()))
    again = BayesianNetwork.from_json(network.to_json())
    assert again.variables == network.variables
    assert again.log_likelihood(frame) == pytest.approx(likelihood)


def test_samples_come_from_the_network() -> None:
    table, network = learned(smoothing=1.0)
    sample = network.sample(20_000, seed=3)
    assert list(sample.columns) == list(table.names)
    again = BayesianNetwork.fit(
        FamilyScores(Table(table.variables, encode_frame(table.variables, sample))),
        network.adjacency,
    )
    for ours, theirs in zip(network.tables, again.tables, strict=True):
        common = [c for c in ours.configurations.tolist() if c in theirs.configurations.tolist()]
        for codes in common:
            i, j = (t.configurations.tolist().index(codes) for t in (ours, theirs))
            np.testing.assert_allclose(ours.probabilities[i], theirs.probabilities[j], atol=0.08)
    pd.testing.assert_frame_equal(sample, network.sample(20_000, seed=3))
    assert not sample.equals(network.sample(20_000, seed=4))
    assert network.sample(0).shape == (0, 5)
    with pytest.raises(ValueError, match="at least 0, got -1"):
        network.sample(-1)


def test_probability_tables_have_names() -> None:
    frame = pd.DataFrame({"rain": ["no", "no", "yes"], "grass": ["dry", "wet", "wet"]})
    network = BayesianNetwork.fit(
        FamilyScores(Table.from_frame(frame)), np.array([[0, 0], [1, 0]], dtype=bool)
    )
    table = network.probabilities("grass")
    assert table.loc["no", "wet"].item() == pytest.approx(0.5)
    assert table.loc["yes", "wet"].item() == pytest.approx(1)
    assert network.probabilities("rain")["no"].item() == pytest.approx(2 / 3)
    with pytest.raises(ValueError, match="variable of rain, grass, got 'sun'"):
        network.probabilities("sun")


def test_networkx_and_confidence() -> None:
    scores = FamilyScores(dependent_table(3, 100, seed=0))
    confidence = np.array([[0, 0.3, 0], [0.6, 0, 0.1], [0, 0.2, 0]])
    chain = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0]], dtype=bool)  # no direction is certain
    graph = BayesianNetwork.fit(scores, chain, confidence=confidence).to_networkx()
    assert list(graph.nodes) == ["v0", "v1", "v2"]
    assert graph.edges["v0", "v1"]["confidence"] == pytest.approx(0.9)
    collider = np.array([[0, 0, 0], [1, 0, 1], [0, 0, 0]], dtype=bool)
    graph = BayesianNetwork.fit(scores, collider, confidence=confidence).to_networkx()
    assert graph.edges["v0", "v1"]["confidence"] == pytest.approx(0.6)
    assert graph.edges["v2", "v1"]["confidence"] == pytest.approx(0.1)
    assert "confidence" not in BayesianNetwork.fit(scores, chain).to_networkx().edges["v0", "v1"]


def test_cycles_are_refused() -> None:
    scores = FamilyScores(dependent_table(2, 10, seed=0))
    with pytest.raises(CycleError, match="v"):
        BayesianNetwork.fit(scores, np.array([[0, 1], [1, 0]], dtype=bool))


def test_networks_from_elsewhere_have_no_score() -> None:
    _, network = learned()
    with pytest.raises(ValueError, match="without a score"):
        BayesianNetwork.from_bif(network.to_bif()).score()


@pytest.mark.parametrize("suffix", [".bif", ".dot", ".json", ".png", ".svg", ".pdf"])
def test_files(tmp_path: Path, suffix: str) -> None:
    _, network = learned()
    path = tmp_path / f"network{suffix}"
    network.save(path)
    assert path.stat().st_size > 100
    assert list(tmp_path.iterdir()) == [path]


def test_files_are_complete_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, network = learned()
    with pytest.raises(ValueError, match=r"ending in .bif, .*, got 'network.xml'"):
        network.save(tmp_path / "network.xml")
    path = tmp_path / "network.json"
    path.write_text("the old one")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        network.save(path)
    assert path.read_text() == "the old one"
    assert list(tmp_path.iterdir()) == [path]
