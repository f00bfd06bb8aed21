r"""Cells :math:`F`: from a node's input and its message to its state.

A cell is called as ``cell(x, message)`` with ``x`` ``[V, C]`` and ``message`` ``[V, M]``, and
returns states ``[V, H]``. PyTorch's own cells fit, and two of them are used as they are:

* ``"gru"``: :class:`torch.nn.GRUCell`, equation (7) of the paper. With :math:`x = h_v^{\ell-1}`
  as input and the message :math:`m` as state:

  .. math::
      r &= \sigma(W_{ir} x + b_{ir} + W_{hr} m + b_{hr}), \\
      z &= \sigma(W_{iz} x + b_{iz} + W_{hz} m + b_{hz}), \\
      n &= \tanh(W_{in} x + b_{in} + r \odot (W_{hn} m + b_{hn})), \\
      h &= (1 - z) \odot n + z \odot m

* ``"tanh"``: :class:`torch.nn.RNNCell`, :math:`h = \tanh(W x + b + U m + c)`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from dagnn.nn.segments import segment_sum

__all__ = ["LinearCell", "TreeLSTMCell", "make_cell"]


class LinearCell(nn.Module):
    r"""The paper's linear ablation of the combine operator: :math:`h = W x + U m + b`."""

    def __init__(self, input_size: int, message_size: int, hidden_size: int) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.input = nn.Linear(input_size, hidden_size)
        self.message = nn.Linear(message_size, hidden_size, bias=False)

    def forward(self, x: Tensor, message: Tensor) -> Tensor:
        out: Tensor = self.input(x) + self.message(message)
        return out


class MessageRNNCell(nn.RNNCell):
    r""":class:`torch.nn.RNNCell` whose message need not be as wide as its state."""

    def __init__(self, input_size: int, message_size: int, hidden_size: int) -> None:
        super().__init__(input_size, hidden_size)
        if message_size != hidden_size:
            self.weight_hh = nn.Parameter(torch.empty(hidden_size, message_size))
            self.reset_parameters()

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        assert hx is not None, "a message is always given"
        inner = nn.functional.linear(input, self.weight_ih, self.bias_ih)
        return torch.tanh(inner + nn.functional.linear(hx, self.weight_hh, self.bias_hh))


class TreeLSTMCell(nn.Module):
    r"""The LSTM of Tree-LSTMs: a node's memory gathers its predecessors' memories, each through
    a forget gate of its own:

    .. math::
        i, o, g &= \sigma(W_i x + U_i m + b_i),\; \sigma(W_o x + U_o m + b_o),\;
                   \tanh(W_g x + U_g m + b_g) \\
        f_{vu} &= \sigma(W_f x + \phi_f(h_u, m) + b_f) \\
        c_v &= i \odot g + \sum_{u \in \mathcal{P}(v)} f_{vu} \odot c_u, \qquad
        h_v = o \odot \tanh(c_v)

    With :obj:`arity` :math:`= None` (child-sum), :math:`\phi_f = U_f h_u`. With :obj:`arity`
    :math:`= K` (N-ary), the message is the concatenation of the ordered predecessors' states and
    :math:`\phi_f = U_f^{(k)} m` for the predecessor in place :math:`k`.

    On a chain, child-sum is :class:`torch.nn.LSTM`.
    """

    has_memory = True

    def __init__(
        self, input_size: int, message_size: int, hidden_size: int, arity: int | None = None
    ) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.arity = arity
        self.input = nn.Linear(input_size, 4 * hidden_size)  # W_i, W_o, W_g, W_f with biases
        self.message = nn.Linear(message_size, 3 * hidden_size, bias=False)  # U_i, U_o, U_g
        self.forget = nn.Linear(
            hidden_size if arity is None else message_size,
            hidden_size if arity is None else arity * hidden_size,
            bias=False,
        )  # U_f

    def carry(
        self,
        x: Tensor,
        message: Tensor,
        h_source: Tensor,
        c_source: Tensor,
        index: Tensor,
        edge: Tensor | None,
    ) -> Tensor:
        """The predecessors' memories, gated and summed. ``[V, H]``"""
        own = self._gate(x, 3)[index]  # [S, H]
        if self.arity is None:
            gate = self.forget(h_source)  # [S, H]
        else:
            assert edge is not None, "the N-ary form goes with the concat aggregator"
            by_place = self.forget(message).view(-1, self.arity, self.hidden_size)  # [V, K, H]
            gate = by_place[index, edge]
        return segment_sum((own + gate).sigmoid() * c_source, index, x.size(0))

    def forward(self, x: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        message, memory = state
        gates = self.message(message).chunk(3, dim=-1)
        i, o, g = (self._gate(x, k) + gates[k] for k in range(3))
        c = i.sigmoid() * g.tanh() + memory
        return o.sigmoid() * c.tanh(), c

    def _gate(self, x: Tensor, k: int) -> Tensor:
        rows = slice(k * self.hidden_size, (k + 1) * self.hidden_size)
        return nn.functional.linear(x, self.input.weight[rows], self.input.bias[rows])


CELLS = ("gru", "lstm", "linear", "tanh")


def make_cell(
    name: str, input_size: int, message_size: int, hidden_size: int, arity: int | None = None
) -> Any:
    """A cell by its name, one of :data:`CELLS`."""
    if name == "gru":
        if message_size != hidden_size:
            raise ValueError(
                f"expected messages as wide as states ({hidden_size}) with cell='gru', got "
                f"{message_size}; use cell='linear', 'tanh' or 'lstm' with aggregator='concat'"
            )
        return nn.GRUCell(input_size, hidden_size)
    if name == "lstm":
        return TreeLSTMCell(input_size, message_size, hidden_size, arity)
    if name == "linear":
        return LinearCell(input_size, message_size, hidden_size)
    if name == "tanh":
        return MessageRNNCell(input_size, message_size, hidden_size)
    raise ValueError(f"expected cell to be one of {', '.join(CELLS)}, got {name!r}")
