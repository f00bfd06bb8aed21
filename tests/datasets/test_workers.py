from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

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


def test_a_worker_ends_with_its_parent(tmp_path: Path) -> None:
    """Killed, the parent cannot tell it to."""
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    parent = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    workers = [int(word) for word in parent.stdout.readline().split()]
    assert len(set(workers)) == 2
    parent.kill()
    # The pipe is open as long as a process has it; without an end, this raises.
    assert parent.communicate(timeout=120) == ("", None)


PARENT = """
import os, sys, time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from dagnn.datasets.workers import end_with_parent

if __name__ == "__main__":
    pool = ProcessPoolExecutor(2, get_context("spawn"), end_with_parent)
    pids = {pool.submit(os.getpid).result()}
    while len(pids) < 2:
        work = [pool.submit(time.sleep, 0.2), pool.submit(os.getpid)]
        pids.add(work[1].result())
    pool.submit(time.sleep, 600), pool.submit(time.sleep, 600)
    print(*pids, flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("from_file", [True, False])
def test_a_script_needs_no_guard(from_file: bool, tmp_path: Path) -> None:
    """Workers do not run it again, from a file or from standard input."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(folder=str(tmp_path / "made")))
    with open(script) as file:
        command = [sys.executable, str(script) if from_file else "-"]
        done = subprocess.run(command, stdin=file, capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr, done.returncode) == ("True\n__main__\n", "", 0)
    assert (tmp_path / "made").is_dir()


SCRIPT = """
import os, sys
from dagnn.datasets.workers import run_alone

print(run_alone(os.mkdir, {folder!r}))
print(sys.modules["__main__"].__name__ if sys.modules["__main__"].run_alone else "")
"""


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
