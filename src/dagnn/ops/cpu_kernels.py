r"""Compiled loops of the CPU backend: messages, gates, their gradients, and thin products.

Every function works on the rows ``lo`` to ``hi`` of direction ``d``. Loops over the width of a
state are short and touch few arrays each, because that is what the compiler can prove safe to
vectorise; a row stays in the first-level cache between them.

Threads share rows or directions, never a sum, so that two runs give the same bits.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit, prange

from dagnn.ops.cpu_buffers import Backward, Forward
from dagnn.ops.cpu_math import sigmoid, tanh
from dagnn.ops.cpu_memory import aligned
from dagnn.ops.cpu_products import COMPILED, add_product
from dagnn.ops.cpu_threads import Kernel

__all__ = [
    "BACKWARD",
    "CELL",
    "FORWARD",
    "GATED_MAPS",
    "LEVELS",
    "MESSAGES",
    "PULL",
    "STATES",
]


# Only sums of products may be reordered; the polynomials of sigmoid and tanh may not.
_ELEMENTWISE = {**COMPILED, "fastmath": {"contract"}}
_PARALLEL = {**_ELEMENTWISE, "parallel": True}

_aligned = njit(**COMPILED)(aligned)


@njit(**COMPILED)
def _dot(a: Any, b: Any) -> Any:
    total = a.dtype.type(0)
    for j in range(a.shape[0]):
        total += a[j] * b[j]
    return total


@njit(**COMPILED)
def _dot_difference(a: Any, b: Any, c: Any) -> Any:
    """a·(b - c): a·b - a·c would lose all digits where b and c are close."""
    total = a.dtype.type(0)
    for j in range(a.shape[0]):
        total += a[j] * (b[j] - c[j])
    return total


@njit(**COMPILED)
def _fill(out: Any, value: Any) -> None:
    for j in range(out.shape[0]):
        out[j] = value


@njit(**COMPILED)
def _copy(out: Any, a: Any) -> None:
    for j in range(out.shape[0]):
        out[j] = a[j]


@njit(**COMPILED)
def _add_scaled(out: Any, scale: Any, a: Any) -> None:
    for j in range(out.shape[0]):
        out[j] += scale * a[j]


@njit(**_ELEMENTWISE)
def _message(b: Forward, d: int, v: int) -> None:
    """The message of a node: the weighted sum of its predecessors' states, or zero."""
    hidden = b.message.shape[2]
    message = b.message[d, v]
    if b.gru:  # the recurrent product will add to it
        n_message = _aligned(hidden) + 2 * hidden
        _copy(b.gates[d, v, n_message:], b.bias[d, n_message:])
    first, last = b.pred_ptr[d, v], b.pred_ptr[d, v + 1]
    if b.attention and last - first == 1 and _is_finite(b.edge_score, d, first):
        b.alpha[d, first] = 1
        _copy(message, b.h[d, b.pred[d, first]])
        return
    _fill(message, message.dtype.type(0))
    if not b.attention:
        for slot in range(first, last):
            pair = b.pair[d, b.pred[d, slot]]
            gate, value = pair[:hidden], pair[hidden:]
            for j in range(hidden):
                message[j] += gate[j] * value[j]
        return
    _softmax(b, d, first, last)
    for slot in range(first, last):
        _add_scaled(message, b.alpha[d, slot], b.h[d, b.pred[d, slot]])


@njit(**_ELEMENTWISE)
def _is_finite(edge_score: Any, d: int, slot: int) -> bool:
    """Whether an edge's score has nothing to show that a weight of 1 would hide."""
    return edge_score.shape[1] == 0 or math.isfinite(edge_score[d, slot])


@njit(**_ELEMENTWISE)
def _softmax(b: Forward, d: int, first: int, last: int) -> None:
    top = -np.inf
    alpha = b.alpha[d]
    for slot in range(first, last):
        alpha[slot] = b.key_score[d, b.pred[d, slot]]
        if b.edge_score.shape[1]:
            alpha[slot] += b.edge_score[d, slot]
        top = max(top, alpha[slot])
    total = 0.0  # in double: thousands of edges may meet in one node
    for slot in range(first, last):
        alpha[slot] = math.exp(alpha[slot] - top)
        total += alpha[slot]
    for slot in range(first, last):
        alpha[slot] /= total


@njit(**_ELEMENTWISE)
def _state(b: Forward, d: int, v: int) -> None:
    """From the sums of the input and the recurrent product to the state, and its key score."""
    hidden = b.h.shape[2]
    h = b.h[d, v]
    if b.gru:
        gates, bias, message = b.gates[d, v], b.bias[d], b.message[d, v]
        at = _aligned(hidden)
        to = at + 2 * hidden
        n, r_z, n_message = gates[:hidden], gates[at:to], gates[to:]
        n_bias, r_z_bias = bias[:hidden], bias[at:to]
        for j in range(2 * hidden):
            r_z[j] = sigmoid(r_z[j] + r_z_bias[j])
        for j in range(hidden):
            n[j] = tanh(n[j] + n_bias[j] + r_z[j] * n_message[j])
        z = r_z[hidden:]
        for j in range(hidden):
            h[j] = n[j] + z[j] * (message[j] - n[j])
    else:
        bias = b.bias[d]
        for j in range(hidden):
            h[j] += bias[j]
    if b.attention:
        b.key_score[d, v] = _dot(b.key[d], h)


@njit(**_ELEMENTWISE)
def _open_gate(b: Forward, d: int, v: int) -> None:
    gate, bias = b.pair[d, v], b.gate_bias[d]
    for j in range(bias.shape[0]):
        gate[j] = sigmoid(gate[j] + bias[j])


@njit(**_ELEMENTWISE)
def _pull(b: Backward, d: int, u: int) -> None:
    """Complete the gradient of a node's state with what its successors send back."""
    hidden = b.h.shape[2]
    grad = b.grad[d, u, :hidden]
    first, last = b.succ_ptr[d, u], b.succ_ptr[d, u + 1]
    if not b.attention:
        _pull_gated(b, d, u, first, last)
        return
    total = grad.dtype.type(0)
    for i in range(first, last):
        v, slot = b.succ[d, i], b.succ_slot[d, i]
        d_message, alpha = b.d_message[d, v, :hidden], b.alpha[d, slot]
        # A single predecessor has weight 1, whatever its score, if that is finite.
        if b.pred_ptr[d, v + 1] - b.pred_ptr[d, v] > 1:
            d_score = alpha * _dot_difference(d_message, b.h[d, u], b.message[d, v])
            b.d_score[d, slot] = d_score
            total += d_score
        else:
            b.d_score[d, slot] = alpha - alpha  # zero, or no number
        _add_scaled(grad, alpha, d_message)
    b.d_key_score[d, u] = total
    if total != 0:
        _add_scaled(grad, total, b.key[d])


@njit(**_ELEMENTWISE)
def _pull_gated(b: Backward, d: int, u: int, first: int, last: int) -> None:
    hidden = b.h.shape[2]
    gate, value = b.pair[d, u, :hidden], b.pair[d, u, hidden:]
    d_gate, d_value = b.d_pair[d, u, :hidden], b.d_pair[d, u, hidden:]
    _fill(d_value, d_value.dtype.type(0))
    for i in range(first, last):
        d_message = b.d_message[d, b.succ[d, i]]
        for j in range(hidden):
            d_value[j] += d_message[j]
    one = gate.dtype.type(1)  # a plain 1 would make it double precision
    for j in range(hidden):
        d_value[j] *= gate[j]
    for j in range(hidden):
        d_gate[j] = d_value[j] * value[j] * (one - gate[j])


@njit(**_ELEMENTWISE)
def _d_gates(b: Backward, d: int, v: int, thread: int) -> None:
    """From the gradient of a GRU's state to those of its sums, and directly of its message."""
    hidden = b.h.shape[2]
    at = _aligned(hidden)
    grad, message = b.grad[d, v, :hidden], b.message[d, v]
    gates, out = b.gates[d, v], b.d_gates[d, v]
    z_at, n_at = at + hidden, at + 2 * hidden
    n, r, z, n_message = gates[:hidden], gates[at:z_at], gates[z_at:n_at], gates[n_at:]
    d_n, d_r, d_z, d_n_message = out[:hidden], out[at:z_at], out[z_at:n_at], out[n_at:]
    one = grad.dtype.type(1)  # a plain 1 would make it double precision
    for j in range(hidden):
        d_n[j] = grad[j] * (one - z[j]) * (one - n[j] * n[j])
    for j in range(hidden):
        d_z[j] = grad[j] * (message[j] - n[j]) * z[j] * (one - z[j])
    for j in range(hidden):
        d_n_message[j] = d_n[j] * r[j]
    for j in range(hidden):
        d_r[j] = d_n_message[j] * n_message[j] * (one - r[j])
    for j in range(hidden):
        grad[j] *= z[j]  # now d_message, in the same memory
    d_bias = b.d_bias[d, thread]
    for j in range(at + 3 * hidden):
        d_bias[j] += out[j]


# A level is done in stages, with a product between them: by BLAS for wide levels, whose rows
# threads share; by add_product in runs of narrow levels, where each thread has a direction.
LEVELS, MESSAGES, STATES, GATED_MAPS = 0, 1, 2, 3
PULL, CELL = 1, 2


@njit(**_ELEMENTWISE)
def _forward(b: Forward, stage: int, d: int, lo: int, hi: int, thread: int) -> None:
    """A stage of the rows lo to hi, or all of the levels lo to hi."""
    if stage == LEVELS:
        _forward_levels(b, d, lo, hi)
        return
    for v in range(lo, hi):
        if stage == MESSAGES:
            _message(b, d, v)
        elif stage == STATES:
            _state(b, d, v)
        else:
            _open_gate(b, d, v)


@njit(**_ELEMENTWISE)
def _forward_levels(b: Forward, d: int, first: int, last: int) -> None:
    zero = np.int64(0)  # a literal 0 would be a type of its own, and compile everything anew
    at = _aligned(b.h.shape[2]) if b.gru else zero
    for i in range(first, last):
        lo, hi = b.level_ptr[d, i], b.level_ptr[d, i + 1]
        for v in range(lo, hi):
            _message(b, d, v)
        if i > 0:
            add_product(b.gates[d], b.message[d], b.recurrent[d], lo, hi, at, zero)
        for v in range(lo, hi):
            _state(b, d, v)
        if not b.attention:
            for v in range(lo, hi):
                _fill(b.pair[d, v], b.pair.dtype.type(0))
            add_product(b.pair[d], b.h[d], b.gate_map[d], lo, hi, zero, zero)
            for v in range(lo, hi):
                _open_gate(b, d, v)


@njit(**_ELEMENTWISE)
def _backward(b: Backward, stage: int, d: int, lo: int, hi: int, thread: int) -> None:
    if stage == LEVELS:
        _backward_levels(b, d, lo, hi, thread)
        return
    for v in range(lo, hi):
        if stage == PULL:
            _pull(b, d, v)
        else:
            _d_gates(b, d, v, thread)


@njit(**_ELEMENTWISE)
def _backward_levels(b: Backward, d: int, first: int, last: int, thread: int) -> None:
    zero = np.int64(0)
    at = _aligned(b.h.shape[2]) if b.gru else zero
    for i in range(last - 1, first - 1, -1):
        lo, hi = b.level_ptr[d, i], b.level_ptr[d, i + 1]
        for v in range(lo, hi):
            _pull(b, d, v)
        if not b.attention:
            add_product(b.grad[d], b.d_pair[d], b.gate_map[d], lo, hi, zero, zero)
        for v in range(lo, hi):
            if b.gru:
                _d_gates(b, d, v, thread)
            else:
                _fill(b.d_message[d, v], b.grad.dtype.type(0))
        if i > 0:
            add_product(b.d_message[d], b.d_gates[d], b.recurrent[d], lo, hi, zero, at)


# Indices of parallel loops are unsigned, which would compile everything anew.


@njit(**_PARALLEL)
def _share_forward(b: Forward, stage: int, d: Any, lo: Any, hi: Any) -> None:
    for thread in prange(d.shape[0]):
        _forward(b, stage, d[thread], lo[thread], hi[thread], np.int64(thread))


@njit(**_PARALLEL)
def _share_backward(b: Backward, stage: int, d: Any, lo: Any, hi: Any) -> None:
    for thread in prange(d.shape[0]):
        _backward(b, stage, d[thread], lo[thread], hi[thread], np.int64(thread))


FORWARD = Kernel(_forward, _share_forward)
BACKWARD = Kernel(_backward, _share_backward)
