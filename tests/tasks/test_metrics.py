"""Metrics against sets of Python."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dagnn.tasks.metrics import accuracy, graph_of_rows, token_f1

EOS = 6
tokens = st.integers(0, EOS)
predictions = st.lists(tokens, min_size=5, max_size=5)
names = st.lists(st.integers(-3, EOS - 2), min_size=1, max_size=8)  # below 0: not in the vocabulary


def f1_of_sets(predicted: list[int], true: list[int]) -> tuple[float, float, float]:
    """As the Open Graph Benchmark counts."""
    if EOS in predicted:
        predicted = predicted[: predicted.index(EOS)]
    p, t = set(predicted), set(true)
    hits = len(p & t)
    precision = hits / len(p) if p else 0.0
    recall = hits / len(t) if t else 0.0
    f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
    return precision, recall, f1


@given(st.lists(st.tuples(predictions, names), min_size=1, max_size=6))
def test_f1_is_that_of_sets(pairs: list[tuple[list[int], list[int]]]) -> None:
    distinct = [list(dict.fromkeys(name)) for _, name in pairs]
    pointer = torch.tensor([0, *map(len, distinct)]).cumsum(0)
    true = torch.tensor([max(t, -1) for name in distinct for t in name])
    predicted = torch.tensor([p for p, _ in pairs])
    found = torch.stack(token_f1(predicted, true, graph_of_rows(pointer), EOS), dim=1)
    expected = torch.tensor([f1_of_sets(p, name) for p, name in pairs])
    assert torch.allclose(found, expected)


def test_accuracy() -> None:
    assert accuracy(torch.tensor([1, 2, 3, 3]), torch.tensor([1, 2, 3, 4])) == pytest.approx(0.75)
