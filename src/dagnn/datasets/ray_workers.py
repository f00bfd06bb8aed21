"""Work in the processes of a Ray cluster, which may die of it; workers.py has those of this
machine."""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

__all__ = ["connected", "run_all_on_ray"]

RETRIES = 1  # of a task whose process has ended: perhaps it was another's fault


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """Ray, ready for tasks: that of the caller, if it is connected to a cluster already.

    Args:
        address: Of a cluster; ``"auto"`` for the one that this machine is in; or ``"local"`` for
            one that is started here and ends with the block.

    Raises:
        ValueError: If Ray is not installed, or there is no such cluster.
    """
    try:
        ray = import_module("ray")
    except ImportError as error:
        raise ValueError("expected Ray to be installed: pip install 'ray>=2.40'") from error
    if ray.is_initialized():
        yield ray
        return
    try:
        ray.init(
            address=address,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.WARNING,
        )
    except ConnectionError as error:
        raise ValueError(f"expected a Ray cluster at {address}: {error}") from error
    try:
        yield ray
    finally:
        ray.shutdown()


def run_all_on_ray(
    function: Callable[..., None], tasks: Sequence[tuple[Any, ...]], address: str
) -> Iterator[tuple[tuple[Any, ...], bool]]:
    """As :func:`dagnn.datasets.workers.run_all`, with a core of a Ray cluster for each task.

    All machines must see the same files under the same paths, and have this package.
    """
    with connected(address) as ray:
        remote = ray.remote(_call).options(num_cpus=1, max_retries=RETRIES)
        waiting = {remote.remote(os.getcwd(), function, task): task for task in tasks}
        while waiting:
            (ready,), _ = ray.wait(list(waiting))
            task = waiting.pop(ready)
            try:
                ray.get(ready)
            except ray.exceptions.WorkerCrashedError:
                yield task, False
            else:
                yield task, True


def _call(folder: str, function: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    os.chdir(folder)  # paths may be relative
    gc.disable()  # see workers.py
    function(*arguments)
