"""One process at a time; the lock of a dead one is free."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

from dagnn.training.locks import BusyError, lock

SPAWN = multiprocessing.get_context("spawn")


def hold(path: Path, held: Event) -> None:
    with lock(path):
        held.set()
        time.sleep(60)


def test_held_by_a_process_and_free_when_it_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "locks" / "cell.lock"
    held = SPAWN.Event()
    process = SPAWN.Process(target=hold, args=(path, held))
    process.start()
    try:
        assert held.wait(60)
        assert json.loads(path.read_text())["pid"] == process.pid
        with (
            pytest.raises(BusyError, match=f'cell is being run by .*"pid": {process.pid}'),
            lock(path),
        ):
            pass
    finally:
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
    assert path.exists()  # what a killed process leaves behind
    with lock(path):
        assert json.loads(path.read_text())["pid"] == os.getpid()
    assert not path.exists()


def test_released_after_an_error(tmp_path: Path) -> None:
    path = tmp_path / "cell.lock"
    with pytest.raises(RuntimeError, match="in the block"), lock(path):
        raise RuntimeError("in the block")
    with lock(path), pytest.raises(BusyError), lock(path):
        pass
