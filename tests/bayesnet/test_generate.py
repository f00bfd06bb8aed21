from __future__ import annotations

import numpy as np
import pytest

from dagnn.bayesnet.generate import generate_networks
from dagnn.bayesnet.scores import FamilyScores
from dagnn.bayesnet.table import read_table
from dagnn.datasets.bayesian_networks import adjacency_of_networks, valid_bayesian_networks
from tests.bayesnet.cases import asia_path, dependent_table, plain_score


@pytest.mark.parametrize("order", ["fixed", "random", "uniform"])
def test_networks_with_their_scores(order: str) -> None:
    table = dependent_table(5, 100, seed=0)
    graphs = generate_networks(FamilyScores(table), 30, order=order, seed=1)  # type: ignore[arg-type]
    assert bool(valid_bayesian_networks(graphs.check()).all())
    adjacency = adjacency_of_networks(graphs).numpy()
    expected = [plain_score(table, "bic", a) for a in adjacency]
    np.testing.assert_allclose(graphs.score, expected, atol=1e-8)


def test_fixed_order_on_asia_looks_like_the_papers_data() -> None:
    graphs = generate_networks(FamilyScores(read_table(asia_path())), 20_000, seed=0)
    assert graphs.score.mean().item() == pytest.approx(-13_822, abs=30)
    assert graphs.score.std().item() == pytest.approx(855, abs=20)
