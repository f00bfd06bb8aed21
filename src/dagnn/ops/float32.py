"""Products of float32: how PyTorch makes them, and how to have all their bits."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["exact_bmm", "float32_products", "float64_bmm"]


@torch.compiler.assume_constant_result
def float32_products() -> str:
    """PyTorch's setting: ``"highest"``, ``"high"`` (TF32) or ``"medium"``.

    It is of the whole process, and :func:`torch.compile` cannot trace it.
    """
    if torch.backends.cuda.matmul.fp32_precision != "tf32":
        return "highest"
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:  # it was set by the name above, which is newer than this question
        return "high"


def exact_bmm(a: Tensor, b: Tensor) -> Tensor:
    """A batched product of float32 with all its bits, also where PyTorch may take TF32."""
    return torch.bmm(a, b) if float32_products() == "highest" else float64_bmm(a, b)


def float64_bmm(a: Tensor, b: Tensor) -> Tensor:
    """Likewise, and with an exact gradient also where the backward pass runs under autocast, which
    leaves float64 alone."""
    return torch.bmm(a.double(), b.double()).float()
