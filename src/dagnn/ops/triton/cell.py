"""The elementwise part of a GRU, forward and backward, for one node of all graphs.

With ``i`` the input's part of the gates and ``g = W m + b`` the message's, both of three parts:
``r = σ(i_r + g_r)``, ``z = σ(i_z + g_z)``, ``c = tanh(i_n + r g_n)``, ``h = (1 − z) c + z m``.

Tensors are ``[S, n, B, …]``: sides with weights of their own, nodes, graphs.
"""

# mypy: disable-error-code="no-untyped-def"
# (Arguments of kernels are typed when they are compiled.)

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from dagnn.kernels.call import call, ceil_div
from dagnn.ops.triton.primitives import sigmoid, tanh

__all__ = ["cell", "cell_backward", "gates_at", "slopes_at"]

BLOCK = 512  # numbers of a program

# Blocks of rows begin anywhere; a kernel compiled for each alignment would be compiled often.
_ANY = {
    "do_not_specialize": ("numbers", "v", "n", "size"),
    "do_not_specialize_on_alignment": (
        "inner", "gates", "message", "h", "grad", "inner_grad", "gates_grad", "message_grad",
    ),
}  # fmt: skip


@triton.jit
def gates_at(inner, gates, at, H: tl.constexpr, live):
    """r, z, c, and c's part of the recurrent product."""
    r = sigmoid(
        tl.load(inner + at, mask=live, other=0.0) + tl.load(gates + at, mask=live, other=0.0)
    )
    z = sigmoid(
        tl.load(inner + at + H, mask=live, other=0.0)
        + tl.load(gates + at + H, mask=live, other=0.0)
    )
    g = tl.load(gates + at + 2 * H, mask=live, other=0.0)
    c = tanh(tl.load(inner + at + 2 * H, mask=live, other=0.0) + r * g)
    return r, z, c, g


@triton.jit
def slopes_at(inner, gates, inner_grad, gates_grad, at, m, state, H: tl.constexpr, live):
    """Store the gradients of ``inner`` and ``gates``, from those of states; the message's, but for
    what comes through the product."""
    r, z, c, g = gates_at(inner, gates, at, H, live)
    c_grad = state * (1 - z) * (1 - c * c)  # before tanh
    z_grad = state * (m - c) * z * (1 - z)  # before the sigmoid
    r_grad = c_grad * g * r * (1 - r)
    _store_gates(inner_grad + at, r_grad, z_grad, c_grad, H, live)
    _store_gates(gates_grad + at, r_grad, z_grad, c_grad * r, H, live)
    return state * z


@triton.jit
def _store_gates(out, r, z, c, H: tl.constexpr, live):
    tl.store(out, r, mask=live)
    tl.store(out + H, z, mask=live)
    tl.store(out + 2 * H, c, mask=live)


@triton.jit
def _place(v, n, size, H: tl.constexpr, WIDTH: tl.constexpr):
    """Where this program's numbers are: of node ``v`` on every side, side by side."""
    i = tl.program_id(0).to(tl.int64) * WIDTH + tl.arange(0, WIDTH)
    side = i // (size * H)
    return i + (side * (n - 1) + v) * size * H


@triton.jit(**_ANY)
def _cell_kernel(
    inner, gates, message, h, numbers, v, n, size, H: tl.constexpr, WIDTH: tl.constexpr
):
    live = tl.program_id(0).to(tl.int64) * WIDTH + tl.arange(0, WIDTH) < numbers
    at = _place(v, n, size, H, WIDTH)
    _, z, c, _ = gates_at(inner, gates, at // H * (3 * H) + at % H, H, live)
    m = tl.load(message + at, mask=live, other=0.0)
    tl.store(h + at, c + z * (m - c), mask=live)


@triton.jit(**_ANY)
def _cell_backward_kernel(
    inner, gates, message, grad, inner_grad, gates_grad, message_grad, numbers, v, n, size,
    H: tl.constexpr, WIDTH: tl.constexpr, ADD: tl.constexpr,
):  # fmt: skip
    live = tl.program_id(0).to(tl.int64) * WIDTH + tl.arange(0, WIDTH) < numbers
    at = _place(v, n, size, H, WIDTH)
    m = tl.load(message + at, mask=live, other=0.0)
    state = tl.load(grad + at, mask=live, other=0.0)
    wide = at // H * (3 * H) + at % H
    passed = slopes_at(inner, gates, inner_grad, gates_grad, wide, m, state, H, live)
    if ADD:
        passed += tl.load(message_grad + at, mask=live, other=0.0)
    tl.store(message_grad + at, passed, mask=live)


def cell(given: Sequence[Tensor], v: int = 0) -> None:
    """Write the states of node ``v``.

    Args:
        given: ``inner``, ``gates``, ``message``, and where states go. ``[S, n, B, …]`` each
        v: The node.
    """
    h = given[-1]
    _call(_cell_kernel, (*given, *_sizes(h, v)), h)


def cell_backward(
    given: Sequence[Tensor], gradients: Sequence[Tensor], v: int = 0, add: bool = False
) -> None:
    """Write node ``v``'s gradients of ``inner``, ``gates`` and, but for what comes through the
    product, ``message``; with :obj:`add`, the message's is added to what is there.

    Args:
        given: ``inner``, ``gates``, ``message``, and the gradient of the states. ``[S, n, B, …]``
        gradients: What is written, in the same form.
        v: The node.
        add: Whether to add.
    """
    grad = given[-1]
    _call(_cell_backward_kernel, (*given, *gradients, *_sizes(grad, v)), grad, ADD=add)


def _sizes(h: Tensor, v: int) -> tuple[int, int, int, int]:
    sides, n, size, hidden = h.shape
    return sides * size * hidden, v, n, size


def _call(kernel: Any, arguments: tuple[Any, ...], h: Tensor, **constants: bool) -> None:
    sides, _, size, hidden = h.shape
    grid = ceil_div(sides * size * hidden, BLOCK), 1
    call(kernel, grid, arguments, {"H": hidden, "WIDTH": BLOCK, **constants}, {"num_warps": 4})
