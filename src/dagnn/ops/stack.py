r"""The backend-independent part of the fused recurrence: what needs no loop over levels.

A stack of layers in all directions at once. Per layer, the input half of the cell is one large
product before the level loop, and all weight gradients are a few large products after it; the
level loop itself is the backend's (:mod:`dagnn.ops.cpu`, ``dagnn.ops.triton``).

The layout that makes this cheap: a GRU's four pre-activations stand side by side in one buffer,

    ``gates`` ``[S, N, W]`` = ``( n's input part | gap | r | z | n's message part | gap )``

The input product fills the first three blocks, the recurrent product of a level adds to the last
three, and after the activations the buffer holds what the backward pass needs, :math:`(n, r, z,
W_{hn} m + b_{hn})`. The gradients come back in the same layout: the first three blocks are the
gradient of the input product, the last three that of the recurrent product. Products are written
to cache lines as a whole, so r starts with one (:func:`dagnn.ops.cpu_memory.aligned`), and so does
every row; weights of the first gap are zero.

A linear cell has one block, which is at once the input product, the sum, and the state.

Gradients of states are the results of products too, and have a gap at the end of each row.

All tensors are level-major and have a leading direction, :math:`S \in \{1, 2\}`.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from dagnn.ops.cpu_memory import aligned, new_buffer

__all__ = [
    "Backend",
    "Graph",
    "Layer",
    "LayerGradients",
    "Saved",
    "backward",
    "forward",
    "gates_width",
]


class Graph(NamedTuple):
    """The tensors of a schedule that the recurrence reads."""

    order: Tensor  # [S, N]
    rank: Tensor  # [S, N]
    level_ptr: Tensor  # [S, D + 1]; levels without nodes come last, after all others
    pred_ptr: Tensor  # [S, N + 1]
    pred: Tensor  # [S, E]
    succ_ptr: Tensor  # [S, N + 1]
    succ: Tensor  # [S, E]
    succ_slot: Tensor  # [S, E]


class Layer(NamedTuple):
    """One layer's parameters as the level loop wants them, directions stacked."""

    recurrent: Tensor  # [S, 3H, H] (r, z, n) for a GRU, [S, H, H] for a linear cell
    bias: Tensor  # [S, W] as the gates, zero in gaps; or [S, H]
    key: Tensor | None  # [S, H] attention
    gate_map: Tensor | None  # [S, 2H, H] gated sum: gate, then map
    gate_bias: Tensor | None  # [S, H]
    edge_score: Tensor | None  # [S, E] by slot


class Saved(NamedTuple):
    """What a layer's forward pass leaves for its backward pass (on the GPU, less than this)."""

    gates: Tensor | None  # [S, N, W] (n, r, z, W_hn m + b_hn); a linear cell has none
    message: Tensor | None  # [S, N, H]
    # attention: the weights [S, E] by slot; gated sum: the gate and the map [S, N, 2H]
    aggregate: Tensor


class LayerGradients(NamedTuple):
    gates: Tensor  # [S, N, W], or for a linear cell [S, N, H] with a gap
    edge_score: Tensor | None  # attention: [S, E]
    key_score: Tensor | None  # attention: [S, N], the sum of edge_score's gradient over successors
    gate_map: Tensor | None  # gated sum: [S, N, 2H], before the sigmoid
    bias: Tensor | None = None  # [S, W] the sum of gates over nodes, if the level loop has it


class Backend(Protocol):
    """The level loop of one layer."""

    def forward(
        self, cell: str, gates: Tensor, layer: Layer, graph: Graph, save: bool
    ) -> tuple[Tensor, Saved | None]:
        """States ``[S, N, H]`` from a gates buffer that holds the input product without bias, and
        in a GRU's last block nothing yet (it is consumed)."""
        ...

    def backward(
        self,
        cell: str,
        grad: Tensor,
        h: Tensor,
        saved: Saved,
        layer: Layer,
        graph: Graph,
        d_gates: Tensor,
    ) -> LayerGradients:
        """Gradients from that of the states, ``[S, N, H]`` with a gap (it is consumed); those of
        the gates are written to a buffer, which for a linear cell is the one of the states."""
        ...


# A layer's parameters, directions stacked: the cell's, then the aggregator's. (The query's weight
# of an attention is not among them: it cancels in the softmax.)
CELL_PARAMETERS = {
    "gru": ("weight_ih", "weight_hh", "bias_ih", "bias_hh"),
    "linear": ("input.weight", "message.weight", "input.bias"),
}
AGGREGATOR_PARAMETERS = {
    "attention": ("key.weight",),
    "gated_sum": ("gate.weight", "gate.bias", "map.weight"),
}


def gates_width(hidden: int) -> int:
    """W, the width of a GRU's gates."""
    return aligned(aligned(hidden) + 3 * hidden)


class _Packed(NamedTuple):
    input_weight: Tensor  # [S, W', C] (n, gap, r, z) or [S, H, C]
    layer: Layer


def _pack(aggregator: str, cell: str, stacked: list[Tensor], edge_score: Tensor | None) -> _Packed:
    """Put the blocks of a GRU into the order of the gates buffer."""
    if cell == "gru":
        weight_ih, recurrent, bias_ih, bias_hh = stacked[:4]
        directions, _, hidden = recurrent.shape
        r = aligned(hidden)
        n_message = r + 2 * hidden
        input_weight = weight_ih.new_zeros(directions, n_message, weight_ih.size(2))
        bias = bias_ih.new_zeros(directions, gates_width(hidden))
        for given, out in (weight_ih, input_weight), (bias_ih, bias):  # (r, z, n) -> (n, r, z)
            out[:, :hidden] = given[:, 2 * hidden :]
            out[:, r:n_message] = given[:, : 2 * hidden]
        bias[:, r : r + 3 * hidden] += bias_hh
        rest = stacked[4:]
    else:
        input_weight, recurrent, bias = stacked[:3]
        rest = stacked[3:]
    key = gate_map = gate_bias = None
    if aggregator == "attention":
        key = rest[0].flatten(1)
    else:
        gate_map, gate_bias = torch.cat([rest[0], rest[2]], 1), rest[1]
    return _Packed(input_weight, Layer(recurrent, bias, key, gate_map, gate_bias, edge_score))


def forward(
    backend: Backend,
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
    below = _level_major(x, graph)
    states, saved = [], []
    for layer_parameters, edge_score in zip(parameters, edge_scores, strict=True):
        packed = _pack(aggregator, cell, layer_parameters, edge_score)
        gates = _input_product(below, packed)
        below, keep = backend.forward(cell, gates, packed.layer, graph, save)
        states.append(below)
        if keep is not None:
            saved.append(keep)
    return states, saved


def _level_major(x: Tensor, graph: Graph) -> Tensor:
    """Inputs in the order of computation. ``[S, N, C]``"""
    if x.dim() == 3:
        return x
    return x.index_select(0, graph.order.flatten()).view(*graph.order.shape, x.size(1))


def _input_product(below: Tensor, packed: _Packed) -> Tensor:
    width = packed.input_weight.size(1)
    gates = new_buffer(below, *below.shape[:2], packed.layer.bias.size(1))
    for d in range(below.size(0)):
        torch.mm(below[d], packed.input_weight[d].t(), out=gates[d, :, :width])
    return gates


def backward(
    backend: Backend,
    aggregator: str,
    cell: str,
    grads: list[Tensor | None],
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
    above: Tensor | None = None  # gradient that the layer above sends to this layer's states
    all_d_gates: Tensor | None = None  # layers take turns with it
    directions, nodes, hidden = states[0].shape
    if cell == "gru":
        all_d_gates = new_buffer(states[0], directions, nodes, gates_width(hidden))
        all_d_gates[:, :, hidden : aligned(hidden)] = 0
    for i in reversed(range(len(states))):
        below = states[i - 1] if i else _level_major(x, graph)
        packed = _pack(aggregator, cell, parameters[i], edge_scores[i])
        grad = _sum(grads[i], above, states[i])
        d_gates = grad if all_d_gates is None else all_d_gates
        out = backend.backward(cell, grad, states[i], saved[i], packed.layer, graph, d_gates)
        parameter_grads.append(_weight_gradients(cell, out, below, states[i], saved[i], graph))
        score_grads.append(out.edge_score)
        if i or need_x:
            above = _input_gradient(out.gates, packed.input_weight, grad)
    if not need_x:
        return None, parameter_grads[::-1], score_grads[::-1]
    assert above is not None
    above = above[:, :, : x.size(-1)]
    if x.dim() == 3:
        grad_x = above.contiguous()
    else:
        # Every node has one position per direction: a gather, and a fixed order of the sum.
        grad_x = above[0].index_select(0, graph.rank[0])
        if above.size(0) == 2:
            grad_x += above[1].index_select(0, graph.rank[1])
    return grad_x, parameter_grads[::-1], score_grads[::-1]


def _input_gradient(gates: Tensor, weight: Tensor, free: Tensor) -> Tensor:
    """``[S, N, C]`` with a gap, in the place of a tensor that is no longer needed, if it fits."""
    directions, width, channels = weight.shape
    out = free
    if free.size(2) != aligned(channels) or free is gates:
        out = new_buffer(gates, directions, gates.size(1), aligned(channels))
    for d in range(directions):
        torch.mm(gates[d, :, :width], weight[d], out=out[d, :, :channels])
    return out


def _sum(grad: Tensor | None, above: Tensor | None, like: Tensor) -> Tensor:
    """A tensor of our own with a gap, since the backend consumes it."""
    hidden = like.size(2)
    if above is None:
        out = new_buffer(like, *like.shape[:2], aligned(hidden))
        out[:, :, :hidden] = 0 if grad is None else grad
        return out
    if grad is not None:
        above[:, :, :hidden] += grad
    return above


def _weight_gradients(
    cell: str, out: LayerGradients, below: Tensor, h: Tensor, saved: Saved, graph: Graph
) -> list[Tensor]:
    assert saved.message is not None
    hidden = h.size(2)
    first = graph.level_ptr[:, 1] if h.size(1) else None  # the messages of level 0 are zero
    if cell == "gru":
        assert out.bias is not None
        r = aligned(hidden)
        n_message = r + 2 * hidden
        sums = out.gates[:, :, r : r + 3 * hidden]
        weight_ih = _weight_gradient(out.gates[:, :, :n_message], below)
        grads = [
            torch.cat([weight_ih[:, r:], weight_ih[:, :hidden]], 1),  # (n, r, z) -> (r, z, n)
            _weight_gradient(sums, saved.message, first).contiguous(),
            torch.cat([out.bias[:, r:n_message], out.bias[:, :hidden]], 1),
            out.bias[:, r : r + 3 * hidden].contiguous(),
        ]
    else:
        gates = out.gates[:, :, :hidden]
        grads = [
            _weight_gradient(gates, below).contiguous(),
            _weight_gradient(gates, saved.message, first).contiguous(),
            gates.sum(1),
        ]
    if out.key_score is not None:
        return [*grads, out.key_score.unsqueeze(1) @ h]
    assert out.gate_map is not None
    gate, value = _weight_gradient(out.gate_map, h).split(hidden, 1)
    gate_bias = out.gate_map[:, :, :hidden].sum(1)
    return [*grads, gate.clone(), gate_bias, value.clone()]


def _weight_gradient(gates: Tensor, a: Tensor, first: Tensor | None = None) -> Tensor:
    """``[S, W, C]``, a view, from ``[S, N, W]`` and ``[S, N, C]``; of the rows from first on."""
    directions, _, channels = a.shape
    out = new_buffer(a, directions, gates.size(2), aligned(channels))[:, :, :channels]
    for d in range(directions):
        rows = slice(0 if first is None else int(first[d]), None)
        torch.mm(gates[d, rows].t(), a[d, rows], out=out[d])
    return out
