r"""Sigmoid and tanh for compiled loops.

In float32 they are short polynomials without branches or calls, so that a loop over them becomes
vector instructions; the relative error is below :math:`10^{-6}`. In float64 they are the C
library's.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import overload

__all__ = ["sigmoid", "tanh"]

# Compiled code would take a plain number for a double, and widen everything it touches.
_ONE, _TWO, _HALF = np.float32(1), np.float32(2), np.float32(0.5)
_LOW, _HIGH = np.float32(-87.3), np.float32(88.3)  # where exp leaves the normal numbers
_LOG2_E = np.float32(1.44269504088896341)
_LN2_HIGH, _LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)
_SHIFT = np.float32(128)
# Cephes (S. L. Moshier), expf.c and tanhf.c.
_E5, _E4, _E3 = (
    np.float32(1.9875691500e-4),
    np.float32(1.3981999507e-3),
    np.float32(8.3334519073e-3),
)
_E2, _E1, _E0 = (
    np.float32(4.1665795894e-2),
    np.float32(1.6666665459e-1),
    np.float32(5.0000001201e-1),
)
_T4, _T3, _T2 = (
    np.float32(-5.70498872745e-3),
    np.float32(2.06390887954e-2),
    np.float32(-5.37397155531e-2),
)
_T1, _T0 = np.float32(1.33314422036e-1), np.float32(-3.33332819422e-1)
_TANH_SMALL = np.float32(0.625)


@njit(cache=True, fastmath={"contract"}, error_model="numpy")
def _exp32(x: Any) -> Any:  # pragma: no cover - compiled
    x = min(max(x, _LOW), _HIGH)
    # x = n ln 2 + rest; the shift makes the number positive, where truncation rounds down.
    whole = np.int32(x * _LOG2_E + (_SHIFT + _HALF))
    n = np.float32(whole) - _SHIFT
    rest = x - n * _LN2_HIGH - n * _LN2_LOW
    p = ((((_E5 * rest + _E4) * rest + _E3) * rest + _E2) * rest + _E1) * rest + _E0
    power = np.int32((whole - np.int32(1)) << np.int32(23)).view(np.float32)  # 2^n
    return (p * rest * rest + rest + _ONE) * power


@njit(cache=True, fastmath={"contract"}, error_model="numpy")
def _sigmoid32(x: Any) -> Any:  # pragma: no cover - compiled
    return _ONE / (_ONE + _exp32(-x))


@njit(cache=True, fastmath={"contract"}, error_model="numpy")
def _tanh32(x: Any) -> Any:  # pragma: no cover - compiled
    square = x * x
    p = (((_T4 * square + _T3) * square + _T2) * square + _T1) * square + _T0
    small = p * square * x + x
    large = _ONE - _TWO / (_ONE + _exp32(_TWO * x))
    return small if abs(x) < _TANH_SMALL else large


@njit(cache=True, error_model="numpy")
def _sigmoid64(x: Any) -> Any:  # pragma: no cover - compiled
    return 1 / (1 + math.exp(-x))


@njit(cache=True, error_model="numpy")
def _tanh64(x: Any) -> Any:  # pragma: no cover - compiled
    return math.tanh(x)


def sigmoid(x: Any) -> Any:
    raise NotImplementedError("sigmoid is for compiled functions only")


def tanh(x: Any) -> Any:
    raise NotImplementedError("tanh is for compiled functions only")


@overload(sigmoid)
def _choose_sigmoid(x: Any) -> Any:
    chosen = _sigmoid32 if x is types.float32 else _sigmoid64

    def call(x: Any) -> Any:
        return chosen(x)

    return call


@overload(tanh)
def _choose_tanh(x: Any) -> Any:
    chosen = _tanh32 if x is types.float32 else _tanh64

    def call(x: Any) -> Any:
        return chosen(x)

    return call
