r"""Readouts :math:`R`: from the states of a graph's nodes to one vector per graph."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dagnn.nn.segments import segment_softmax, segment_sum
from dagnn.ops.pool import MODES, pool

__all__ = ["READOUTS", "Readout"]

READOUTS = (*MODES, "attention")


class Readout(nn.Module):
    r"""Pools the rows of each graph:

    * ``"max"``, ``"mean"``, ``"sum"``: elementwise.
    * ``"attention"``: :math:`\sum_v \operatorname{softmax}_v(w^{\top} h_v) \, h_v`, the softmax
      over the pooled nodes of one graph.

    A graph without nodes is zero.
    """

    def __init__(self, channels: int, mode: str = "max") -> None:
        super().__init__()
        if mode not in READOUTS:
            raise ValueError(f"expected readout to be one of {', '.join(READOUTS)}, got {mode!r}")
        self.mode = mode
        self.channels = channels
        self.score = nn.Linear(channels, 1, bias=False) if mode == "attention" else None

    def forward(self, h: Tensor, index: Tensor, size: int) -> Tensor:
        """Pool rows ``h`` ``[V, channels]`` by graph ``index`` ``[V]`` (ascending) to
        ``[size, channels]``."""
        if self.score is not None:
            alpha = segment_softmax(self.score(h).squeeze(-1), index, size)  # [V]
            return segment_sum(alpha.unsqueeze(-1) * h, index, size)
        row = torch.arange(len(h), device=h.device).unsqueeze(0)  # [1, V]
        return pool(h, [], [], row, index, size, self.mode)

    def extra_repr(self) -> str:
        return f"{self.channels}, mode={self.mode!r}"
