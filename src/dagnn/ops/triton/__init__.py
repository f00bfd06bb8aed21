r"""The recurrence on the GPU: all levels and directions of a layer in one persistent kernel.

One cooperative launch holds as many programs as the device has multiprocessors; a level starts
when the tiles of the level before have arrived (a counter per level, see
:mod:`~dagnn.ops.triton.primitives`). Where a cooperative launch is impossible, and in Triton's
interpreter (which runs programs one after the other), one launch per level does the same work.
Where levels are narrow and many, two layers run at the same time (:mod:`~dagnn.ops.triton.wave`).

The gates buffer is ``[S, N, 4, HP]`` = ``(r, z, n's input part, n's message part)``: the input
product fills the first three blocks with PyTorch's own weights as they are, the kernel does the
rest, biases included, and the backward kernel leaves gradients in the same layout. ``HP`` is the
hidden size, in half precision padded to a multiple of 8, since products of unaligned rows are
several times slower.

Under an attention, the forward pass keeps the states and the scores alone. Backward forms a
layer's messages and pre-activations anew, for all nodes at once, and gradients take their place:
one gates buffer is alive at a time. (A gated sum keeps them, in whose place a large product's
rounding would be another than the level loop's.)
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from dagnn.ops.float32 import exact_bmm, float32_products
from dagnn.ops.stack import Graph, LayerGradients, Saved
from dagnn.ops.triton.gather import Messages, launch_activations, launch_messages
from dagnn.ops.triton.launch import (
    Tiles,
    launch_attention_backward,
    launch_forward,
    launch_gated_sum_backward,
    level_precision,
)
from dagnn.ops.triton.operands import split_rows, split_weight
from dagnn.ops.triton.sums import sum_nodes
from dagnn.ops.triton.wave import (
    UpperAndLower,
    forward_precision,
    launch_wave_backward,
    launch_wave_forward,
    wave_tiles,
)

__all__ = ["backward", "forward"]

_DENSE = torch.contiguous_format
_HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}


def forward(
    aggregator: str,
    cell: str,
    x: Tensor,
    graph: Graph,
    parameters: list[list[Tensor]],
    edge_scores: list[Tensor | None],
    precision: str,
    save: bool,
) -> tuple[list[Tensor], list[Saved]]:
    """States ``[S, N, H]`` of every layer, and what the backward pass needs."""
    hidden = parameters[0][1].size(2)
    in_kernel = forward_precision(precision, hidden, cell == "gru")
    tiles = wave_tiles(aggregator, graph, hidden, in_kernel)
    operand = _HALF.get(precision)
    if aggregator == "attention" and operand is not None:
        # Not in bf16: states are split, as features are, since 8 bits are too few (see `operands`).
        operand = torch.float16 if precision == "fp16" and cell == "gru" else None
    below = x
    states: list[Tensor] = []
    saved: list[Saved] = []
    for turn in _turns(len(parameters), tiles):
        first, last = turn[0], turn[-1] == len(parameters) - 1
        gates = _forward_gates(aggregator, cell, below, parameters[first][0], graph, precision)
        if tiles is not None and len(turn) == 2:
            both = slice(first, first + 2)
            h, keep = launch_wave_forward(
                cell, gates, parameters[both], edge_scores[both], graph, precision, save, tiles
            )
            below = h[1] if last or operand is None else _operand(h[1], "fp16")
        else:
            own, below, kept = launch_forward(
                aggregator,
                cell,
                gates,
                parameters[first],
                edge_scores[first],
                graph,
                precision,
                save,
                None if last else operand,
            )
            h, keep = [own], [kept]
        del gates  # before the next layer's is made
        states += h
        saved += keep if save else []
    return states, saved


def _turns(layers: int, tiles: Tiles | None) -> list[range]:
    """The layers that run at the same time: one, or in a wavefront two."""
    size = 1 if tiles is None else 2
    return [range(i, min(i + size, layers)) for i in range(0, layers, size)]


def backward(
    aggregator: str,
    cell: str,
    grads: list[Tensor],
    x: Tensor,
    states: list[Tensor],
    saved: list[Saved],
    graph: Graph,
    parameters: list[list[Tensor]],
    edge_scores: list[Tensor | None],
    precision: str,
    need_x: bool,
) -> tuple[Tensor | None, list[list[Tensor]], list[Tensor | None]]:
    """Gradients of x, of all parameters (as they came) and of the edge scores."""
    parameter_grads: list[list[Tensor]] = []
    score_grads: list[Tensor | None] = []
    grad: Tensor | None = None
    hidden = parameters[0][1].size(2)
    tiles = wave_tiles(aggregator, graph, hidden, level_precision(precision, hidden, True))
    for turn in reversed(_turns(len(states), tiles)):
        layers = [
            _Layer(
                parameters[i],
                _level_major(_operand(states[i - 1] if i else x, precision), graph),
                states[i],
                saved[i],
            )
            for i in reversed(turn)
        ]
        given = [
            _incoming(grads[i], grad if i == turn[-1] else None, consumed=i == turn[0])
            for i in reversed(turn)
        ]
        grad = None
        if tiles is not None and len(turn) == 2:
            found = _pair_backward(cell, given, layers, graph, precision, tiles)
        else:
            found = [_levels_backward(aggregator, cell, given[0], layers[0], graph, precision)]
        # From here on, buffers are dropped as soon as they are done with.
        del given
        for i in reversed(turn):
            layer, (out, message) = layers.pop(0), found.pop(0)
            gates = out.gates.to(layer.below.dtype)
            own = _cell_gradients(cell, gates, layer.below, message, layer.parameters, precision)
            del message
            parameter_grads.append(own + _aggregator_gradients(out, layer.states, precision))
            score_grads.append(out.edge_score)
            if i == turn[0] and (i or need_x):  # within a turn, the kernel has done it
                grad = _input_gradient(cell, gates, layer.parameters[0], precision)
            del layer, out, gates
    if grad is None:
        grad_x = None
    elif x.dim() == 3:
        grad_x = grad.contiguous()
    else:
        # Every node has one position per direction: a gather, and a fixed order of the sum.
        grad_x = grad[0].index_select(0, graph.rank[0])
        if grad.size(0) == 2:
            grad_x += grad[1].index_select(0, graph.rank[1])
    return grad_x, parameter_grads[::-1], score_grads[::-1]


class _Layer(NamedTuple):
    """What the backward pass of a layer reads."""

    parameters: list[Tensor]
    below: Tensor  # [S, N, CP] its input, as the operand of products
    states: Tensor  # [S, N, H]
    saved: Saved


def _incoming(grad: Tensor, above: Tensor | None, consumed: bool) -> Tensor:
    """The gradient of a layer's states, contiguous and aligned, from the loss and the layer above;
    a tensor of our own, if the kernels consume it."""
    if above is not None:
        return above + grad
    if consumed or not grad.is_contiguous() or grad.data_ptr() % 16:
        return grad.clone(memory_format=_DENSE)
    return grad


def _input_gradient(cell: str, gates: Tensor, weight: Tensor, precision: str) -> Tensor:
    operand = _input_weight(weight, cell, precision)
    width = operand.size(1)
    grad = _product(gates[:, :, :width], operand[:, : gates.size(2)], precision)  # [S, N, CP]
    return grad[:, :, : weight.size(2)]


def _levels_backward(
    aggregator: str, cell: str, grad: Tensor, layer: _Layer, graph: Graph, precision: str
) -> tuple[LayerGradients, Tensor]:
    """What the level loop finds, and the messages as the operand of products ``[S, N, HP]``."""
    tensors, below, h, saved = layer
    if aggregator == "gated_sum":
        assert saved.message is not None
        out = launch_gated_sum_backward(cell, grad, h, saved, tensors, graph, precision)
        return out, saved.message.to(below.dtype)
    messages, gates = _formed_anew(cell, layer, graph, precision)
    out = launch_attention_backward(cell, grad, h, messages, gates, tensors, graph, precision)
    return out, messages.message


def _pair_backward(
    cell: str, grads: list[Tensor], layers: list[_Layer], graph: Graph, precision: str, tiles: Tiles
) -> list[tuple[LayerGradients, Tensor]]:
    """The same for two layers with attention, the upper one first."""
    formed = [_formed_anew(cell, layer, graph, precision) for layer in layers]
    messages = tuple(message for message, _ in formed)
    gates = tuple(gates for _, gates in formed if gates is not None)
    out = launch_wave_backward(
        cell,
        UpperAndLower(
            tuple(layer.parameters for layer in layers),
            tuple(grads),
            tuple(layer.states for layer in layers),
            messages,
            gates or None,
        ),
        graph,
        precision,
        tiles,
    )
    return [(found, own.message) for found, own in zip(out, messages, strict=True)]


def _formed_anew(
    cell: str, layer: _Layer, graph: Graph, precision: str
) -> tuple[Messages, Tensor | None]:
    """Messages, and a GRU's gates."""
    tensors, below, h, saved = layer
    messages = launch_messages(h, saved.aggregate, graph, below.dtype)
    if cell != "gru":
        return messages, None
    return messages, _gates_anew(below, messages.message, tensors, graph, precision)


def _gates_anew(
    below: Tensor, message: Tensor, tensors: list[Tensor], graph: Graph, precision: str
) -> Tensor:
    """A GRU's gates, as the forward pass had them. ``[S, N, 4 * HP]``"""
    padded = message.size(2)
    gates = _input_product(below, tensors[0], "gru", precision)
    weight = _operand(tensors[1], precision, tensors[1].size(2))  # [S, 3 * HP, HP]
    both, own = weight[:, : 2 * padded].mT, weight[:, 2 * padded :].mT
    _write_product(gates[:, :, : 2 * padded], message, both, precision, add=True)
    _write_product(gates[:, :, 3 * padded :], message, own, precision)
    launch_activations(gates, tensors[2:4], graph)
    return gates


def _forward_gates(
    aggregator: str, cell: str, below: Tensor, weight: Tensor, graph: Graph, precision: str
) -> Tensor:
    """The input product that the forward kernel starts with. Under an attention, it is more
    accurate than the precision asks for: see :mod:`~dagnn.ops.triton.operands`.

    Returns:
        ``[S, N, 3 * HP]`` or ``[S, N, HP]`` in float32; of a gated sum, a gates buffer.
    """
    if aggregator == "gated_sum":
        below = _level_major(_operand(below, precision), graph)
        return _input_product(below, weight, cell, precision)
    if precision == "fp32":
        return _product(_level_major(below, graph), weight.mT, precision)
    if below.dtype == torch.float16:
        return _product(below, _input_weight(weight, cell, "fp16").mT, precision)
    rows = _rows(weight, cell)
    return _product(split_rows(below, graph.order), split_weight(weight, rows).mT, precision)


def _input_product(below: Tensor, weight: Tensor, cell: str, precision: str) -> Tensor:
    """A gates buffer with the input product in its first blocks. ``[S, N, 4 * HP]``"""
    weight = _input_weight(weight, cell, precision)  # [S, 3 * HP, CP]
    width = weight.size(1)
    gates = below.new_empty(*below.shape[:2], width * 4 // 3 if cell == "gru" else width)
    _write_product(gates[:, :, :width], below, weight.mT, precision)
    return gates


def _cell_gradients(
    cell: str,
    gates: Tensor,
    below: Tensor,
    message: Tensor,
    tensors: list[Tensor],
    precision: str,
) -> list[Tensor]:
    directions, rows, channels = tensors[0].shape
    hidden = tensors[1].size(2)
    bias = sum_nodes(gates)
    if cell == "linear":
        weight_ih = _product(gates.mT, below, precision)[:, :, :channels]
        weight_hh = _product(gates.mT, message, precision)[:, :, :hidden]
        return [weight_ih.contiguous(), weight_hh.contiguous(), bias]
    padded = message.size(2)
    weight_ih = _product(gates[:, :, : 3 * padded].mT, below, precision)
    if (padded, below.size(2)) != (hidden, channels):
        weight_ih = weight_ih.view(directions, 3, padded, -1)[:, :, :hidden, :channels]
        weight_ih = weight_ih.reshape(directions, rows, channels)
    # The product with n's input part is not needed, but one product is faster than two.
    weight_hh = _product(gates.mT, message, precision).view(directions, 4, padded, padded)
    bias = bias.view(directions, 4, padded)[:, :, :hidden]
    return [
        weight_ih,
        _message_blocks(weight_hh[:, :, :hidden, :hidden]),
        bias[:, :3].reshape(directions, rows).contiguous(),
        _message_blocks(bias),
    ]


def _message_blocks(blocks: Tensor) -> Tensor:
    """r, z and n's message part, of four blocks. ``[S, 3H, …]``"""
    return torch.cat([blocks[:, :2], blocks[:, 3:]], 1).flatten(1, 2)


def _aggregator_gradients(out: LayerGradients, h: Tensor, precision: str) -> list[Tensor]:
    if out.key_score is not None:
        # Not a product, whose lower precision this sum, which cancels, would feel.
        return [sum_nodes(h, out.key_score).unsqueeze(1)]
    assert out.gate_map is not None
    hidden = h.size(2)
    state = _operand(h, precision)
    weight = _product(out.gate_map.to(state.dtype).mT, state, precision)[:, :, :hidden]
    bias = sum_nodes(out.gate_map[:, :, :hidden])
    return [weight[:, :hidden].contiguous(), bias, weight[:, hidden:].contiguous()]


def _operand(x: Tensor, precision: str, rows: int = 0) -> Tensor:
    """A tensor as the operand of a product: in half precision, with padded rows, and with the
    second last dimension, taken as blocks of :obj:`rows`, padded too."""
    half = _HALF.get(precision)
    if half is None:
        return x
    if x.size(-1) % 8 == 0 and rows % 8 == 0:
        return x.to(half)
    blocks = x.unflatten(-2, (-1, rows)) if rows else x
    shape = [*blocks.shape[:-1], blocks.size(-1) + -blocks.size(-1) % 8]
    if rows:
        shape[-2] += -rows % 8
    padded = x.new_zeros(shape, dtype=half)  # a fill and a copy; torch's pad and cast take four
    inside = padded[..., : blocks.size(-1)]
    if rows:
        inside = inside[..., :rows, :]
    inside.copy_(blocks)
    return padded.flatten(-3, -2) if rows else padded


def _input_weight(weight: Tensor, cell: str, precision: str) -> Tensor:
    """The input weight as an operand, each gate's rows padded too. ``[S, 3 * HP, CP]``"""
    return _operand(weight, precision, _rows(weight, cell))


def _rows(weight: Tensor, cell: str) -> int:
    """How many rows of an input weight each gate has."""
    return weight.size(1) // (3 if cell == "gru" else 1)


def _level_major(x: Tensor, graph: Graph) -> Tensor:
    if x.dim() == 3:
        return x
    return x.index_select(0, graph.order.flatten()).view(*graph.order.shape, x.size(1))


def _product(a: Tensor, b: Tensor, precision: str) -> Tensor:
    """A batched product whose sums and results are float32, whatever its operands."""
    if a.dtype == torch.float32:
        return exact_bmm(a, b) if precision == "fp32" else torch.bmm(a, b)
    if a.device.type == "cuda":
        return torch.bmm(a, b, out_dtype=torch.float32)
    return torch.bmm(a.float(), b.float())


def _write_product(out: Tensor, a: Tensor, b: Tensor, precision: str, *, add: bool = False) -> None:
    """Write a batched product to a tensor of the operands' type, or add it to what is there."""
    if precision == "fp32" and float32_products() != "highest":
        product = exact_bmm(a, b)
        out.add_(product) if add else out.copy_(product)
    elif add:
        out.baddbmm_(a, b)
    else:
        torch.bmm(a, b, out=out)
