"""Threads for compiled kernels: as many as PyTorch uses for its own operations."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numba
import torch
from typing_extensions import Self

__all__ = ["Kernel", "Threads"]

# Some of numba's threading layers allow only one parallel call at a time.
_one_at_a_time = threading.Lock()


class Kernel(NamedTuple):
    alone: Callable[..., None]
    shared: Callable[..., None]


class Threads:
    """Runs kernels on :func:`torch.get_num_threads` threads.

    With one thread, numba's threads are not even started: they would not survive a fork, and a
    data loader's workers are forks, with one thread each.
    """

    def __enter__(self) -> Self:
        self.count = min(torch.get_num_threads(), numba.config.NUMBA_NUM_THREADS)
        if self.count > 1:
            self.before = numba.get_num_threads()
            numba.set_num_threads(self.count)
        return self

    def __exit__(self, *exception: object) -> None:
        if self.count > 1:
            numba.set_num_threads(self.before)

    def rows(self, kernel: Kernel, buffers: Any, stage: int, d: int, lo: int, hi: int) -> None:
        """Threads share the rows of a level."""
        if self.count == 1:
            kernel.alone(buffers, stage, d, lo, hi)
        else:
            with _one_at_a_time:
                kernel.shared(buffers, stage, d, lo, hi, self.count)

    def levels(self, kernel: Kernel, buffers: Any, first: Any, last: Any) -> None:
        """Threads share the directions, each of which runs its levels in order."""
        if self.count == 1 or len(first) == 1:
            for d in range(len(first)):
                kernel.alone(buffers, d, first[d], last[d])
        else:
            with _one_at_a_time:
                kernel.shared(buffers, first, last)
