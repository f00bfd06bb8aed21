"""From classifiers of five positions to whole names."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["BestNames", "best_names", "name_surprise"]


class BestNames(NamedTuple):
    """The most probable names of each function, best first."""

    tokens: Tensor  # [G, K, P], after the end of a name the token that ends it
    log_probability: Tensor  # [G, K]


def best_names(log_probability: Tensor, count: int, unknown: int, eos: int) -> BestNames:
    r"""The most probable sequences of tokens, exactly.

    Positions are independent, so the probability of a name :math:`t_1 \dots t_k` is
    :math:`p_1(t_1) \cdots p_k(t_k) \, p_{k+1}(\mathrm{eos})`, without the last factor if there is
    no further position. Of the best :obj:`count` names, each prefix is among the best
    :obj:`count` prefixes, which makes the search short. Names have at least one token, and none
    that is unknown.

    Args:
        log_probability: Of each token at each position. ``[G, P, V]``
        count: How many names; at most as many as there are tokens to choose from.
        unknown, eos: Two tokens.
    """
    graphs, positions, _ = log_probability.shape
    words = log_probability.clone()
    words[:, :, [unknown, eos]] = -torch.inf
    score, token = words.topk(count, dim=-1)  # [G, P, K]
    end = log_probability[:, :, eos]  # [G, P]

    alive = score[:, 0]  # [G, K]
    names = torch.full((graphs, count, positions), eos, device=alive.device)
    names[:, :, 0] = token[:, 0]
    found, found_names = [], []
    for i in range(1, positions):
        found.append(alive + end[:, i : i + 1])
        found_names.append(names)
        longer = (alive.unsqueeze(2) + score[:, i].unsqueeze(1)).flatten(1)  # [G, K * K]
        alive, place = longer.topk(count, dim=1)
        prefix = (place // count).unsqueeze(2).expand(-1, -1, positions)
        names = names.gather(1, prefix)
        names[:, :, i] = token[:, i].gather(1, place % count)
    found.append(alive)
    found_names.append(names)
    best, place = torch.cat(found, 1).topk(count, dim=1)
    tokens = torch.cat(found_names, 1).gather(1, place.unsqueeze(2).expand(-1, -1, positions))
    return BestNames(tokens, best)


def name_surprise(log_probability: Tensor, tokens: Tensor, eos: int) -> Tensor:
    """How little the given names were expected: bits per token, the end of a name included.

    Args:
        log_probability: Of each token at each position. ``[G, P, V]``
        tokens: The given names, filled up with :obj:`eos`. ``[G, P]``
        eos: The token that ends a name.

    Returns:
        ``[G]``
    """
    given = log_probability.gather(2, tokens.unsqueeze(2)).squeeze(2)  # [G, P]
    behind = (tokens == eos).cumsum(1) > 1  # behind the first end of the name
    used = (~behind).sum(1)
    return -given.masked_fill(behind, 0.0).sum(1) / used / torch.log(torch.tensor(2.0))
