"""A network with a report that was not searched for, to make pages of."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from dagnn.bayesnet.scores import FamilyScores
from dagnn.bayesnet.table import Table
from dagnn.search.learning_report import LearnedNetwork, LearningReport, RoundSummary

HARD_NAME = "größe <b> & co"


def example() -> LearnedNetwork:
    generator = np.random.default_rng(0)
    first = generator.integers(0, 2, 200)
    frame = pd.DataFrame(
        {HARD_NAME: first, "b c": first ^ (generator.random(200) < 0.1), "d": first * 2}
    ).astype(str)
    scores = FamilyScores(Table.from_frame(frame))
    adjacency = np.zeros((3, 3), dtype=bool)
    adjacency[1, 0] = adjacency[2, 0] = True
    confidence = np.array([[0, 0.4, 0.5], [0.5, 0, 0], [0.5, 0, 0]])
    network = LearnedNetwork.fit(scores, adjacency, confidence=confidence)
    assert isinstance(network, LearnedNetwork)
    score = network.score()
    rounds = [RoundSummary(i, score - 5 / i, score - 5, 50, 20, 1.0) for i in (1, 2, 3, 4)]
    rounds.append(RoundSummary(5, score, score, 50, 20, 1.0))
    report = LearningReport(
        rows=200,
        notes=("dropped 3 of 203 rows",),
        settings={"pivots": "mixed"},
        pivots=100,
        best_pivot=score - 8,
        rounds=tuple(rounds),
        found=score,
        hill_climbing=score,
        exact=score,
        scored=250,
        climbs=0,
        seconds={"search": 5.0},
    )
    return replace(network, report=report)
