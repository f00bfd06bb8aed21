"""Sigmoid and tanh of the compiled loops."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numba import njit

from dagnn.ops.cpu_math import sigmoid, tanh


@njit
def all_sigmoids(x: Any, out: Any) -> None:
    for i in range(x.shape[0]):
        out[i] = sigmoid(x[i])


@njit
def all_tanhs(x: Any, out: Any) -> None:
    for i in range(x.shape[0]):
        out[i] = tanh(x[i])


def exact_sigmoid(x: np.ndarray) -> np.ndarray:
    small = np.exp(-np.abs(x))
    return np.where(x > 0, 1, small) / (1 + small)


both = pytest.mark.parametrize(
    ("function", "exact"), [(all_sigmoids, exact_sigmoid), (all_tanhs, np.tanh)]
)
Function = Callable[[np.ndarray, np.ndarray], None]


def results(function: Function, x: np.ndarray) -> np.ndarray:
    out = np.empty_like(x)
    function(x, out)
    return out


@both
@pytest.mark.parametrize(("dtype", "bar"), [(np.float32, 1e-6), (np.float64, 1e-14)])
def test_relative_error(function: Function, exact: Any, dtype: Any, bar: float) -> None:
    small = np.logspace(-30, 0, 20_000)
    x = np.concatenate([np.linspace(-80, 80, 200_001), small, -small]).astype(dtype)
    expected = exact(x.astype(np.float64))
    difference = np.abs(results(function, x) - expected)
    assert (difference <= bar * np.abs(expected)).all()


@both
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_limits_and_not_a_number(function: Function, exact: Any, dtype: Any) -> None:
    # 40 of each, so that vector instructions see them, too.
    x = np.repeat(np.array([-np.inf, -1000, 0, 1000, np.inf, np.nan], dtype=dtype), 40)
    out = results(function, x)
    expected = np.repeat([exact(-1000.0), exact(-1000.0), exact(0.0), 1, 1, np.nan], 40)
    np.testing.assert_allclose(out, expected, atol=1e-37)


def test_they_are_for_compiled_code() -> None:
    for function in (sigmoid, tanh):
        with pytest.raises(NotImplementedError):
            function(0.0)
