from __future__ import annotations

import dataclasses
import json
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from dagnn.bayesnet.constraints import Constraints
from dagnn.bayesnet.exact import exact_search
from dagnn.bayesnet.network import BayesianNetwork
from dagnn.bayesnet.scores import FamilyScores
from dagnn.bayesnet.table import Table
from dagnn.datasets.bayesian_networks import networks_from_adjacency, sample_asia
from dagnn.graph.levels import CycleError
from dagnn.search.learn_network import learn_network
from dagnn.search.learning_report import LearnedNetwork, LearningReport, RoundSummary
from dagnn.search.learning_settings import LearningSettings
from dagnn.search.pivot_autoencoder import train_on_pivots
from dagnn.search.pivots import draw_pivots

SMALL = LearningSettings(num_pivots=60, epochs=1, hidden_channels=8, latent_channels=4)
FRAME = sample_asia(400, seed=1)[["S", "L", "B", "E", "X"]]


def learn(frame: pd.DataFrame = FRAME, **options: object) -> LearnedNetwork:
    options = {"rounds": 1, "batch": 4, "bootstrap": 2, "settings": SMALL, **options}
    return learn_network(frame, device="cpu", **options)  # type: ignore[arg-type]


@cache
def learned() -> LearnedNetwork:
    return learn(rounds=2)


def report_of(network: LearnedNetwork) -> LearningReport:
    assert network.report is not None
    return network.report


def test_the_network_is_the_best_that_was_seen() -> None:
    network, report = learned(), report_of(learned())
    assert isinstance(network, BayesianNetwork)
    scores = FamilyScores(Table.from_frame(FRAME))
    assert network.score() == pytest.approx(scores.score_graphs(network.adjacency[None])[0])
    assert network.score() == pytest.approx(report.found)
    assert report.found >= report.best_pivot
    assert report.exact == pytest.approx(exact_search(scores).score)
    assert report.gap is not None
    assert report.gap >= 0
    assert [summary.number for summary in report.rounds] == [1, 2]
    assert report.rounds[-1].best == report.found
    assert network.confidence is not None
    json.dumps(report.to_dict(), allow_nan=False)
    assert repr(network).startswith("BayesianNetwork(5 variables, ")


def test_the_same_seed_gives_the_same_network() -> None:
    assert (learn(rounds=2).adjacency == learned().adjacency).all()


def test_rounds_are_told_as_they_come() -> None:
    told: list[RoundSummary] = []
    report = report_of(learn(on_round=told.append))
    assert tuple(told) == report.rounds


def test_constraints_hold() -> None:
    network = learn(require=["X:S"], forbid=["S:B", "B:S"], max_parents=1)
    assert ("X", "S") in network.edges
    assert not {("S", "B"), ("B", "S")} & set(network.edges)
    assert network.adjacency.sum(axis=1).max() <= 1
    assert report_of(network).gap is not None


def test_the_paper_takes_graphs_as_they_are() -> None:
    paper = LearningSettings.paper()
    assert (paper.pivots, paper.decodings, paper.repair, paper.improve) == (
        "fixed",
        1,
        False,
        False,
    )
    sizes = {"num_pivots": 60, "epochs": 1, "hidden_channels": 8, "latent_channels": 4}
    report = report_of(learn(settings=dataclasses.replace(paper, **sizes)))  # type: ignore[arg-type]
    assert report.climbs == 0


@pytest.mark.parametrize("columns", [["S"], ["S", "B"]])
def test_one_and_two_columns(columns: list[str]) -> None:
    network = learn(FRAME[columns])
    report = report_of(network)
    assert report.gap == 0
    assert bool(report.rounds) == (len(columns) > 1)


def test_constraints_that_leave_one_network() -> None:
    network = learn(FRAME[["S", "B"]], require=["S:B"])
    assert network.edges == [("S", "B")]
    assert report_of(network).rounds == ()
    assert "no search: there is one pivot alone" in report_of(network).notes
    forced = "required, so in every network and sample, whatever the data say: S → B"
    assert forced in report_of(network).notes


def test_constant_columns_have_no_edges() -> None:
    network = learn(FRAME.assign(same="x"))
    assert not any("same" in edge for edge in network.edges)
    assert any("constant" in note for note in report_of(network).notes)
    alone = learn()
    assert network.confidence is not None
    assert alone.confidence is not None
    rest = [network.names.index(name) for name in alone.names]
    assert (network.confidence[np.ix_(rest, rest)] == alone.confidence).all()


def test_many_columns_are_searched_without_the_exact_part() -> None:
    generator = np.random.default_rng(0)
    values = generator.integers(0, 2, size=(60, 22)).astype(str)
    frame = pd.DataFrame(values, columns=[f"column {i}" for i in range(22)])
    report = report_of(learn(frame, batch=2, bootstrap=0))
    assert report.exact is report.gap is None
    assert any("no exact search" in note for note in report.notes)
    assert "not known" in report.verdict()
    assert len(report.rounds) == 1


def test_hard_tables() -> None:
    frame = pd.DataFrame(
        {
            "name with spaces": [f"level {i}" for i in range(150)] * 2,
            "größe": [0.5 * i for i in range(299)] + [None],
            "x": ["a", "b", "c"] * 100,
        }
    )
    with pytest.raises(ValueError, match="größe"):
        learn(frame)
    network = learn(frame, bins=3, missing="category")
    assert network.names == ("name with spaces", "größe", "x")
    report = report_of(learn(frame, bins=3))
    assert any("dropped 1 of 300 rows" in note for note in report.notes)


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="required or forbidden"):
        learn(require=["S:L"], forbid=["S:L"])
    with pytest.raises(CycleError, match="required edges"):
        learn(require=["S:L", "L:S"])
    with pytest.raises(ValueError, match="expected a score"):
        learn(score="likelihood")
    with pytest.raises(ValueError, match="rounds and bootstrap"):
        learn(rounds=-1)
    with pytest.raises(ValueError, match="expected device"):
        learn_network(FRAME, device="gpu")
    with pytest.raises(ValueError, match="more than once"):
        learn(pd.DataFrame([["a", "b"]], columns=["x", "x"]))


def test_training_can_be_kept(tmp_path: Path) -> None:
    learn(folder=tmp_path / "run")
    assert (tmp_path / "run" / "last.ckpt").exists()
    with pytest.raises(ValueError, match=r"another config: .*data\.pivots"):
        learn(FRAME[::-1].assign(S=FRAME["X"]), folder=tmp_path / "run")


def test_a_trained_autoencoder_and_its_graphs_serve_every_seed(tmp_path: Path) -> None:
    scores = FamilyScores(Table.from_frame(FRAME))
    pivots = draw_pivots(scores, Constraints.over(FRAME.columns), 60, kind="fixed")
    train_on_pivots(pivots, SMALL.sized(5, False), folder=tmp_path)
    worthless = dataclasses.replace(pivots, score=pivots.score - 1e6)
    for seed in (0, 1):
        report = report_of(learn(seed=seed, autoencoder=tmp_path, graphs=worthless))
        assert "autoencoder" not in report.seconds
        assert report.pivots == len(pivots)
        assert report.best_pivot == pytest.approx(float(pivots.score.max()))  # scored anew
        assert report.settings["autoencoder"] == str(tmp_path)
        assert report.settings["pivots"] == "given"
        assert "epochs" not in report.settings  # of a training that was not


def test_an_autoencoder_of_other_networks_is_refused_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = FamilyScores(Table.from_frame(FRAME))
    pivots = draw_pivots(scores, Constraints.over(FRAME.columns), 20, kind="fixed")
    train_on_pivots(pivots, SMALL.sized(5, False), folder=tmp_path)
    for work in ("exact_search", "hill_climb", "draw_pivots"):
        monkeypatch.delattr(f"dagnn.search.learn_network.{work}")
    with pytest.raises(ValueError, match="of 3 variables, got one of networks of 5"):
        learn(FRAME[["S", "L", "B"]], autoencoder=tmp_path)


def test_a_single_pivot_is_told_as_one(capsys: pytest.CaptureFixture[str]) -> None:
    settings = dataclasses.replace(SMALL, num_pivots=1)
    learn(FRAME[["S"]], settings=settings, bootstrap=0, progress=True)
    assert "\n1 pivot, BIC" in capsys.readouterr().err


def test_graphs_that_do_not_fit_are_refused() -> None:
    scores = FamilyScores(Table.from_frame(FRAME[["S", "L", "B"]]))
    pivots = draw_pivots(scores, Constraints.over(["S", "L", "B"]), 10, kind="fixed")
    with pytest.raises(ValueError, match="the table's 5 columns, got 3 variables"):
        learn(graphs=pivots)
    empty = np.zeros((1, 5, 5), dtype=bool)
    graphs = networks_from_adjacency(torch.from_numpy(empty), torch.zeros(1))
    with pytest.raises(ValueError, match="meet the constraints, got none"):
        learn(graphs=graphs, require=["S:L"])


@pytest.mark.parametrize("settings", [LearningSettings.paper(), LearningSettings()])
def test_the_papers_way_and_ours_score_no_more_than_asked(settings: LearningSettings) -> None:
    sizes = {"num_pivots": 60, "epochs": 1, "hidden_channels": 8, "latent_channels": 4}
    report = report_of(learn(settings=dataclasses.replace(settings, **sizes), bootstrap=0))  # type: ignore[arg-type]
    assert report.scored <= 4
    assert report.climbs == (report.scored if settings.improve else 0)
