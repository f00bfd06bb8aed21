from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from dagnn.autoencoders.latent_scoring import regression_measures
from dagnn.autoencoders.regression import (
    ScoreRegressor,
    flat_graphs,
    load_regressor,
    train_regressor,
)
from dagnn.datasets.architectures import parse_architectures
from dagnn.datasets.small_dags import SmallDags


def random_graphs(count: int, max_nodes: int = 6, num_types: int = 5) -> SmallDags:
    """Of 2 nodes and more; the score is the number of edges."""
    num_nodes = torch.randint(2, max_nodes + 1, (count,))
    node = torch.arange(max_nodes) < num_nodes[:, None]
    types = torch.randint(2, num_types, (count, max_nodes)) * node
    types[:, 0] = 0
    types.scatter_(1, num_nodes[:, None] - 1, 1)
    adjacency = (torch.rand(count, max_nodes, max_nodes) < 0.5).tril(-1)
    adjacency &= node[:, :, None] & node[:, None]
    score = adjacency.sum(dim=(1, 2)).double()
    return SmallDags(types, adjacency, num_nodes, score, num_types).check()


def test_flat_graphs_are_the_same_graphs() -> None:
    graphs = random_graphs(20)
    flat = flat_graphs(graphs)
    assert len(flat) == 20
    for g, data in enumerate(flat[i] for i in range(20)):
        size = int(graphs.num_nodes[g])
        assert data.x.argmax(dim=1).tolist() == graphs.types[g, :size].tolist()
        assert data.x.sum(dim=1).eq(1).all()
        edges = {(u, v) for u, v in data.edge_index.t().tolist()}
        assert edges == {(u, v) for v, u in graphs.adjacency[g].nonzero().tolist()}
        assert data.score.item() == graphs.score[g]


def test_predictions_do_not_depend_on_batches() -> None:
    graphs = random_graphs(15)
    model = ScoreRegressor(5, 8, score_mean=3.0, score_deviation=2.0)
    together = model.predict(graphs)
    assert together.dtype == torch.double
    torch.testing.assert_close(together, model.predict(graphs, batch_size=4))
    torch.testing.assert_close(together[3:4], model.predict(graphs[3:4]))


def test_predictions_are_in_the_units_of_the_scores() -> None:
    graphs = random_graphs(5)
    torch.manual_seed(1)
    plain = ScoreRegressor(5, 8).predict(graphs)
    torch.manual_seed(1)
    scaled = ScoreRegressor(5, 8, score_mean=0.7, score_deviation=0.01).predict(graphs)
    torch.testing.assert_close(scaled, 0.7 + 0.01 * plain)


def test_it_learns_to_count_edges(tmp_path: Path) -> None:
    train, test = random_graphs(450).split()
    options: dict[str, Any] = {"hidden_channels": 24, "rate": 0.01, "epochs": 25, "seed": 1}
    options |= {"batch_size": 32, "device": "cpu", "progress": False}
    record = train_regressor(train, test, tmp_path, **options)
    metrics = record["metrics"]
    assert metrics["rmse"] < 0.5
    assert metrics["kendall"] > 0.7
    assert json.loads((tmp_path / "record.json").read_text())["metrics"] == metrics
    prediction = load_regressor(tmp_path).predict(test)
    deviation = train.score.std(correction=0).item()
    again = regression_measures(prediction, test.score, deviation)
    assert again == {name: metrics[name] for name in again}
    assert train_regressor(train, test, tmp_path, **options)["metrics"] == metrics


def test_validation_scores_are_not_looked_at(tmp_path: Path) -> None:
    train, test = random_graphs(40), random_graphs(10)
    train.score[30:] += 1000
    options: dict[str, Any] = {"hidden_channels": 4, "epochs": 1, "valid_share": 0.25}
    record = train_regressor(train, test, tmp_path, device="cpu", progress=False, **options)
    model = record["config"]["model"]
    assert model["score_mean"] == train.score[:30].mean().item()
    assert model["score_deviation"] == train.score[:30].std(correction=0).item()


def test_other_runs_are_refused(tmp_path: Path) -> None:
    torch.save({"state_dict": {}, "config": {"task": "na"}}, tmp_path / "best.ckpt")
    with pytest.raises(ValueError, match=r"expected a run of dagnn train predictor in .*'na'"):
        load_regressor(tmp_path)


def test_architectures_fit_its_input() -> None:
    row = "[[4], [0, 1], [2, 0, 1], [3, 1, 1, 0], [5, 0, 0, 0, 1], [1, 0, 1, 1, 1, 0]], 0.7"
    graphs = parse_architectures([row])
    assert ScoreRegressor(graphs.num_types, 8).predict(graphs).shape == (1,)


def test_bad_input() -> None:
    with pytest.raises(ValueError, match="expected score_deviation > 0, got 0"):
        ScoreRegressor(5, score_deviation=0.0)
    with pytest.raises(ValueError, match="expected a learning rate above 0, got 0"):
        ScoreRegressor(5, rate=0.0)
    with pytest.raises(ValueError, match="graphs to train and to validate, got 0 of 1 to train"):
        train_regressor(random_graphs(1), random_graphs(1), "nowhere")
