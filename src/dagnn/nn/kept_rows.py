"""Batch normalization over some rows: those that stand for something, not those that fill up."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["KeptRowsNorm", "normalize"]


class KeptRowsNorm(nn.BatchNorm1d):
    """Batch normalization that can leave out rows: the others, their gradients and the running
    statistics become what :class:`torch.nn.BatchNorm1d` makes of them alone. In training, rows that
    are left out become the bias.

    Which rows these are may differ between the replays of a CUDA graph: no size and no launch
    depends on it.

    Args:
        num_features: Width :math:`C`.
    """

    # None for options of torch's that are not among ours.
    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor
    momentum: float

    def __init__(self, num_features: int) -> None:
        super().__init__(num_features)

    def forward(self, x: Tensor, kept: Tensor | None = None) -> Tensor:
        """Normalize ``[N, C]`` by the rows where :obj:`kept` ``[N]`` is true; by default all."""
        if kept is None or not self.training:
            return super().forward(x)
        self._check_input_dim(x)
        # Elsewhere, a look would wait for the device.
        if kept.device.type == "cpu" and int(kept.sum()) < 2:
            raise ValueError(
                f"expected more than one row to normalize in training, got {int(kept.sum())}"
            )
        rows = len(x)
        wide = x.to(self.weight.dtype)  # statistics are not made in half precision
        mask = kept.to(wide.dtype).unsqueeze(-1)  # [N, 1]
        count = mask.sum()
        mean = (wide * mask).sum(0) / count
        # Less their mean, stretched, and zero where left out: over all rows, these have the mean
        # zero and the variance of the kept ones. So torch's own operator does the rest.
        stretch = (rows / count).sqrt()
        centred = (wide - mean) * (mask * stretch)
        zero, variance = torch.zeros_like(mean), torch.zeros_like(mean)
        out = nn.functional.batch_norm(
            centred, zero, variance, self.weight / stretch, self.bias, True, 1.0, self.eps
        )
        with torch.no_grad():
            # An unbiased estimate from all rows becomes one from the kept ones.
            variance = variance * ((rows - 1) / rows * count / (count - 1).clamp(min=1))
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(variance, self.momentum)
            self.num_batches_tracked.add_(1)
        return out.to(x.dtype)


def normalize(norm: nn.Module, x: Tensor, kept: Tensor | None) -> Tensor:
    """``norm(x, kept)``, or ``norm(x)`` where all rows are kept: that much does
    :class:`torch.nn.SyncBatchNorm` understand too, which several processes put in its place."""
    out: Tensor = norm(x) if kept is None else norm(x, kept)
    return out
