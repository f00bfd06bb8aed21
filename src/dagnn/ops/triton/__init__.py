r"""The recurrence on the GPU: all levels and directions of a layer in one persistent kernel.

One cooperative launch holds as many programs as the device has multiprocessors; a level starts
when the tiles of the level before have arrived (a counter per level, see
:mod:`~dagnn.ops.triton.primitives`). Where a cooperative launch is impossible, and in Triton's
interpreter (which runs programs one after the other), one launch per level does the same work.

The gates buffer is ``[S, N, 4H]`` = ``(r, z, n's input part, n's message part)``: the input
product fills the first three blocks with PyTorch's own weights as they are, the kernel does the
rest, biases included, and the backward kernel leaves gradients in the same layout.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dagnn.ops.stack import Graph, Saved
from dagnn.ops.triton.launch import launch_backward, launch_forward

__all__ = ["backward", "forward"]

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
    half = _HALF.get(precision, x.dtype)
    below = _level_major(x.to(half), graph)  # [S, N, C]
    states, saved = [], []
    for tensors, edge_score in zip(parameters, edge_scores, strict=True):
        weight_ih = tensors[0].to(half)
        width = weight_ih.size(1)
        gates = below.new_empty(*below.shape[:2], width * 4 // 3 if cell == "gru" else width)
        torch.bmm(below, weight_ih.transpose(1, 2), out=gates[:, :, :width])
        h, keep = launch_forward(aggregator, cell, gates, tensors, edge_score, graph, precision, save)
        states.append(h)
        saved += [keep] if save else []
        below = h.to(half)
    return states, saved


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
    half = _HALF.get(precision, x.dtype)
    parameter_grads: list[list[Tensor]] = []
    score_grads: list[Tensor | None] = []
    grad = grads[-1]
    for i in reversed(range(len(states))):
        tensors, h = parameters[i], states[i]
        hidden = h.size(2)
        below = states[i - 1].to(half) if i else _level_major(x.to(half), graph)
        out = launch_backward(aggregator, cell, grad, h, saved[i], tensors, graph, precision)
        message, gates = saved[i].message.to(half), out.gates
        bias = out.gates.sum(1, dtype=x.dtype)
        if cell == "gru":
            weight_hh = torch.empty_like(tensors[1])
            _product(gates[:, :, : 2 * hidden].mT, message, weight_hh[:, : 2 * hidden])
            _product(gates[:, :, 3 * hidden :].mT, message, weight_hh[:, 2 * hidden :])
            gates = gates[:, :, : 3 * hidden]
            bias_hh = torch.cat([bias[:, : 2 * hidden], bias[:, 3 * hidden :]], 1)
            own = [weight_hh, bias[:, : 3 * hidden], bias_hh]
        else:
            own = [_product(gates.mT, message, torch.empty_like(tensors[1])), bias]
        own.insert(0, _product(gates.mT, below, torch.empty_like(tensors[0])))
        if out.key_score is not None:
            own.append(torch.bmm(out.key_score.unsqueeze(1), h))
        else:
            assert out.gate_map is not None
            gate_map, state = out.gate_map.to(half), h.to(half)
            d_gate = _product(gate_map[:, :, :hidden].mT, state, torch.empty_like(tensors[-3]))
            d_map = _product(gate_map[:, :, hidden:].mT, state, torch.empty_like(tensors[-1]))
            own += [d_gate, out.gate_map[:, :, :hidden].sum(1), d_map]
        parameter_grads.append(own)
        score_grads.append(out.edge_score)
        if i or need_x:
            weight_ih = tensors[0].to(half)
            grad = _product(gates, weight_ih, x.new_empty(*below.shape))  # [S, N, C]
            if i:
                grad += grads[i - 1]
    grad_x = None
    if need_x:
        # Every node has one position per direction: a gather, and a fixed order of the sum.
        grad_x = grad
        if x.dim() == 2:
            grad_x = grad[0].index_select(0, graph.rank[0])
            if grad.size(0) == 2:
                grad_x += grad[1].index_select(0, graph.rank[1])
    return grad_x, parameter_grads[::-1], score_grads[::-1]


def _level_major(x: Tensor, graph: Graph) -> Tensor:
    if x.dim() == 3:
        return x
    return x.index_select(0, graph.order.flatten()).view(*graph.order.shape, -1)


def _product(a: Tensor, b: Tensor, out: Tensor) -> Tensor:
    """A batched product whose sums are float32, whatever its operands."""
    if a.dtype == out.dtype:
        return torch.bmm(a, b, out=out)
    if a.device.type == "cuda":
        return torch.bmm(a, b, out_dtype=out.dtype, out=out)
    return out.copy_(torch.bmm(a.to(out.dtype), b.to(out.dtype)))
