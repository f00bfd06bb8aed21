"""Cells over the machines of a Ray cluster."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace

from dagnn.datasets.ray_workers import connected
from dagnn.experiments.cells import Cell
from dagnn.experiments.run_cell import Workplace
from dagnn.experiments.runner import RESTARTS, Outcome, in_order, settle

__all__ = ["run_on_ray"]


def run_on_ray(
    cells: Sequence[Cell],
    folder: str | os.PathLike[str],
    place: Workplace,
    *,
    address: str = "local",
    gpus: float = 0.0,
    cpus: float = 1.0,
) -> Iterator[Outcome]:
    """Settle cells as Ray tasks; outcomes come as cells end.

    All machines must see the same data, results and runs under the same paths. A worker that is
    lost takes its cell's unfinished work with it and nothing else: Ray starts the cell again, and
    it goes on from its last checkpoint.

    Args:
        cells: What to run.
        folder: Where records are kept.
        place: Where and on what cells are run.
        address: Of a cluster; ``"auto"`` for the one that this machine is in; or ``"local"`` for
            one that is started here and ends with the last cell.
        gpus: Share of a GPU that a cell needs; 0.5 lets two cells have one: their records say that
            they shared it. Cells that measure time have one to themselves.
        cpus: Cores that a cell needs, also its number of threads.
    """
    with connected(address) as ray:
        task = ray.remote(_settle)
        common = {"num_cpus": cpus, "max_retries": RESTARTS, "retry_exceptions": False}
        threads = max(1, int(cpus))
        place = replace(place, data=place.data.absolute(), runs=place.runs.absolute())
        waiting = {}
        for cell in in_order(cells):
            share = 1.0 if gpus and cell.is_timing else gpus
            where = replace(place, shared=0 < share < 1)
            settled = task.options(num_gpus=share, **common)
            call = settled.remote(cell, os.path.abspath(folder), where, threads)
            waiting[call] = cell
        while waiting:
            (ready,), _ = ray.wait(list(waiting))
            cell = waiting.pop(ready)
            try:
                yield ray.get(ready)
            except ray.exceptions.RayError as error:
                reason = str(error).partition("\n")[0]
                yield Outcome(cell, "failed", reason=f"{type(error).__name__}: {reason}")


def _settle(cell: Cell, folder: str, place: Workplace, threads: int) -> Outcome:
    import torch

    torch.set_num_threads(threads)
    return settle(cell, folder, place)
