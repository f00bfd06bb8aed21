"""Run cells, each once: what is done is left alone, what was killed goes on."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Any

from dagnn.datasets.workers import end_with_parent
from dagnn.experiments.cells import Cell
from dagnn.experiments.records import Record, read_record, record_path
from dagnn.experiments.run_cell import Workplace, bind, run_cell
from dagnn.training import write_json
from dagnn.training.fit import accelerator
from dagnn.training.locks import BusyError, lock

__all__ = ["Outcome", "Run", "in_order", "run_cells", "settle", "with_data"]

RESTARTS = 3
Run = Callable[[Cell, Workplace], dict[str, Any]]


@dataclass(frozen=True)
class Outcome:
    """What became of a cell.

    Args:
        cell: The cell; with the name of its data, if that was found.
        status: ``"done"`` (now), ``"kept"`` (done before), ``"busy"`` (another process runs it),
            ``"no data"``, or ``"failed"``.
        record: Of a cell that is done or kept.
        reason: Of all others.
    """

    cell: Cell
    status: str
    record: Record | None = None
    reason: str = ""


def settle(
    cell: Cell, folder: str | os.PathLike[str], place: Workplace, run: Run = run_cell
) -> Outcome:
    """Run a cell unless its record is there, and write the record.

    Safe to call for the same cell from several processes, on one machine or on many that share the
    folder: one of them runs it. The record appears as a whole or not at all.

    Args:
        cell: What to run.
        folder: Where records are.
        place: Where and on what it is run.
        run: What runs it.
    """
    try:
        cell = bind(cell, place.data)
    except FileNotFoundError as error:
        return Outcome(cell, "no data", reason=str(error))
    path = record_path(folder, cell)
    if path.exists():
        return Outcome(cell, "kept", read_record(path))
    try:
        with lock(Path(folder) / ".locks" / f"{cell.id}.lock"):
            if path.exists():  # written since we looked
                return Outcome(cell, "kept", read_record(path))
            write_json(path, run(cell, place))
    except BusyError as error:
        return Outcome(cell, "busy", reason=str(error))
    except Exception as error:  # one cell should not end a night's work on the others
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(last.filename).name}:{last.lineno}"
        return Outcome(cell, "failed", reason=f"{type(error).__name__}: {error} ({where})")
    return Outcome(cell, "done", read_record(path))


def with_data(
    cells: Sequence[Cell], data: str | os.PathLike[str]
) -> tuple[list[Cell], list[Outcome]]:
    """The cells whose data are in a folder, and what becomes of all others."""
    ready, others = [], []
    for cell in cells:
        try:
            bind(cell, data)
        except FileNotFoundError as error:
            others.append(Outcome(cell, "no data", reason=str(error)))
        else:
            ready.append(cell)
    return ready, others


def run_cells(
    cells: Sequence[Cell], folder: str | os.PathLike[str], place: Workplace, jobs: int = 1
) -> Iterator[Outcome]:
    """Settle cells, :obj:`jobs` at a time, each in a process if there are several; outcomes come as
    cells end. Records say whether cells shared a GPU; there, those that measure time come one by
    one after all others.

    A process that dies takes its cell's unfinished work with it and nothing else: the cell is
    started again, from its last checkpoint, up to :data:`RESTARTS` times.
    """
    if jobs < 1:
        raise ValueError(f"expected jobs >= 1, got {jobs}")
    cells, alone = in_order(cells), []
    on_gpu = accelerator(place.device) == "cuda"
    if on_gpu:
        alone = [cell for cell in cells if cell.is_timing]
        cells = [cell for cell in cells if not cell.is_timing]
    jobs = min(jobs, len(cells))
    if jobs > 1:
        beside = replace(place, progress=False, shared=on_gpu)
        yield from _in_processes(cells, folder, beside, jobs, on_gpu)
    else:
        yield from (settle(cell, folder, place) for cell in cells)
    yield from (settle(cell, folder, place) for cell in alone)


def _in_processes(
    cells: Sequence[Cell],
    folder: str | os.PathLike[str],
    place: Workplace,
    jobs: int,
    on_gpu: bool,
) -> Iterator[Outcome]:
    threads = max(1, (os.cpu_count() or 1) // jobs)
    # After an error of CUDA, a process is good for nothing more: each cell has one of its own. On a
    # CPU, a process may keep the data that it has read for the next cell.
    cells_each = 1 if on_gpu else None
    for _attempt in range(RESTARTS + 1):
        lost = []
        pool = ProcessPoolExecutor(
            jobs, get_context("spawn"), _start, (threads,), max_tasks_per_child=cells_each
        )
        before = set(active_children())
        try:
            futures = {pool.submit(settle, cell, folder, place): cell for cell in cells}
            for future in as_completed(futures):
                try:
                    yield future.result()
                except BrokenProcessPool:
                    lost.append(futures[future])
        except BaseException:  # interrupted: nobody waits for what runs, and it can go on later
            for process in set(active_children()) - before:
                process.terminate()
            raise
        finally:
            pool.shutdown(cancel_futures=True)  # then the rest does not begin
        if not lost:
            return
        cells = lost
    for cell in cells:
        reason = f"its process died {RESTARTS + 1} times, perhaps for want of memory"
        yield Outcome(cell, "failed", reason=reason)


def in_order(cells: Sequence[Cell]) -> list[Cell]:
    """Those on the same data after each other, so that it is read once."""

    def data(cell: Cell) -> tuple[str, str, float]:
        edges = cell.settings.get("edges", "ast")
        return cell.data_kind, edges, cell.settings.get("train_share", 1.0)

    return sorted(cells, key=data)


def _start(threads: int) -> None:
    import torch

    end_with_parent()
    torch.set_num_threads(threads)  # more than cores slow each other down many times over
