"""Logits of edges pair by pair, and by kernels of our own against PyTorch's operations."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from dagnn.autoencoders import edge_logits as module
from dagnn.autoencoders.edge_logits import edge_logits
from tests.autoencoders.poison import Poisoned
from tests.interpreter import INTERPRETED, check_in_interpreter, kernels, outside

DEVICE = "cpu" if INTERPRETED else "cuda"


def case(n: int, size: int, hidden: int) -> tuple[Tensor, Tensor, nn.Linear, Tensor]:
    torch.manual_seed(hidden)
    v, u = torch.tril_indices(n, n, -1)
    pairs = (v * n + u)[torch.randperm(len(v))]
    # On a grid, so that float32 adds them exactly and no sum is zero: of millions of sums, some
    # would else be rounded to the other side of ReLU's kink.
    receivers = torch.randint(-128, 128, (size, len(v), hidden)).double() / 64 + 1 / 128
    senders = torch.randint(-128, 128, (n - 1, size, hidden)).double() / 64
    return receivers, senders, nn.Linear(hidden, 1).double(), pairs.unsqueeze(0)


def outcome(receivers: Tensor, senders: Tensor, out: nn.Linear, pairs: Tensor) -> list[Tensor]:
    """Logits and all gradients."""
    receivers, senders = (tensor.detach().requires_grad_() for tensor in (receivers, senders))
    logits = edge_logits(receivers, senders, out, pairs)
    slope = torch.linspace(-1, 2, logits.numel(), dtype=torch.double).view(logits.shape).to(logits)
    wanted = [receivers, senders, out.weight, out.bias]
    return [logits.detach(), *torch.autograd.grad((logits * slope).sum(), wanted)]


def test_every_pair_is_a_network_of_its_own() -> None:
    receivers, senders, out, pairs = case(5, 3, 7)
    logits = edge_logits(receivers, senders, out, pairs)
    for b in range(3):
        for p, pair in enumerate(pairs.flatten().tolist()):
            hidden = (receivers[b, p] + senders[pair % 5, b]).relu()
            torch.testing.assert_close(logits[b, p], out(hidden).squeeze())


@kernels
@pytest.mark.cuda
@pytest.mark.parametrize(
    ("n", "size", "hidden"),
    [(2, 1, 1), (5, 3, 7), (3, 33, 20), (10, 2, 7), (17, 2, 20), (5, 1, 2004)]
    + ([] if INTERPRETED else [(8, 32, 2004), (10, 128, 2004), (30, 3, 64)]),
)
def test_fused(n: int, size: int, hidden: int, monkeypatch: pytest.MonkeyPatch) -> None:
    receivers, senders, out, pairs = case(n, size, hidden)
    expected = outcome(receivers, senders, out, pairs)
    monkeypatch.setattr(module, "has_kernels", lambda _: True)
    given = (tensor.float().to(DEVICE) for tensor in (receivers, senders))
    with Poisoned():
        found = outcome(*given, out.float().to(DEVICE), pairs.to(DEVICE))
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.shape == theirs.shape
        error = (ours.cpu() - theirs).norm() / theirs.norm().clamp(min=1e-3)
        assert error < 1e-5, float(error)


@outside
def test_kernels_in_the_interpreter() -> None:
    check_in_interpreter(__file__)
