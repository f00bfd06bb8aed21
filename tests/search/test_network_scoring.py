from __future__ import annotations

import numpy as np
import pytest
import torch

from dagnn.bayesnet.constraints import Constraints
from dagnn.bayesnet.scores import FamilyScores
from dagnn.bayesnet.table import Table
from dagnn.datasets.bayesian_networks import (
    adjacency_of_networks,
    networks_from_adjacency,
    sample_asia,
)
from dagnn.datasets.random_dags import random_dags
from dagnn.datasets.small_dags import SmallDags
from dagnn.search.network_scoring import NetworkScoring, without_idle_edges
from tests.search.cases import asia_scores, no_constraints

SCORES = asia_scores()


def drawn(count: int = 12) -> SmallDags:
    adjacency = torch.from_numpy(random_dags(5, count, order="random", seed=2))
    return networks_from_adjacency(adjacency, torch.zeros(count))


def broken(graphs: SmallDags) -> SmallDags:
    """The first graph with a variable twice, and so without another one."""
    types = graphs.types.clone()
    types[0, 1] = types[0, 2]
    return SmallDags(types, graphs.adjacency, graphs.num_nodes, graphs.score, graphs.num_types)


def test_without_repair_what_is_no_network_is_left_out() -> None:
    graphs = broken(drawn())
    scoring = NetworkScoring(SCORES, no_constraints(SCORES), repair=False, improve=False)
    origin, networks = scoring(graphs)
    assert origin.tolist() == list(range(1, 12))
    adjacency = adjacency_of_networks(networks).numpy()
    assert (adjacency == adjacency_of_networks(graphs[1:]).numpy()).all()
    assert np.allclose(SCORES.score_graphs(adjacency), networks.score.numpy())


def test_without_repair_what_breaks_a_constraint_is_left_out() -> None:
    constraints = Constraints.over(SCORES.table.names, max_parents=1)
    scoring = NetworkScoring(SCORES, constraints, repair=False, improve=False)
    origin, networks = scoring(drawn())
    assert 0 < len(origin) < 12
    assert constraints.allow(adjacency_of_networks(networks).numpy()).all()


def test_with_repair_every_graph_is_a_network() -> None:
    constraints = Constraints.over(SCORES.table.names, require=["X:S"], max_parents=1)
    scoring = NetworkScoring(SCORES, constraints, improve=False)
    origin, networks = scoring(broken(drawn()))
    assert origin.tolist() == list(range(12))
    networks.check()
    assert constraints.allow(adjacency_of_networks(networks).numpy()).all()


def test_improvement_adds_networks_that_are_never_worse(monkeypatch: pytest.MonkeyPatch) -> None:
    scoring = NetworkScoring(SCORES, no_constraints(SCORES))
    origin, networks = scoring(drawn())
    assert sorted(origin.tolist()[12:]) == list(range(12))
    assert bool((networks.score[12:] >= networks.score[origin[12:]]).all())
    climbs = scoring.climbs
    scoring(drawn())
    assert scoring.climbs == climbs
    monkeypatch.setattr("dagnn.search.network_scoring.CLIMBS", 3)
    origin, networks = scoring(drawn())
    best = networks.score[:12].argsort(descending=True)[:3]
    assert set(origin.tolist()[12:]) == set(best.tolist())


def test_edges_that_do_nothing_are_left_out() -> None:
    frame = sample_asia(200, seed=0)[["S", "B"]].assign(same="x")
    scores = FamilyScores(Table.from_frame(frame))
    constraints = Constraints.over(scores.table.names, require=["same:S"])
    adjacency = np.zeros((3, 3), dtype=bool)
    adjacency[1, 0] = adjacency[1, 2] = adjacency[0, 2] = True
    found = without_idle_edges(adjacency, scores, constraints)
    assert np.argwhere(found).tolist() == [[0, 2], [1, 0]]


@pytest.mark.parametrize("repair", [False, True])
def test_networks_that_are_read_are_those_that_are_scored(repair: bool) -> None:
    constraints = Constraints.over(SCORES.table.names, max_parents=1)
    graphs = broken(drawn())
    scoring = NetworkScoring(SCORES, constraints, repair=repair, improve=False)
    read = scoring.read(graphs)
    assert scoring.scored == 0
    assert constraints.allow(adjacency_of_networks(read).numpy()).all()
    origin, networks = scoring(read)
    assert origin.tolist() == list(range(len(read)))
    assert (networks.adjacency == read.adjacency).all()


def test_nothing_is_read_from_nothing() -> None:
    scoring = NetworkScoring(SCORES, no_constraints(SCORES))
    assert len(scoring.read(drawn()[:0])) == 0
    origin, networks = scoring(drawn()[:0])
    assert (len(origin), len(networks), scoring.scored) == (0, 0, 0)
