r"""What the backward pass of an attention does for all nodes at once, without levels.

Before the level loop, :func:`launch_messages` forms the messages anew, and
:func:`launch_activations` a GRU's gates, so that the forward pass need not keep them. A message
is an average, and comes as a sum: the state ``c`` of the predecessor with the highest score (the
node's *anchor*) and the rest, ``offset = sum_u a_u (h_u - c)``. Gradients of scores are differences
within a neighbourhood; relative to an anchor they are small from the start, and do not cancel.
(Any predecessor would do, were there not such as have no weight and a large state.)

After it, :func:`launch_finish` replaces a GRU's gates by the gradients of their pre-activations
where the level loop could not: in narrow levels, whose programs read one another's columns.
"""

# mypy: disable-error-code="no-untyped-def"
# (Arguments of kernels are typed when they are compiled.)

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from dagnn.kernels.call import call, ceil_div, next_power_of_2
from dagnn.ops.stack import Graph
from dagnn.ops.triton.backward import gates_backward, store_gates
from dagnn.ops.triton.primitives import add_compensated, rows, sigmoid, tanh

__all__ = ["Messages", "activated", "launch_activations", "launch_finish", "launch_messages"]

# Sizes and the alignment of indices differ from batch to batch: no compilation for each.
_ANY = {
    "do_not_specialize": ("nodes", "edges", "levels", "steps", "widest"),
    "do_not_specialize_on_alignment": (
        "level_ptr", "pred_ptr", "pred", "succ_ptr", "succ", "succ_slot",
    ),
}  # fmt: skip
ROWS = 16  # nodes of a tile


class Messages(NamedTuple):
    """Messages of all nodes; zeros where a node has no predecessors."""

    message: Tensor  # [S, N, HP] as the operand of products
    offset: Tensor  # [S, N, H] message - h[anchor], in float32
    anchor: Tensor  # [S, N] the predecessor with the highest score
    weight: Tensor  # [S, E] attention, by slot


@triton.jit
def _tile(HP: tl.constexpr, BM: tl.constexpr, BC: tl.constexpr):
    """The direction, rows and columns of a program."""
    BLOCKS: tl.constexpr = (HP + BC - 1) // BC
    direction = (tl.program_id(1) // BLOCKS).to(tl.int64)
    row = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    return direction, row, tl.program_id(1) % BLOCKS * BC + tl.arange(0, BC)


@triton.jit
def _weight_of(score, live, top):
    """Attention weights but for their sum, relative to the highest score."""
    return tl.where(live, tl.exp(tl.load(score, mask=live, other=0.0) - top), 0.0)


@triton.jit(**_ANY)
def message_kernel(
    h,  # [S, N, H]
    scores,  # [S, E] by slot
    message,  # [S, N, HP] out
    offset,  # [S, N, H] out
    anchor,  # [S, N] out
    weights,  # [S, E] out
    pred_ptr,  # [S, N + 1]
    pred,  # [S, E]
    nodes,
    edges,
    H: tl.constexpr,
    HP: tl.constexpr,
    BM: tl.constexpr,
    BC: tl.constexpr,
):
    direction, row, column = _tile(HP, BM, BC)
    row_mask = row < nodes
    h += direction * nodes * H
    scores += direction * edges
    pred_ptr += direction * (nodes + 1)
    pred += direction * edges
    weights += direction * edges
    stores = tl.min(column) == 0  # what programs of other columns have, too
    start = tl.load(pred_ptr + row, mask=row_mask, other=0)
    degree = tl.load(pred_ptr + row + 1, mask=row_mask, other=0) - start
    chosen = tl.load(pred + start, mask=degree > 0, other=0)
    top = tl.load(scores + start, mask=degree > 0, other=0.0)
    for j in range(1, tl.max(degree)):
        live = j < degree
        score = tl.load(scores + start + j, mask=live, other=-float("inf"))
        higher = score > top
        top = tl.where(higher, score, top)
        chosen = tl.where(higher, tl.load(pred + start + j, mask=live, other=0), chosen)
    state = rows(h + chosen * H, column, degree > 0, column < H)
    out = tl.zeros((BM, BC), dtype=tl.float32)
    lost = tl.zeros((BM, BC), dtype=tl.float32)
    total = tl.zeros((BM,), dtype=tl.float32)
    lost_total = total
    # An error of the offset has all gradients of the node's scores err in one direction, and
    # where they are thousands, sums of them feel it.
    for j in range(tl.max(degree)):
        live = j < degree
        u = tl.load(pred + start + j, mask=live, other=0)
        weight = _weight_of(scores + start + j, live, top)
        term = weight[:, None] * (rows(h + u * H, column, live, column < H) - state)
        out, lost = add_compensated(out, lost, term)
        total, lost_total = add_compensated(total, lost_total, weight)
    inverse = tl.where(degree > 0, 1 / total, 0.0)
    out *= inverse[:, None]
    if stores:
        for j in range(tl.max(degree)):
            live = j < degree
            weight = _weight_of(scores + start + j, live, top) * inverse
            tl.store(weights + start + j, weight, mask=live)
    row += direction * nodes
    mask = row_mask[:, None] & (column < H)[None, :]
    tl.store(offset + row[:, None] * H + column[None, :], out, mask=mask)
    padded = row_mask[:, None] & (column < HP)[None, :]
    tl.store(message + row[:, None] * HP + column[None, :], state + out, mask=padded)
    tl.store(anchor + row, chosen, mask=row_mask & stores)


@triton.jit
def _bias(bias, column, H: tl.constexpr):
    return tl.load(bias + column, mask=column < H, other=0.0)[None, :]


@triton.jit(**_ANY)
def activation_kernel(
    gates,  # [S, N, 4, HP] in: pre-activations without biases;
    activations,  # the same memory, out: r, z, n, n's message part
    bias_ih,  # [S, 3H]
    bias_hh,  # [S, 3H]
    nodes,
    H: tl.constexpr,
    HP: tl.constexpr,
    BM: tl.constexpr,
    BC: tl.constexpr,
):
    direction, row, column = _tile(HP, BM, BC)
    row_mask = row < nodes
    row += direction * nodes
    bias_ih += direction * 3 * H
    bias_hh += direction * 3 * H
    at = gates + row * (4 * HP)
    r = rows(at, column, row_mask, column < H)
    r = sigmoid(r + _bias(bias_ih, column, H) + _bias(bias_hh, column, H))
    z = rows(at + HP, column, row_mask, column < H)
    z = sigmoid(z + _bias(bias_ih + H, column, H) + _bias(bias_hh + H, column, H))
    n_message = rows(at + 3 * HP, column, row_mask, column < H) + _bias(bias_hh + 2 * H, column, H)
    n = rows(at + 2 * HP, column, row_mask, column < H) + _bias(bias_ih + 2 * H, column, H)
    n = tanh(n + r * n_message)
    if activations.dtype.element_ty == tl.float16:
        # Beyond its numbers, tanh is flat, and the gradient zero (unless r is very small).
        n_message = tl.minimum(tl.maximum(n_message, -65504.0), 65504.0)
    # Padding is not read before gradients, which are zeros there, take its place.
    store_gates(activations, row, row_mask, column, r, z, n, n_message, HP, True)


@triton.jit
def _level_width(level_ptr, row, levels, steps):
    """How many nodes the level of each row has: by search in the ascending starts of levels."""
    low = row * 0
    high = low + levels
    for _ in range(steps):
        middle = (low + high) // 2
        searching = high - low > 1
        before = tl.load(level_ptr + middle, mask=searching, other=0) <= row
        low = tl.where(searching & before, middle, low)
        high = tl.where(searching & (before == 0), middle, high)
    return tl.load(level_ptr + low + 1) - tl.load(level_ptr + low)


@triton.jit(**_ANY)
def finish_kernel(
    grad,  # [S, N, H] of the states, from outside
    activations,  # [S, N, 4, HP] in: r, z, n, n's message part;
    gates,  # the same memory, out: the gradients of their pre-activations
    message,  # [S, N, HP]
    d_message,  # [S, N, H]
    weights,  # [S, E] attention, by slot
    key,  # [S, H]
    key_score,  # [S, N]
    level_ptr,  # [S, D + 1]
    succ_ptr,  # [S, N + 1]
    succ,  # [S, E]
    succ_slot,  # [S, E]
    nodes,
    edges,
    levels,
    steps,  # of a search among the levels
    widest,  # nodes of a level, up to which it is narrow
    H: tl.constexpr,
    HP: tl.constexpr,
    BM: tl.constexpr,
    BC: tl.constexpr,
):
    direction, row, column = _tile(HP, BM, BC)
    column_mask = column < H
    row_mask = row < nodes
    width = _level_width(level_ptr + direction * (levels + 1), row, levels, steps)
    row_mask = row_mask & (width <= widest)
    succ_ptr += direction * (nodes + 1)
    succ += direction * edges
    succ_slot += direction * edges
    weights += direction * edges
    d_message += direction * nodes * H
    start = tl.load(succ_ptr + row, mask=row_mask, other=0)
    degree = tl.load(succ_ptr + row + 1, mask=row_mask, other=0) - start
    row += direction * nodes
    dh = rows(grad + row * H, column, row_mask, column_mask)
    own_key = tl.load(key + direction * H + column, mask=column_mask, other=0.0)
    dh += tl.load(key_score + row, mask=row_mask, other=0.0)[:, None] * own_key[None, :]
    for j in range(tl.max(degree)):
        live = j < degree
        v = tl.load(succ + start + j, mask=live, other=0)
        slot = tl.load(succ_slot + start + j, mask=live, other=0)
        weight = tl.load(weights + slot, mask=live, other=0.0)
        dh += weight[:, None] * rows(d_message + v * H, column, live, column_mask)
    dr, dz, dn, dn_message, _ = gates_backward(
        dh, message, activations, row, row_mask, column, H, HP
    )
    store_gates(gates, row, row_mask, column, dr, dz, dn, dn_message, HP, True)


def launch_messages(h: Tensor, scores: Tensor, graph: Graph, operand: torch.dtype) -> Messages:
    directions, nodes, hidden = h.shape
    padded = hidden if operand == h.dtype else hidden + -hidden % 8
    out = Messages(
        h.new_empty(directions, nodes, padded, dtype=operand),
        torch.empty_like(h),
        graph.pred.new_empty(directions, nodes),
        h.new_empty(directions, graph.pred.size(1)),
    )
    arguments = [h, scores, *out, graph.pred_ptr, graph.pred, nodes, graph.pred.size(1)]
    _launch(message_kernel, arguments, graph, H=hidden, HP=padded)
    return out


def activated(gates: Tensor) -> Tensor:
    """The view of a gates buffer while it holds activations. They are in [-1, 1] (but for n's
    message part, which is not large), where fp16 has 3 bits more than bf16; gradients, which take
    their place, may be too small for it."""
    return gates.view(torch.float16) if gates.dtype == torch.bfloat16 else gates


def launch_activations(gates: Tensor, biases: list[Tensor], graph: Graph) -> None:
    """Turn pre-activations of a GRU ``[S, N, 4, HP]`` without biases into gates, in place."""
    arguments = [gates, activated(gates), *biases, gates.size(1)]
    _launch(activation_kernel, arguments, graph, H=biases[0].size(1) // 3, HP=gates.size(2) // 4)


def launch_finish(
    grad: Tensor,
    gates: Tensor,
    messages: Messages,
    key: Tensor,
    key_score: Tensor,
    graph: Graph,
    widest: int,
) -> None:
    levels = graph.level_ptr.size(1) - 1
    arguments = [
        grad,
        activated(gates),
        gates,
        messages.message,
        messages.offset,
        messages.weight,
        key,
        key_score,
        graph.level_ptr,
        graph.succ_ptr,
        graph.succ,
        graph.succ_slot,
        grad.size(1),
        graph.pred.size(1),
        levels,
        levels.bit_length(),
        widest,
    ]
    _launch(finish_kernel, arguments, graph, H=grad.size(2), HP=messages.message.size(2))


def _launch(kernel: Any, arguments: list[Any], graph: Graph, **sizes: int) -> None:
    directions, nodes = graph.order.shape
    if not nodes:
        return
    columns = max(16, min(128, next_power_of_2(sizes["HP"])))
    grid = ceil_div(nodes, ROWS), directions * ceil_div(sizes["HP"], columns)
    call(kernel, grid, arguments, {**sizes, "BM": ROWS, "BC": columns}, {})
