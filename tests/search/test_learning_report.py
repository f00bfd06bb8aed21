from __future__ import annotations

import dataclasses
import json

import pytest

from dagnn.search.learning_report import LearningReport
from tests.search.pages import example


def report(**changes: float | None) -> LearningReport:
    known = example().report
    assert known is not None
    return dataclasses.replace(known, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("found", "climbed", "exact", "words"),
    [
        (-10.0, -9.0, -8.5, "1.500 below the optimum; 1.000 worse than hill climbing"),
        (-8.5, -9.0, -8.5, "the optimum, proven by exact search; 0.500 better than hill climbing"),
        (-9.0, -9.0, None, "as good as hill climbing; the optimum is not known"),
    ],
)
def test_verdict(found: float, climbed: float, exact: float | None, words: str) -> None:
    assert report(found=found, hill_climbing=climbed, exact=exact).verdict().startswith(words)


def test_rounding_makes_no_gap() -> None:
    assert report(found=-8.0, exact=-8.0 - 1e-9).gap == 0


def test_all_of_it_is_json() -> None:
    record = json.loads(json.dumps(report().to_dict(), allow_nan=False))
    assert record["gap"] == 0
    assert record["rounds"][0]["number"] == 1
