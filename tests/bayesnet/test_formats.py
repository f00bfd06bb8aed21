from __future__ import annotations

import json

import numpy as np
import pytest

from dagnn.bayesnet.formats import format_dot
from dagnn.bayesnet.network import BayesianNetwork
from tests.bayesnet.test_bif import assert_same, awkward_network


def test_json_there_and_back() -> None:
    network = awkward_network()
    again = BayesianNetwork.from_json(network.to_json())
    assert_same(again, network)
    assert again.score() == network.score()
    assert again.score_name == "aic"
    assert again.confidence is None


def test_json_keeps_confidence() -> None:
    network = awkward_network()
    confidence = np.random.default_rng(0).random((5, 5))
    sure = BayesianNetwork(
        network.variables, network.adjacency, network.tables, confidence=confidence
    )
    again = BayesianNetwork.from_json(sure.to_json())
    assert again.confidence is not None
    np.testing.assert_array_equal(again.confidence, confidence)


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"variables": [{"name": "a"}]},
        {"variables": 3},
        {"parents": [7]},
        {"parents": [0]},
        {"configurations": [[5]]},
        {"probabilities": [[0.5, 0.9]]},
        {"probabilities": [[1.0]]},
        {"levels": ["x", "x"]},
        {"name": "A_b"},
        {"probability": 1},
        {"parents": [1], "configurations": [[0], [0]], "probabilities": [[1, 0], [1, 0]]},
        {"parents": [], "configurations": [[], []], "probabilities": [[1, 0], [1, 0]]},
        {"cuts": [1.0, 2.0, 3.0, 4.0]},
    ],
)
def test_bad_json(change: dict[str, object]) -> None:
    record = json.loads(awkward_network().to_json())
    top = {key: value for key, value in change.items() if key in record}
    record |= top
    if not top:
        record["variables"][0] |= change
    with pytest.raises(ValueError, match="a network that to_json wrote"):
        BayesianNetwork.from_json(json.dumps(record))
    with pytest.raises(ValueError, match="a network that to_json wrote"):
        BayesianNetwork.from_json("{")


def test_dot() -> None:
    text = format_dot(
        ['say "hi"', "back\\slash"],
        np.array([[0, 0], [1, 0]], dtype=bool),
        np.array([[0, 0], [0.5, 0]]),
    )
    assert r'"say \"hi\"" -> "back\\slash" [label="0.50", penwidth=1.75];' in text
