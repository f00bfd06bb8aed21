"""Threads for compiled kernels: as many as PyTorch uses for its own operations."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple, Self

import numba
import numpy as np
import torch

__all__ = ["Kernel", "Threads"]

WORTH_SHARING = 128  # rows

# Some of numba's threading layers allow only one parallel call at a time.
_one_at_a_time = threading.Lock()


def _most_threads() -> int:
    most: int = getattr(numba.config, "NUMBA_NUM_THREADS")  # noqa: B009 - set at run time
    return most


class Kernel(NamedTuple):
    alone: Callable[..., None]
    shared: Callable[..., None]


class Threads:
    """Runs kernels on :func:`torch.get_num_threads` threads.

    With one thread, numba's threads are not even started: they would not survive a fork, and a
    data loader's workers are forks, with one thread each.
    """

    def __enter__(self) -> Self:
        self.count = min(torch.get_num_threads(), _most_threads())
        if self.count > 1:
            self.before = numba.get_num_threads()
            numba.set_num_threads(self.count)
        return self

    def __exit__(self, *exception: object) -> None:
        if self.count > 1:
            numba.set_num_threads(self.before)

    def rows(self, kernel: Kernel, buffers: Any, stage: int, d: int, lo: int, hi: int) -> None:
        """Threads share the rows of a level."""
        if self.count == 1 or hi - lo < WORTH_SHARING:
            kernel.alone(buffers, stage, d, lo, hi, 0)
        else:
            bounds = lo + (hi - lo) * np.arange(self.count + 1) // self.count
            self._share(kernel, buffers, stage, np.full(self.count, d), bounds[:-1], bounds[1:])

    def levels(self, kernel: Kernel, buffers: Any, stage: int, first: Any, last: Any) -> None:
        """Threads share the directions, each of which runs its levels in order."""
        if self.count == 1 or len(first) == 1:
            for d in range(len(first)):
                kernel.alone(buffers, stage, d, first[d], last[d], 0)
        else:
            self._share(kernel, buffers, stage, np.arange(len(first)), first, last)

    def _share(self, kernel: Kernel, buffers: Any, stage: int, d: Any, lo: Any, hi: Any) -> None:
        with _one_at_a_time:
            kernel.shared(buffers, stage, d, lo, hi)
