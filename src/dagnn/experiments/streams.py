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
from dagnn.experiments.cost import estimate
from dagnn.experiments.run_cell import Workplace
from dagnn.experiments.runner import Outcome, settle
from dagnn.training.fit import accelerator, matmul_precision

__all__ = ["can_share", "run_on_streams"]

MOST = 16  # torch has 32 streams of a priority, then gives the first again


def can_share(cell: Cell) -> bool:
    """Whether a cell may run beside others: autoencoders may, unless to measure time. Models of
    code draw from generators that all threads have in common; they can be processes."""
    return cell.kind == "autoencoder" and not cell.is_timing


def run_on_streams(
    cells: Sequence[Cell], folder: str | os.PathLike[str], place: Workplace, streams: int
) -> Iterator[Outcome]:
    """Settle cells, up to :obj:`streams` of those that can share a device at a time, in one
    process; all others come one by one after them. Outcomes come as cells end, and results are
    those of cells that run alone.

    When it is interrupted or closed, no further cell begins; those that run end with the process,
    and go on from their last checkpoints when they are asked for again.

    Args:
        cells: What to run.
        folder: Where records are kept.
        place: Where and on what cells are run.
        streams: Cells at a time.
    """
    if not 1 <= streams <= MOST:
        raise ValueError(f"expected 1 to {MOST} streams, got {streams}")
    # By default a GPU has 8 queues for all streams of a process; read when it is first used.
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
    shared = sorted(filter(can_share, cells), key=lambda cell: -estimate(cell, []).seconds)
    alone = [cell for cell in cells if not can_share(cell)]
    waiting: queue.SimpleQueue[Cell] = queue.SimpleQueue()
    for cell in shared:
        waiting.put(cell)
    done: queue.SimpleQueue[Outcome | BaseException] = queue.SimpleQueue()
    number = min(streams, len(shared))
    beside = replace(place, progress=False, shared=number > 1)
    threads = [
        threading.Thread(
            target=_work,
            args=(waiting, done, folder, beside),
            daemon=True,  # or else an interrupted program would wait for all cells
        )
        for _ in range(number)
    ]
    if _on_gpu(place):
        # PyTorch loads its linear algebra at the first use, and not twice at once.
        torch.linalg.cholesky(torch.eye(1, device="cuda"))
    # The setting is of the whole process, and each run would set it back when it ends.
    with matmul_precision("tf32" if _on_gpu(place) else "32"):
        try:
            for thread in threads:
                thread.start()
            for _ in shared:
                outcome = done.get()
                if isinstance(outcome, BaseException):
                    raise outcome
                yield outcome
        finally:
            _empty(waiting)
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


def _empty(waiting: queue.SimpleQueue[Cell]) -> None:
    try:
        while True:
            waiting.get_nowait()
    except queue.Empty:
        return


def _on_gpu(place: Workplace) -> bool:
    return accelerator(place.device) == "cuda"


def _stream(place: Workplace) -> AbstractContextManager[object]:
    return torch.cuda.stream(torch.cuda.Stream(priority=-1)) if _on_gpu(place) else nullcontext()
