"""Sums, products and softmaxes over rows that share an index."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["segment_product", "segment_softmax", "segment_sum", "summand"]


def summand(x: Tensor) -> Tensor:
    """What is to be summed by a scatter: at least in float32. Terms are added one by one to a sum
    of their own type, and a sum of bfloat16 no longer feels terms of 1 from 256 on; the number of
    terms in a mean neither."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def segment_sum(value: Tensor, index: Tensor, size: int) -> Tensor:
    """Sums of the rows of :obj:`value` that share an index. ``[size, …]``"""
    terms = summand(value)
    if size == 1:  # then the index may be a constant, by which inductor fails to scatter
        return terms.sum(0, keepdim=True).to(value.dtype)
    out = terms.new_zeros(size, *value.shape[1:]).index_add(0, index, terms)
    return out.to(value.dtype)


def segment_softmax(score: Tensor, index: Tensor, size: int) -> Tensor:
    """A softmax over the scores that share an index. ``[S]``"""
    if size == 1:  # as in segment_sum
        return summand(score).softmax(0).to(score.dtype)
    # The shift by the largest score keeps exp finite; it cancels, so it needs no gradient.
    largest = score.detach().new_full((size,), -torch.inf)
    largest = largest.scatter_reduce(0, index, score.detach(), reduce="amax")
    weight = summand(score - largest[index]).exp()
    return (weight / segment_sum(weight, index, size)[index]).to(score.dtype)


def segment_product(value: Tensor, index: Tensor, size: int) -> Tensor:
    """Products of the rows of :obj:`value` that share an index, zero for an empty set."""
    product = value.new_ones(size, value.size(1)).scatter_reduce(
        0, index.unsqueeze(-1).expand_as(value), value, reduce="prod"
    )
    occupied = value.new_zeros(size, 1).index_fill(0, index, 1.0)
    return product * occupied
