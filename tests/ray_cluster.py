"""A local Ray cluster for tests, and a limit on how long they wait for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest

Value = TypeVar("Value")


@contextmanager
def two_workers() -> Iterator[None]:
    """Ray with room for two tasks at a time, each in a process, and a GPU that it believes in."""
    ray = pytest.importorskip("ray", reason="needs Ray: pip install ray")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "disabled")  # or it would leave a token in the home folder
        ray.init(
            address="local",
            num_cpus=2,
            num_gpus=1,
            object_store_memory=80 * 2**20,
            include_dashboard=False,
            log_to_driver=False,
        )
        try:
            yield
        finally:
            ray.shutdown()


def within(seconds: float, work: Callable[[], Value]) -> Value:
    """What a function returns, or a failure if that takes too long."""
    done: list[Any] = []

    def run() -> None:
        try:
            done.extend((work(), None))
        except BaseException as error:  # raised where it is waited for
            done.extend((None, error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if not done:
        pytest.fail(f"not done after {seconds} s")
    value, error = done
    if error is not None:
        raise error
    return value  # type: ignore[no-any-return]
