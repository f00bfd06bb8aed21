"""What stands on a graph vector."""

from __future__ import annotations

from torch import Tensor, nn

__all__ = ["TokenSequenceHead"]


class TokenSequenceHead(nn.Module):
    r"""One linear classifier per position of a sequence of tokens, all as one product:

    .. math::
        p_i = \mathrm{softmax}(W_i h_{\mathcal{G}} + b_i), \qquad i = 1, \dots, P

    Args:
        in_channels: Width :math:`C` of the graph vectors.
        num_tokens: The number of classes :math:`V` of each position.
        num_positions: The number of positions :math:`P`.

    Shapes:
        * **input:** graph vectors ``[G, C]``
        * **output:** logits ``[G, P, V]``
    """

    def __init__(self, in_channels: int, num_tokens: int, num_positions: int = 5) -> None:
        super().__init__()
        self.num_tokens = num_tokens
        self.num_positions = num_positions
        self.lin = nn.Linear(in_channels, num_positions * num_tokens)

    def forward(self, h: Tensor) -> Tensor:
        out: Tensor = self.lin(h)
        return out.view(-1, self.num_positions, self.num_tokens)
