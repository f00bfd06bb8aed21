"""The sweep by kernels of our own against the one of PyTorch's operations, in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from dagnn.autoencoders.attention_sweep import _FusedSweep, _Sweep
from tests.autoencoders.poison import Poisoned
from tests.interpreter import INTERPRETED, check_in_interpreter, kernels, outside

NAMES = ("inner", "edge", "first", "weight", "bias", "key", "place")


def arguments(n: int, size: int, hidden: int, seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(n * hidden + size + 1000 * seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.double)

    edge = (torch.rand(size, n, n, generator=generator) < 0.4).double().tril(-1)
    scale = hidden**-0.5
    return [
        draw(n, size, 3 * hidden), edge, draw(size, hidden), draw(3 * hidden, hidden) * scale,
        draw(3 * hidden), draw(hidden) * scale, draw(n),
    ]  # fmt: skip


def swept(
    function: type, given: list[Tensor], of_states: Tensor | None, of_scores: Tensor | None
) -> list[Tensor]:
    """States and scores, then the gradients of all arguments but the edges, for weighted sums of
    both or of one."""
    given = [tensor.clone().requires_grad_(i != 1) for i, tensor in enumerate(given)]
    outputs = function.apply(*given)  # type: ignore[attr-defined]
    pairs = zip(outputs, (of_states, of_scores), strict=True)
    sum((out * weights).sum() for out, weights in pairs if weights is not None).backward()  # type: ignore[union-attr]
    gradients = [tensor.grad for i, tensor in enumerate(given) if i != 1]
    return [*(out.detach() for out in outputs), *gradients]


@kernels
@pytest.mark.cuda
@pytest.mark.parametrize(
    ("n", "size", "hidden"),
    [(1, 3, 5), (2, 1, 1), (8, 5, 7), (10, 3, 33), (17, 2, 520 if INTERPRETED else 700)]
    + ([] if INTERPRETED else [(8, 32, 501), (10, 128, 501), (30, 33, 64)]),
)
def test_fused_sweep(n: int, size: int, hidden: int) -> None:
    compare(n, size, hidden, of_states=True, of_scores=True)


@kernels
@pytest.mark.cuda
@pytest.mark.parametrize("of_states", [False, True])
def test_states_or_scores_alone(of_states: bool) -> None:
    compare(5, 3, 7, of_states=of_states, of_scores=not of_states)


def compare(n: int, size: int, hidden: int, of_states: bool, of_scores: bool) -> None:
    given = arguments(n, size, hidden)
    states = torch.randn(n, size, hidden).double() if of_states else None
    scores = torch.randn(n, size).double() if of_scores else None
    expected = swept(_Sweep, given, states, scores)
    slopes = (None if tensor is None else sides([tensor]) for tensor in (states, scores))
    found = swept(_FusedSweep, [sides([tensor]) for tensor in given], *slopes)
    check([tensor.squeeze(0) for tensor in found], expected)


def sides(tensors: list[Tensor]) -> Tensor:
    """One side beside the other, as kernels take them."""
    return torch.stack(tensors).float().to("cpu" if INTERPRETED else "cuda")


@kernels
@pytest.mark.cuda
@pytest.mark.parametrize(("n", "size", "hidden"), [(2, 1, 1), (5, 3, 7), (3, 33, 20)])
def test_sides_are_walked_together(n: int, size: int, hidden: int) -> None:
    """Each with weights of its own, as if it were alone."""
    cases = [arguments(n, size, hidden, seed) for seed in (0, 1)]
    slopes = [torch.randn(n, size, hidden).double() for _ in cases]
    with Poisoned():
        found = swept(_FusedSweep, list(map(sides, zip(*cases, strict=True))), sides(slopes), None)
    for side, (case, slope) in enumerate(zip(cases, slopes, strict=True)):
        check([tensor[side] for tensor in found], swept(_Sweep, case, slope, None))


@kernels
@pytest.mark.cuda
def test_without_a_first_message_it_is_zero() -> None:
    given = [sides([tensor]) for tensor in arguments(4, 3, 6)]
    given[2].zero_()
    expected = _FusedSweep.apply(*given)
    given[2] = None  # type: ignore[call-overload]
    assert all(map(torch.equal, _FusedSweep.apply(*given), expected))


def check(found: list[Tensor], expected: list[Tensor]) -> None:
    names = ("states", "scores", *(name for name in NAMES if name != "edge"))
    for name, ours, theirs in zip(names, found, expected, strict=True):
        error = (ours.cpu() - theirs).norm() / theirs.norm().clamp(min=1e-6)
        assert error < 1e-5, (name, float(error))


@kernels
@pytest.mark.cuda
def test_a_second_backward_gives_the_same() -> None:
    given = [sides([tensor]) for tensor in arguments(4, 3, 6)]
    given[0].requires_grad_()
    h, score = _FusedSweep.apply(*given)
    first, second = (
        torch.autograd.grad(h.sum() + score.sum(), given[0], retain_graph=True) for _ in range(2)
    )
    assert torch.equal(first[0], second[0])


@pytest.mark.parametrize("hidden", [1, 4])
def test_gradients_equal_finite_differences(hidden: int) -> None:
    inner, edge, *rest = (tensor.requires_grad_() for tensor in arguments(4, 3, hidden))
    assert torch.autograd.gradcheck(
        lambda inner, *rest: _Sweep.apply(inner, edge.detach(), *rest), (inner, *rest)
    )


@outside
def test_kernels_in_the_interpreter() -> None:
    check_in_interpreter(__file__)
