"""Cells side by side on one GPU: a thread and a CUDA stream each.

A step of an autoencoder is hundreds of kernels in a row, each of which fills a small part of a
large GPU. A GPU serves several processes in turn, but the streams of one process at once.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import torch

from dagnn.experiments.cells import Cell
from dagnn.experiments.run_cell import Workplace
from dagnn.experiments.runner import Outcome, in_order, settle
from dagnn.training.fit import matmul_precision

__all__ = ["MOST", "run_on_streams"]

MOST = 16  # torch has 32 streams, then gives the first again


def run_on_streams(
    cells: Sequence[Cell], folder: str | os.PathLike[str], place: Workplace, streams: int
) -> Iterator[Outcome]:
    """Settle cells, up to :obj:`streams` autoencoders at a time in one process; outcomes come as
    cells end. Results are those of cells that run alone.

    All other cells come one by one after them: models of code fill a GPU and draw from torch's
    global generators, and a cell that measures time has to be alone.

    When it is interrupted, what runs is lost up to its last checkpoint as soon as the process ends.

    Args:
        cells: What to run.
        folder: Where records are kept.
        place: Where and on what cells are run.
        streams: Autoencoders at a time.
    """
    if not 1 <= streams <= MOST:
        raise ValueError(f"expected 1 to {MOST} streams, got {streams}")
    cells = in_order(cells)
    shared = [cell for cell in cells if cell.kind == "autoencoder" and not cell.is_timing]
    alone = [cell for cell in cells if cell not in shared]
    waiting: queue.SimpleQueue[Cell] = queue.SimpleQueue()
    for cell in sorted(shared, key=lambda cell: -cell.settings["epochs"]):  # the longest first
        waiting.put(cell)
    done: queue.SimpleQueue[Outcome | BaseException] = queue.SimpleQueue()
    threads = [
        threading.Thread(
            target=_work,
            args=(waiting, done, folder, replace(place, side_by_side=True)),
            daemon=True,  # or else an interrupted program would wait for all cells
        )
        for _ in range(min(streams, len(shared)))
    ]
    # The setting is of the whole process, and each run would set it back when it ends.
    with matmul_precision("tf32" if _on_gpu(place) else "32"):
        for thread in threads:
            thread.start()
        for _ in shared:
            outcome = done.get()
            if isinstance(outcome, BaseException):
                raise outcome
            yield outcome
    yield from (settle(cell, folder, place) for cell in alone)


def _work(
    waiting: queue.SimpleQueue[Cell],
    done: queue.SimpleQueue[Outcome | BaseException],
    folder: str | os.PathLike[str],
    place: Workplace,
) -> None:
    try:
        with _stream(place):
            while True:
                done.put(settle(waiting.get_nowait(), folder, place))
    except queue.Empty:
        return
    except BaseException as error:  # or else the reader would wait for ever
        done.put(error)


def _on_gpu(place: Workplace) -> bool:
    return place.device == "cuda" or (place.device == "auto" and torch.cuda.is_available())


def _stream(place: Workplace) -> AbstractContextManager[object]:
    return torch.cuda.stream(torch.cuda.Stream(priority=-1)) if _on_gpu(place) else nullcontext()
