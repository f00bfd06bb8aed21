r"""The level loop on the CPU: level slices of preallocated buffers, backward by hand.

With :math:`dm_v` the gradient of a message, the gradient of an attention score is local to its
edge, :math:`ds_{uv} = \alpha_{vu} (dm_v \cdot h_u - dm_v \cdot m_v)`, and a node pulls over its
successors: :math:`dh_u \mathrel{+}= \sum_v \alpha_{vu} dm_v + ds_{uv} w_2`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dagnn.ops.stack import Graph, Layer, LayerGradients, Saved

__all__ = ["backward", "forward"]


def forward(
    cell: str, gates: Tensor, layer: Layer, graph: Graph, precision: str, save: bool
) -> tuple[Tensor, Saved | None]:
    hidden = layer.recurrent.size(2)
    directions, nodes, _ = gates.shape
    h = gates.new_empty(directions, nodes, hidden)
    message = gates.new_zeros(directions, nodes, hidden)
    if layer.key is not None:
        aggregate = gates.new_empty(graph.pred.shape)
    else:
        aggregate = gates.new_empty(directions, nodes, 2 * hidden)
    for d in range(directions):
        levels = graph.level_ptr[d].tolist()
        slots = graph.pred_ptr[d][graph.level_ptr[d]].tolist()
        for i in range(len(levels) - 1):
            lo, hi = levels[i], levels[i + 1]
            first, last = slots[i], slots[i + 1]
            g, m = gates[d, lo:hi], message[d, lo:hi]
            if last > first:
                source = graph.pred[d, first:last]
                degree = graph.pred_ptr[d, lo : hi + 1].diff()
                index = torch.repeat_interleave(degree, output_size=last - first)
                if layer.key is not None:
                    value = h[d][source]
                    score = value @ layer.key[d]
                    if layer.edge_score is not None:
                        score += layer.edge_score[d, first:last]
                    top = score.new_full((hi - lo,), -torch.inf)
                    top.scatter_reduce_(0, index, score, "amax")
                    alpha = (score - top[index]).exp_()
                    total = score.new_zeros(hi - lo).index_add_(0, index, alpha)
                    alpha /= total[index]
                    aggregate[d, first:last] = alpha
                    m.index_add_(0, index, alpha.unsqueeze(1) * value)
                else:
                    pair = aggregate[d][source]
                    m.index_add_(0, index, pair[:, :hidden] * pair[:, hidden:])
                recurrent = layer.recurrent[d].t()
                if cell == "gru":
                    g[:, hidden:].addmm_(m, recurrent)
                else:
                    g.addmm_(m, recurrent)
            if cell == "gru":
                g[:, hidden : 3 * hidden].sigmoid_()
                n, r, z, n_message = g.chunk(4, 1)
                n.addcmul_(r, n_message).tanh_()
                torch.lerp(n, m, z, out=h[d, lo:hi])
            else:
                h[d, lo:hi] = g
            if layer.gate_map is not None:
                assert layer.gate_bias is not None
                pair = aggregate[d, lo:hi]
                torch.mm(h[d, lo:hi], layer.gate_map[d].t(), out=pair)
                pair[:, :hidden].add_(layer.gate_bias[d]).sigmoid_()
    if not save:
        return h, None
    return h, Saved(gates if cell == "gru" else None, message, aggregate)


def backward(
    cell: str,
    grad: Tensor,
    h: Tensor,
    saved: Saved,
    layer: Layer,
    graph: Graph,
    precision: str,
) -> LayerGradients:
    directions, nodes, hidden = h.shape
    attention = layer.key is not None
    d_message = torch.empty_like(h)
    d_gates = h.new_empty(directions, nodes, 4 * hidden) if cell == "gru" else grad
    d_score = torch.zeros_like(saved.aggregate) if attention else None
    key_score = h.new_zeros(directions, nodes) if attention else None
    d_pair = None if attention else torch.empty_like(saved.aggregate)
    for d in range(directions):
        levels = graph.level_ptr[d].tolist()
        slots = graph.succ_ptr[d][graph.level_ptr[d]].tolist()
        for i in reversed(range(len(levels) - 1)):
            lo, hi = levels[i], levels[i + 1]
            first, last = slots[i], slots[i + 1]
            dh, m = grad[d, lo:hi], saved.message[d, lo:hi]
            pulled = torch.zeros_like(dh)
            if last > first:
                successor = graph.succ[d, first:last]
                slot = graph.succ_slot[d, first:last]
                degree = graph.succ_ptr[d, lo : hi + 1].diff()
                index = torch.repeat_interleave(degree, output_size=last - first)
                dm = d_message[d][successor]
                if attention:
                    assert d_score is not None and key_score is not None
                    assert layer.key is not None
                    alpha = saved.aggregate[d][slot]
                    inner = h[d, lo:hi][index] - saved.message[d][successor]
                    ds = alpha * (dm * inner).sum(1)
                    d_score[d][slot] = ds
                    key_score[d, lo:hi].index_add_(0, index, ds)
                    pulled.index_add_(0, index, alpha.unsqueeze(1) * dm)
                    pulled.addr_(key_score[d, lo:hi], layer.key[d])
                else:
                    pulled.index_add_(0, index, dm)
            if attention:
                dh += pulled
            else:
                assert layer.gate_map is not None and d_pair is not None
                gate, value = saved.aggregate[d, lo:hi].chunk(2, 1)
                pair = d_pair[d, lo:hi]
                pair[:, :hidden] = pulled * value * gate * (1 - gate)
                pair[:, hidden:] = pulled * gate
                dh.addmm_(pair, layer.gate_map[d])
            if cell == "gru":
                assert saved.gates is not None
                n, r, z, n_message = saved.gates[d, lo:hi].chunk(4, 1)
                dn, dr, dz, dn_message = d_gates[d, lo:hi].chunk(4, 1)
                dn[:] = dh * (1 - z) * (1 - n * n)
                dr[:] = dn * n_message * r * (1 - r)
                dz[:] = dh * (m - n) * z * (1 - z)
                dn_message[:] = dn * r
                if i:
                    torch.mul(dh, z, out=d_message[d, lo:hi])
                    d_message[d, lo:hi].addmm_(d_gates[d, lo:hi, hidden:], layer.recurrent[d])
            elif i:
                torch.mm(dh, layer.recurrent[d], out=d_message[d, lo:hi])
    return LayerGradients(d_gates, d_score, key_score, d_pair)
