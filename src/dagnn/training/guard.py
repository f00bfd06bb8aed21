"""The losses of an epoch, kept where they are made, and looked at now and then.

Reading a loss from an accelerator makes the host wait for it. So the losses stay there, and the
host looks at them every ``INTERVAL`` steps, before every checkpoint and at the end of an epoch; no
checkpoint is written after a loss that was not finite.

Of several processes, each keeps its part of a loss; to look, they add their parts up. A part that
is not finite makes a sum that is not, so that all of them find it, at the same place.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dagnn.training.processes import add_up

__all__ = ["INTERVAL", "EpochLosses", "NonFiniteLossError"]

INTERVAL = 50
SHOWN = 20  # graphs in the message of an error


class NonFiniteLossError(ValueError):
    """The loss of a step is NaN or infinite.

    Args:
        step: The number of the step, from zero, over all epochs.
        epoch, batch: The same, as an epoch and a number in it.
        graphs: The indices of the batch's graphs in the training set, if the loader can tell.
        saved: Where the state is.
        later: How many steps were made, from this one on, before the loss was looked at; the state
            is the one behind them.
    """

    def __init__(
        self,
        loss: float,
        step: int,
        epoch: int,
        batch: int,
        graphs: list[int] | None,
        saved: str,
        later: int,
    ) -> None:
        self.step, self.epoch, self.batch, self.graphs = step, epoch, batch, graphs
        self._arguments = loss, step, epoch, batch, graphs, saved, later
        which = "" if graphs is None else f", graphs {_few(graphs)}"
        when = f", as it was {later} steps later" if later else ""
        super().__init__(
            f"expected a finite loss, got {loss} in step {step} (epoch {epoch}, batch {batch}"
            f"{which}). The state is in {saved}{when}. Try a lower learning rate, or clip "
            "gradients; the last checkpoint is from before this step"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return NonFiniteLossError, self._arguments  # so that it can leave its process


def _few(graphs: list[int]) -> str:
    words = ", ".join(map(str, graphs[:SHOWN]))
    more = len(graphs) - SHOWN
    return f"{words} and {more} more" if more > 0 else words


class EpochLosses:
    """One number per step of an epoch; in several processes, their parts, until all look."""

    def __init__(self) -> None:
        self._values = torch.zeros(0)
        self._count = 0
        self._checked = 0

    def __len__(self) -> int:
        return self._count

    def start(self, steps: int, device: torch.device) -> None:
        """Make room for an epoch; losses that were restored stay."""
        values = torch.zeros(steps, device=device)
        values[: self._count] = self._values[: self._count].to(device)
        self._values = values

    def clear(self) -> None:
        self._count = self._checked = 0

    def add(self, loss: Tensor) -> None:
        # A copy: a captured CUDA graph writes each loss to the same place.
        self._values[self._count].copy_(loss.detach(), non_blocking=True)
        self._count += 1

    def read(self) -> Tensor:
        """All losses so far, on the CPU; of several processes, after looking. ``[steps]``"""
        return self._values[: self._count].cpu()

    def first_non_finite(self) -> tuple[int, float] | None:
        """The first of the losses not looked at before that is not finite, and its place."""
        if self._checked == self._count:
            return None
        values = add_up(self._values[self._checked : self._count]).cpu()
        bad = (~values.isfinite()).nonzero()
        if len(bad):
            place = int(bad[0])
            return self._checked + place, float(values[place])
        self._checked = self._count
        return None

    def restore(self, values: Tensor) -> None:
        self._values = values.clone()
        self._count = self._checked = len(values)
