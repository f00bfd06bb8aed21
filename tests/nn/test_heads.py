"""Heads."""

import torch

from dagnn.nn.heads import TokenSequenceHead


def test_one_classifier_per_position() -> None:
    head = TokenSequenceHead(3, 7, num_positions=4)
    h = torch.randn(5, 3)
    logits = head(h)
    assert logits.shape == (5, 4, 7)
    for i in range(4):
        rows = slice(7 * i, 7 * (i + 1))
        assert torch.allclose(
            logits[:, i], h @ head.lin.weight[rows].t() + head.lin.bias[rows], atol=1e-6
        )
