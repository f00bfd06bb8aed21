"""Work in a single thread, where what there is to do is too small to be shared."""

from __future__ import annotations

import threading

import torch

__all__ = ["SINGLE_THREADS", "work_alone"]


class _SingleThreads:
    """While inside, torch works in this thread alone. That is a setting of the process as well as
    of a thread, and several may be inside: the first one knows what it was."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._before = 1

    def __enter__(self) -> int:
        """The number of threads there were."""
        with self._lock:
            if self._inside == 0:
                self._before = torch.get_num_threads()
            self._inside += 1
            torch.set_num_threads(1)
            return self._before

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._inside -= 1
            torch.set_num_threads(self._before)


SINGLE_THREADS = _SingleThreads()


def work_alone() -> None:
    """In a new thread, whatever the process's setting is by then."""
    torch.get_num_threads()  # which takes it over: later, that would undo the next line
    torch.set_num_threads(1)
