"""How good predictions are: pure functions of tensors."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["accuracy", "graph_of_rows", "token_f1"]


def token_f1(
    predicted: Tensor, true: Tensor, true_graph: Tensor, eos: int
) -> tuple[Tensor, Tensor, Tensor]:
    r"""Precision, recall and F1 of each graph between sets of tokens, as the Open Graph Benchmark
    defines them for function names; a data set's score is the mean over its graphs.

    With :math:`P` the set of predicted tokens before the first end of sequence, and :math:`T` the
    set of the tokens of the true name, in the vocabulary or not,

    .. math::
        p = \frac{|P \cap T|}{|P|}, \qquad r = \frac{|P \cap T|}{|T|}, \qquad
        F_1 = \frac{2 p r}{p + r} = \frac{2 |P \cap T|}{|P| + |T|}

    where a fraction without denominator is zero.

    Args:
        predicted: A token per position. ``[G, P]``
        true: The distinct tokens of all true names; -1 for one outside of the vocabulary. ``[R]``
        true_graph: The graph of each of them. ``[R]``
        eos: The token that ends a sequence.

    Returns:
        Precision, recall and F1, ``[G]`` each.

    Example:
        >>> import torch
        >>> predicted = torch.tensor([[4, 5, 9, 6]])  # 9 ends it
        >>> token_f1(predicted, torch.tensor([5, 7, -1]), torch.tensor([0, 0, 0]), eos=9)[2]
        tensor([0.4000])
    """
    ended = (predicted == eos).cumsum(1) > 0  # [G, P]
    tokens = predicted.masked_fill(ended, -2)  # -2: no token, and equal to no true one
    same = tokens.unsqueeze(2) == tokens.unsqueeze(1)  # [G, P, P]
    repeated = same.tril(-1).any(2)
    num_predicted = (~ended & ~repeated).sum(1).float()  # [G]
    hit = (tokens.index_select(0, true_graph) == true.unsqueeze(1)).any(1)  # [R]
    zeros = torch.zeros_like(num_predicted)
    num_hits = zeros.index_add(0, true_graph, hit.float())
    num_true = zeros.index_add(0, true_graph, torch.ones_like(hit, dtype=torch.float))
    precision = num_hits / num_predicted.clamp(min=1)
    recall = num_hits / num_true.clamp(min=1)
    return precision, recall, 2 * num_hits / (num_predicted + num_true).clamp(min=1)


def accuracy(predicted: Tensor, true: Tensor) -> Tensor:
    """The share of predictions that are right. ``[]``"""
    return (predicted == true).float().mean()


def graph_of_rows(pointer: Tensor) -> Tensor:
    """The graph of each row of a ragged attribute, from where the rows of each graph start.

    Example:
        >>> import torch
        >>> graph_of_rows(torch.tensor([0, 2, 2, 3]))
        tensor([0, 0, 2])
    """
    return torch.repeat_interleave(pointer.diff())
