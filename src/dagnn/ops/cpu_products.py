"""Matrix products with few rows, for compiled loops.

A product with few rows costs what it costs to read the weights. So they are read once for four
rows at a time, and compiled with the rest of the level loop: BLAS is two to three times slower
on one to four rows, and would need a call from Python per level. From some 64 rows on it wins.
"""

from __future__ import annotations

from typing import Any

from numba import njit

__all__ = ["COMPILED", "add_product"]

# How all loops over sums of products are compiled: the compiler may reorder a sum (once and for
# all), which vector instructions need.
COMPILED: dict[str, Any] = {
    "cache": True,
    "nogil": True,
    "error_model": "numpy",
    "fastmath": {"contract", "reassoc", "nsz"},
}


@njit(**COMPILED)
def add_product(out: Any, a: Any, w: Any, lo: int, hi: int, out_at: int, a_at: int) -> None:
    """``out[lo:hi, out_at:] += a[lo:hi, a_at:] @ w``, all of them row-major."""
    depth, width = w.shape
    out_to = out_at + width
    v = lo
    while v + 4 <= hi:
        k = 0
        while k + 4 <= depth:
            _add_4_by_4(out, a, w, v, k, out_at, out_to, a_at + k)
            k += 4
        _add_rest(out, a, w, v, v + 4, k, out_at, out_to, a_at)
        v += 4
    if v + 2 <= hi:
        k = 0
        while k + 8 <= depth:
            _add_2_by_8(out, a, w, v, k, out_at, out_to, a_at + k)
            k += 8
        _add_rest(out, a, w, v, v + 2, k, out_at, out_to, a_at)
        v += 2
    if v < hi:
        k = 0
        while k + 8 <= depth:
            _add_1_by_8(out, a, w, v, k, out_at, out_to, a_at + k)
            k += 8
        _add_rest(out, a, w, v, hi, k, out_at, out_to, a_at)


# Written out, since only plain numbers, not small arrays, are kept in registers. Rows are made
# into arrays of their own first: an index with an offset in it is not vectorised, nor is a row
# of an array that was sliced by columns.


@njit(**COMPILED)
def _add_rest(
    out: Any, a: Any, w: Any, lo: int, hi: int, k: int, out_at: int, out_to: int, a_at: int
) -> None:
    for i in range(k, w.shape[0]):
        for v in range(lo, hi):
            row, factor, weight = out[v, out_at:out_to], a[v, a_at + i], w[i]
            for j in range(row.shape[0]):
                row[j] += factor * weight[j]


@njit(**COMPILED)
def _add_1_by_8(
    out: Any, a: Any, w: Any, v: int, k: int, out_at: int, out_to: int, a_at: int
) -> None:
    row, f = out[v, out_at:out_to], a[v, a_at : a_at + 8]
    a0, a1, a2, a3, a4, a5, a6, a7 = f[0], f[1], f[2], f[3], f[4], f[5], f[6], f[7]
    w0, w1, w2, w3, w4, w5, w6, w7 = (
        w[k], w[k + 1], w[k + 2], w[k + 3], w[k + 4], w[k + 5], w[k + 6], w[k + 7]
    )  # fmt: skip
    for j in range(row.shape[0]):
        row[j] += (
            a0 * w0[j] + a1 * w1[j] + a2 * w2[j] + a3 * w3[j]
            + a4 * w4[j] + a5 * w5[j] + a6 * w6[j] + a7 * w7[j]
        )  # fmt: skip


@njit(**COMPILED)
def _add_2_by_8(
    out: Any, a: Any, w: Any, v: int, k: int, out_at: int, out_to: int, a_at: int
) -> None:
    row_a, row_b = out[v, out_at:out_to], out[v + 1, out_at:out_to]
    f, g = a[v, a_at : a_at + 8], a[v + 1, a_at : a_at + 8]
    a0, a1, a2, a3, a4, a5, a6, a7 = f[0], f[1], f[2], f[3], f[4], f[5], f[6], f[7]
    b0, b1, b2, b3, b4, b5, b6, b7 = g[0], g[1], g[2], g[3], g[4], g[5], g[6], g[7]
    w0, w1, w2, w3, w4, w5, w6, w7 = (
        w[k], w[k + 1], w[k + 2], w[k + 3], w[k + 4], w[k + 5], w[k + 6], w[k + 7]
    )  # fmt: skip
    for j in range(row_a.shape[0]):
        x0, x1, x2, x3, x4, x5, x6, x7 = w0[j], w1[j], w2[j], w3[j], w4[j], w5[j], w6[j], w7[j]
        row_a[j] += a0*x0 + a1*x1 + a2*x2 + a3*x3 + a4*x4 + a5*x5 + a6*x6 + a7*x7  # fmt: skip
        row_b[j] += b0*x0 + b1*x1 + b2*x2 + b3*x3 + b4*x4 + b5*x5 + b6*x6 + b7*x7  # fmt: skip


@njit(**COMPILED)
def _add_4_by_4(
    out: Any, a: Any, w: Any, v: int, k: int, out_at: int, out_to: int, a_at: int
) -> None:
    row_a, row_b = out[v, out_at:out_to], out[v + 1, out_at:out_to]
    row_c, row_d = out[v + 2, out_at:out_to], out[v + 3, out_at:out_to]
    f, g = a[v, a_at : a_at + 4], a[v + 1, a_at : a_at + 4]
    p, q = a[v + 2, a_at : a_at + 4], a[v + 3, a_at : a_at + 4]
    a0, a1, a2, a3 = f[0], f[1], f[2], f[3]
    b0, b1, b2, b3 = g[0], g[1], g[2], g[3]
    c0, c1, c2, c3 = p[0], p[1], p[2], p[3]
    d0, d1, d2, d3 = q[0], q[1], q[2], q[3]
    w0, w1, w2, w3 = w[k], w[k + 1], w[k + 2], w[k + 3]
    for j in range(row_a.shape[0]):
        x0, x1, x2, x3 = w0[j], w1[j], w2[j], w3[j]
        row_a[j] += a0 * x0 + a1 * x1 + a2 * x2 + a3 * x3
        row_b[j] += b0 * x0 + b1 * x1 + b2 * x2 + b3 * x3
        row_c[j] += c0 * x0 + c1 * x1 + c2 * x2 + c3 * x3
        row_d[j] += d0 * x0 + d1 * x1 + d2 * x2 + d3 * x3
