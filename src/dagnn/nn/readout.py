r"""Readouts :math:`R`: from the states of a graph's nodes to one vector per graph."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dagnn.nn.segments import segment_softmax, segment_sum
from dagnn.ops.pool import MODES, pool

__all__ = ["READOUTS", "Readout", "gated_sum"]

READOUTS = (*MODES, "attention", "gated_sum")


class Readout(nn.Module):
    r"""Pools the rows of each graph:

    * ``"max"``, ``"mean"``, ``"sum"``: elementwise.
    * ``"attention"``: :math:`\sum_v \operatorname{softmax}_v(w^{\top} h_v) \, h_v`, the softmax
      over the pooled nodes of one graph.
    * ``"gated_sum"``: :math:`\sum_v \sigma(W_g h_v + b_g) \odot \tanh(W_m h_v + b_m)`, as in gated
      graph neural networks, without their last :math:`\tanh` (see :class:`~dagnn.nn.mpnn.GGNN`).

    A graph without nodes is zero.
    """

    def __init__(self, channels: int, mode: str = "max") -> None:
        super().__init__()
        if mode not in READOUTS:
            raise ValueError(f"expected readout to be one of {', '.join(READOUTS)}, got {mode!r}")
        self.mode = mode
        self.channels = channels
        self.score = nn.Linear(channels, 1, bias=False) if mode == "attention" else None
        self.gate = nn.Linear(channels, channels) if mode == "gated_sum" else None
        self.map = nn.Linear(channels, channels) if mode == "gated_sum" else None

    @property
    def is_elementwise(self) -> bool:
        """Whether it has no parameters, and each column is pooled for itself."""
        return self.mode in MODES

    def forward(self, h: Tensor, index: Tensor, size: int) -> Tensor:
        """Pool rows ``h`` ``[V, channels]`` by graph ``index`` ``[V]`` (ascending) to
        ``[size, channels]``."""
        if self.score is not None:
            alpha = segment_softmax(self.score(h).squeeze(-1), index, size)  # [V]
            return segment_sum(alpha.unsqueeze(-1) * h, index, size)
        if self.gate is not None and self.map is not None:
            return gated_sum(self.gate(h), self.map(h), index, size)
        row = torch.arange(len(h), device=h.device).unsqueeze(0)  # [1, V]
        return pool(h, [], [], row, index, size, self.mode)

    def extra_repr(self) -> str:
        return f"{self.channels}, mode={self.mode!r}"


def gated_sum(gate: Tensor, value: Tensor, index: Tensor, size: int) -> Tensor:
    """Sums of the gated rows of each graph. ``[size, channels]``"""
    return segment_sum(gate.sigmoid() * value.tanh(), index, size)
