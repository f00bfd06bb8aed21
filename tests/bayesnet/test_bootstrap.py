from __future__ import annotations

import numpy as np
import pytest

from dagnn.bayesnet.bootstrap import bootstrap_confidence
from dagnn.bayesnet.exact import exact_search
from dagnn.bayesnet.hill_climbing import hill_climb
from dagnn.bayesnet.scores import FamilyScores
from tests.bayesnet.cases import make_table


def noisy_collider(rows: int = 600) -> FamilyScores:
    """v0 → v2 ← v1, and v3 on its own."""
    generator = np.random.default_rng(0)
    causes = generator.integers(0, 2, (rows, 2))
    either = (causes.any(axis=1) ^ (generator.random(rows) < 0.05)).astype(int)
    alone = generator.integers(0, 2, rows)
    return FamilyScores(make_table(np.stack([*causes.T, either, alone], axis=1), [2, 2, 2, 2]))


def test_sure_and_unsure_edges() -> None:
    confidence = bootstrap_confidence(noisy_collider(), exact_search, samples=20)
    assert confidence[2, 0] == confidence[2, 1] == 1
    assert confidence[0, 2] == confidence[1, 2] == 0
    assert confidence[3].max() < 0.5
    assert (confidence + confidence.T <= 1).all()


def test_directions_without_evidence_count_half() -> None:
    generator = np.random.default_rng(1)
    first = generator.integers(0, 2, 300)
    second = first ^ (generator.random(300) < 0.1)
    scores = FamilyScores(make_table(np.stack([first, second], axis=1), [2, 2]))
    confidence = bootstrap_confidence(scores, hill_climb, samples=5)
    assert confidence.tolist() == [[0, 0.5], [0.5, 0]]


def test_seed_and_progress() -> None:
    done: list[tuple[int, int]] = []
    scores = noisy_collider(60)
    first, second = (
        bootstrap_confidence(
            scores, exact_search, samples=6, seed=2, progress=lambda *now: done.append(now)
        )
        for _ in range(2)
    )
    assert (first == second).all()
    assert done == [(i, 6) for i in range(1, 7)] * 2
    assert (first != bootstrap_confidence(scores, exact_search, samples=6, seed=3)).any()
    with pytest.raises(ValueError, match="at least 1 sample"):
        bootstrap_confidence(scores, exact_search, samples=0)
