"""Chains of GRU steps against PyTorch's cell, and by kernels of our own against those."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dagnn.autoencoders import gru_chain as module
from dagnn.autoencoders.gru_chain import gru_chain
from tests.autoencoders.poison import Poisoned
from tests.interpreter import INTERPRETED, check_in_interpreter, kernels, outside

DEVICE = "cpu" if INTERPRETED else "cuda"
CHANNELS = 3


def by_cell(cell: nn.GRUCell, x: Tensor, first: Tensor, sizes: list[int]) -> Tensor:
    state, states = first, []
    for now in x.split(sizes):
        state = cell(now, state[len(state) - len(now) :])
        states.append(state)
    return torch.cat(states)


def by_chain(cell: nn.GRUCell, x: Tensor, first: Tensor | None, sizes: list[int]) -> Tensor:
    inner = nn.functional.linear(x, cell.weight_ih, cell.bias_ih)
    return gru_chain(cell, inner, first, sizes)


def outcome(
    run: Callable[..., Tensor],
    cell: nn.GRUCell,
    x: Tensor,
    first: Tensor,
    slope: Tensor,
    sizes: list[int],
) -> dict[str, Tensor]:
    """States and all gradients."""
    x, first = x.clone().requires_grad_(), first.clone().requires_grad_()
    states = run(cell, x, first, sizes)
    wanted = {"x": x, "first": first, **dict(cell.named_parameters())}
    gradients = torch.autograd.grad((states * slope).sum(), list(wanted.values()))
    return {"states": states.detach(), **dict(zip(wanted, gradients, strict=True))}


def case(sizes: list[int], hidden: int) -> tuple[Any, ...]:
    torch.manual_seed(hidden)
    cell = nn.GRUCell(CHANNELS, hidden).double()
    shapes = (sum(sizes), CHANNELS), (sizes[0], hidden), (sum(sizes), hidden)
    return cell, *(torch.randn(*shape, dtype=torch.double) for shape in shapes)


SIZES = [[1], [3, 3, 3], [6, 4, 2], [5, 5, 1, 1], [33, 33]]


@pytest.mark.parametrize("hidden", [1, 7, 20])
@pytest.mark.parametrize("sizes", SIZES)
def test_chain_equals_cell_by_cell(sizes: list[int], hidden: int) -> None:
    given = case(sizes, hidden)
    expected, found = (outcome(run, *given, sizes) for run in (by_cell, by_chain))
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-12, atol=1e-12, msg=name)


@kernels
@pytest.mark.cuda
@pytest.mark.parametrize("hidden", [1, 7, 20, 520])
@pytest.mark.parametrize("sizes", SIZES)
def test_fused_chain(sizes: list[int], hidden: int, monkeypatch: pytest.MonkeyPatch) -> None:
    cell, *tensors = case(sizes, hidden)
    expected = outcome(by_cell, cell, *tensors, sizes)
    monkeypatch.setattr(module, "has_kernels", lambda _: True)
    monkeypatch.setattr(module, "_Chain", None)
    with Poisoned():
        found = outcome(
            by_chain, cell.float().to(DEVICE), *(t.float().to(DEVICE) for t in tensors), sizes
        )
    for name, theirs in expected.items():
        error = (found[name].cpu() - theirs).norm() / theirs.norm().clamp(min=1e-6)
        assert error < 1e-5, (name, float(error))


@kernels
@pytest.mark.cuda
def test_a_second_backward_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "has_kernels", lambda _: True)
    cell, x, first, _ = case([4, 2], 6)
    cell, x, first = cell.float().to(DEVICE), x.float().to(DEVICE), first.float().to(DEVICE)
    x.requires_grad_()
    states = by_chain(cell, x, first, [4, 2])
    one, two = (torch.autograd.grad(states.sum(), x, retain_graph=True)[0] for _ in range(2))
    assert torch.equal(one, two)


def check_zero_start(device: str) -> None:
    cell, x, first, _ = case([4, 4, 2], 6)
    cell, x = cell.float().to(device), x.float().to(device).requires_grad_()
    runs = [by_chain(cell, x, start, [4, 4, 2]) for start in (None, first.float().to(device) * 0)]
    slopes = [torch.autograd.grad(states.sum(), [x, *cell.parameters()]) for states in runs]
    assert torch.equal(*runs)
    assert all(map(torch.equal, *slopes))


def test_it_starts_with_zero() -> None:
    check_zero_start("cpu")


@kernels
@pytest.mark.cuda
def test_the_fused_one_starts_with_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "has_kernels", lambda _: True)
    check_zero_start(DEVICE)


@outside
def test_kernels_in_the_interpreter() -> None:
    check_in_interpreter(__file__)
