"""What tells compiled kernels apart; that they run is for the tests of each."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest
import torch

pytest.importorskip("triton", reason="Triton comes with PyTorch on Linux")

from dagnn.kernels.call import _describe

ROWS = torch.zeros(12)


def described(*arguments: Any) -> tuple[Any, ...]:
    known: list[Any] = []
    assert _describe(arguments, known) in (None, torch.device("cpu"))
    return tuple(known)


def test_kinds_of_arguments_are_told_apart() -> None:
    kinds = [
        (ROWS, 3),
        (ROWS, 2**31),  # a long one
        (ROWS, None),
        (ROWS, ROWS),
        (ROWS[1:], 3),  # not aligned
        (ROWS.double(), 3),
        (ROWS.long(), 3),
        ((ROWS, ROWS), 3),
        ((ROWS,), ROWS, 3),
    ]
    for one, other in combinations(kinds, 2):
        assert described(*one) != described(*other)


def test_what_is_not_asked_for_is_no_difference() -> None:
    assert described(ROWS, 3) == described(torch.ones(5), 2**31 - 1)
    numbers = torch.arange(9)
    assert described(numbers) == described(numbers[1:])  # the alignment of indices


def test_the_device_is_that_of_any_tensor() -> None:
    for arguments in ((3, ROWS, None), ((3, (ROWS,)), 3)):
        assert _describe(arguments, []) == torch.device("cpu")
