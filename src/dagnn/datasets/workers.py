"""Work in other processes, which may die of it."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait as wait_for
from multiprocessing.context import SpawnContext, SpawnProcess
from types import ModuleType
from typing import Any

__all__ = ["end_with_parent", "run_all", "run_alone", "survives"]

STARTING = threading.Lock()


def run_all(
    function: Callable[..., None], tasks: Sequence[tuple[Any, ...]], workers: int
) -> Iterator[tuple[tuple[Any, ...], bool]]:
    """Call a function with the arguments of each task, in several processes.

    Yields:
        Each task when it is done, and whether it was: False if it ended its process.
    """
    waiting = deque(tasks)
    while waiting:
        running: dict[Future[None], tuple[Any, ...]] = {}
        try:
            with _pool(min(workers, len(waiting))) as pool:
                while waiting or running:
                    while waiting and len(running) < 2 * workers:
                        task = waiting.popleft()
                        running[pool.submit(function, *task)] = task
                    for future in wait(running, return_when=FIRST_COMPLETED).done:
                        future.result()
                        yield running.pop(future), True
        except BrokenProcessPool:
            # One of these ended its process, and with it the pool: now each on its own.
            for task in running.values():
                yield task, run_alone(function, *task)


def survives(function: Callable[..., Any], *arguments: Any) -> bool:
    """Whether a call comes back, by value or by exception, or ends its process."""
    try:
        return run_alone(function, *arguments)
    except Exception:
        return True


def run_alone(function: Callable[..., Any], *arguments: Any) -> bool:
    """Call a function in a process of its own. False if it ended that; its errors are raised."""
    with _pool(1) as pool:
        try:
            pool.submit(function, *arguments).result()
        except BrokenProcessPool:
            return False
    return True


class _Process(SpawnProcess):
    """One that does not run the caller's program again: what it is to do is in this package. So a
    script needs no ``if __name__ == "__main__"``, and may come from standard input."""

    def start(self) -> None:
        with STARTING:
            program = sys.modules["__main__"]
            sys.modules["__main__"] = ModuleType("__main__")  # without a file
            try:
                super().start()
            finally:
                sys.modules["__main__"] = program


class _Context(SpawnContext):
    Process = _Process


def _pool(workers: int) -> ProcessPoolExecutor:
    # Not by fork, which copies locks that threads of this process may hold.
    return ProcessPoolExecutor(workers, mp_context=_Context(), initializer=_start)


def end_with_parent() -> None:
    """In a process of a pool: do not outlive the process that made it, even if that is killed, and
    end at once when interrupted, or else the pool would go on with the next task."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        wait_for([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _start() -> None:
    gc.disable()  # syntax trees have no cycles; looking for some takes a third of the time
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a dead process would be looked into as a crash
