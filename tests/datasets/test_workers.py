from __future__ import annotations

import os
import signal
import time

import pytest

from dagnn.datasets.workers import run_all, run_alone, survives


def test_all_tasks_are_done(tmp_path: os.PathLike[str]) -> None:
    tasks = [(os.path.join(tmp_path, str(i)),) for i in range(7)]
    done = dict(run_all(os.mkdir, tasks, workers=2))
    assert done == dict.fromkeys(tasks, True)
    assert len(os.listdir(tmp_path)) == 7


def test_a_task_that_ends_its_process_costs_itself_alone() -> None:
    # The signal 0 does nothing, and number 9 cannot be caught.
    tasks = [(0,), (0,), (int(signal.SIGKILL),), (0,), (0,), (0,), (0,)]
    results = [is_done for task, is_done in run_all(signal.raise_signal, tasks, 2) if task[0] == 0]
    assert results == [True] * 6
    assert [d for t, d in run_all(signal.raise_signal, [(9,)], 1)] == [False]


def test_survives() -> None:
    assert survives(time.sleep, 0)
    assert not survives(os._exit, 0)
    assert survives(os.rmdir, "/no/such/folder")


def test_run_alone_raises_errors() -> None:
    assert not run_alone(os._exit, 0)
    with pytest.raises(FileNotFoundError):
        run_alone(os.rmdir, "/no/such/folder")


def test_errors_are_raised() -> None:
    with pytest.raises(FileNotFoundError):
        list(run_all(os.rmdir, [("/no/such/folder",)], 1))
