"""The most probable names against all names."""

from __future__ import annotations

from itertools import product

import pytest
import torch

from dagnn.tasks.name_search import best_names, name_surprise

TOKENS, UNKNOWN, EOS = 6, 4, 5


@pytest.mark.parametrize("positions", [1, 2, 3])
def test_best_names_are_the_best_of_all(positions: int) -> None:
    log_p = torch.randn(7, positions, TOKENS).mul(2).log_softmax(-1)
    best = best_names(log_p, 4, UNKNOWN, EOS)
    for g in range(7):
        names = {}
        for length in range(1, positions + 1):
            for words in product(range(4), repeat=length):
                score = sum(float(log_p[g, i, t]) for i, t in enumerate(words))
                if length < positions:
                    score += float(log_p[g, length, EOS])
                names[words] = score
        expected = sorted(names, key=lambda words: -names[words])[:4]
        found = [tuple(t for t in row if t != EOS) for row in best.tokens[g].tolist()]
        assert found == expected
        scores = [names[words] for words in expected]
        assert best.log_probability[g].tolist() == pytest.approx(scores, abs=1e-5)


def test_surprise_is_bits_per_token() -> None:
    log_p = torch.full((1, 3, 4), 0.25).log()
    for name in ([0, 3, 3], [0, 1, 3], [0, 1, 2]):
        assert name_surprise(log_p, torch.tensor([name]), 3).tolist() == pytest.approx([2.0])
    p = torch.tensor([[[0.5, 0.5], [0.125, 0.875]]])
    assert name_surprise(p.log(), torch.tensor([[0, 0]]), 1).tolist() == pytest.approx([2.0])
