"""Gradients that cannot be differentiated again, and say so."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch

__all__ = ["first_derivatives_only"]


def first_derivatives_only(backward: Callable[..., Any]) -> Callable[..., Any]:
    """For a hand-written backward: refuse to be part of a graph of second derivatives.

    :func:`torch.autograd.function.once_differentiable` refuses only where the incoming gradient
    needs one. Where it is a constant, such as that of a sum, what depends on inputs and weights
    would be taken for a constant, too, and second derivatives silently be wrong.
    """

    @wraps(backward)
    def run(ctx: Any, *grads: Any) -> Any:
        if torch.is_grad_enabled():  # by create_graph=True
            raise RuntimeError(
                "expected to be differentiated once, got create_graph=True: fused operators and "
                "LevelwiseConv have first derivatives only; for second ones, make a DAGNN with "
                "backend='reference'"
            )
        return backward(ctx, *grads)

    return run
