r"""The backend-independent part of the fused recurrence: what needs no loop over levels.

A stack of layers in all directions at once. Per layer, the input half of the cell is one large
product before the level loop, and all weight gradients are a few large products after it; the
level loop itself is the backend's (:mod:`dagnn.ops.cpu`, ``dagnn.ops.triton``).

The layout that makes this cheap: a GRU's four pre-activations stand side by side in one buffer,

    ``gates`` ``[S, N, 4H]`` = ``( n's input part | r | z | n's message part )``

The input product fills the first three blocks, the recurrent product of a level adds to the last
three, and after the activations the buffer holds what the backward pass needs, :math:`(n, r, z,
W_{hn} m + b_{hn})`. The gradients come back in the same layout: the first three blocks are the
gradient of the input product, the last three that of the recurrent product.

A linear cell has one block, which is at once the input product, the sum, and the state.

All tensors are level-major and have a leading direction, :math:`S \in \{1, 2\}`.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from dagnn.ops.cpu_memory import new_buffer

__all__ = ["Backend", "Graph", "Layer", "LayerGradients", "Saved", "backward", "forward"]


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
    bias: Tensor  # [S, 4H] (n, r, z, n's message part) or [S, H]
    key: Tensor | None  # [S, H] attention
    gate_map: Tensor | None  # [S, 2H, H] gated sum: gate, then map
    gate_bias: Tensor | None  # [S, H]
    edge_score: Tensor | None  # [S, E] by slot


class Saved(NamedTuple):
    """What a layer's forward pass leaves for its backward pass (on the GPU, less than this)."""

    gates: Tensor | None  # [S, N, 4H] (n, r, z, W_hn m + b_hn); a linear cell has none
    message: Tensor | None  # [S, N, H]
    # attention: the weights [S, E] by slot; gated sum: the gate and the map [S, N, 2H]
    aggregate: Tensor


class LayerGradients(NamedTuple):
    gates: Tensor  # [S, N, 4H], or [S, N, H] for a linear cell
    edge_score: Tensor | None  # attention: [S, E]
    key_score: Tensor | None  # attention: [S, N], the sum of edge_score's gradient over successors
    gate_map: Tensor | None  # gated sum: [S, N, 2H], before the sigmoid
    bias: Tensor | None = None  # [S, 4H] the sum of gates over nodes, if the level loop has it


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
        """Gradients from that of the states ``[S, N, H]`` (it is consumed); those of the gates
        are written to a buffer, which for a linear cell is the one of the states."""
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


class _Packed(NamedTuple):
    input_weight: Tensor  # [S, 3H, C] (n, r, z) or [S, H, C]
    layer: Layer


def _pack(aggregator: str, cell: str, stacked: list[Tensor], edge_score: Tensor | None) -> _Packed:
    """Put the blocks of a GRU into the order of the gates buffer."""
    if cell == "gru":
        weight_ih, recurrent, bias_ih, bias_hh = stacked[:4]
        hidden = recurrent.size(2)
        input_weight = weight_ih.roll(hidden, 1)  # (r, z, n) -> (n, r, z)
        bias = torch.cat([bias_ih.roll(hidden, 1), bias_hh[:, 2 * hidden :]], 1)
        bias[:, hidden : 3 * hidden] += bias_hh[:, : 2 * hidden]
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
    if cell == "gru":
        directions, nodes, hidden = states[0].shape
        all_d_gates = new_buffer(states[0], directions, nodes, 4 * hidden)
    for i in reversed(range(len(states))):
        below = states[i - 1] if i else _level_major(x, graph)
        packed = _pack(aggregator, cell, parameters[i], edge_scores[i])
        grad = _sum(grads[i], above, states[i])
        d_gates = grad if all_d_gates is None else all_d_gates
        out = backend.backward(cell, grad, states[i], saved[i], packed.layer, graph, d_gates)
        weight_grads = _weight_gradients(cell, out, below, states[i], saved[i], graph)
        parameter_grads.append([torch.stack(g) for g in zip(*weight_grads, strict=True)])
        score_grads.append(out.edge_score)
        if i or need_x:
            above = _input_gradient(out.gates, packed.input_weight, grad)
    grad_x = None
    if need_x and x.dim() == 3:
        grad_x = above
    elif need_x:
        assert above is not None
        # Every node has one position per direction: a gather, and a fixed order of the sum.
        grad_x = above[0].index_select(0, graph.rank[0])
        if above.size(0) == 2:
            grad_x += above[1].index_select(0, graph.rank[1])
    return grad_x, parameter_grads[::-1], score_grads[::-1]


def _input_gradient(gates: Tensor, weight: Tensor, free: Tensor) -> Tensor:
    """``[S, N, C]``, in the place of a tensor that is no longer needed, if it fits."""
    directions, width, channels = weight.shape
    out = free
    if free.size(2) != channels or free is gates:
        out = new_buffer(gates, directions, gates.size(1), channels)
    for d in range(directions):
        # Some thousand rows at a time are a tenth faster than all at once.
        for lo in range(0, gates.size(1), 2048):
            rows = slice(lo, lo + 2048)
            torch.mm(gates[d, rows, :width], weight[d], out=out[d, rows])
    return out


def _sum(grad: Tensor | None, above: Tensor | None, like: Tensor) -> Tensor:
    """A fresh tensor, since the backend consumes it."""
    if above is not None:
        return above if grad is None else above.add_(grad)
    return torch.zeros_like(like) if grad is None else grad.contiguous().clone()


def _weight_gradients(
    cell: str, out: LayerGradients, below: Tensor, h: Tensor, saved: Saved, graph: Graph
) -> list[list[Tensor]]:
    per_direction = []
    assert saved.message is not None
    for d in range(h.size(0)):
        hidden = h.size(2)
        gates, message = out.gates[d], saved.message[d]
        first = int(graph.level_ptr[d, 1]) if h.size(1) else 0  # the message of level 0 is zero
        bias = gates.sum(0) if out.bias is None else out.bias[d]
        if cell == "gru":
            n, rz, n_message = bias[:hidden], bias[hidden : 3 * hidden], bias[3 * hidden :]
            weight_ih = (gates[:, : 3 * hidden].t() @ below[d]).roll(-hidden, 0)
            weight_hh = gates[first:, hidden:].t() @ message[first:]
            grads = [weight_ih, weight_hh, torch.cat([rz, n]), torch.cat([rz, n_message])]
        else:
            grads = [gates.t() @ below[d], gates[first:].t() @ message[first:], bias]
        if out.key_score is not None:
            grads.append((out.key_score[d] @ h[d]).unsqueeze(0))
        else:
            assert out.gate_map is not None
            gate_map = out.gate_map[d]
            weight = gate_map.t() @ h[d]
            gate_bias = gate_map[:, :hidden].sum(0)
            grads += [weight[:hidden], gate_bias, weight[hidden:]]
        per_direction.append(grads)
    return per_direction
