"""What a plan will cost, before it is run."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple

from dagnn.experiments.cells import Cell
from dagnn.experiments.records import Record

__all__ = ["Estimate", "estimate"]

# Seconds for 1,000 graphs and one epoch, measured once, to give an idea where no run of the model
# is recorded: models as narrow as those of the quick presets on one core, and the paper's on two
# cores and on an H200.
NARROW = {"tok": 2.3, "lp": 1.2, "na": 0.6, "bn": 0.9}
WIDE = {"tok": 12.0, "lp": 8.0, "na": 5.0, "bn": 3.0}
WIDE_ON_GPU = {"tok": 0.08, "lp": 0.05, "na": 0.05, "bn": 0.03}
WIDTH = 200  # from which a model is wide
SLOWER = {"deepgmg": 8.0, "gat": 1.5, "ggnn": 1.5}
GRAPHS = {"tok": 200_000, "lp": 200_000, "na": 17_118, "bn": 180_000}  # of the full data
TYPICAL_EPOCHS = 30  # until patience ends
OVERHEAD = 5.0  # reading data, evaluation, scoring


class Estimate(NamedTuple):
    """Seconds, and whether they were measured on runs of the same model, or are a guess."""

    seconds: float
    is_measured: bool


def estimate(cell: Cell, records: Sequence[Record], on_gpu: bool = False) -> Estimate:
    """How long a cell will take: as long as its like did on such a device, or else a guess within
    a factor of a few."""
    same = [
        record.content["seconds"]
        for record in records
        if record.cell.config == cell.config and record.is_on_gpu == on_gpu and not record.is_shared
    ]
    if same:
        return Estimate(statistics.fmean(same), True)
    settings = cell.settings
    if cell.kind not in ("code", "autoencoder"):
        return Estimate(240.0 if cell.kind == "search" else 2 * OVERHEAD, False)
    graphs = settings.get("train_limit") or settings.get("graphs")
    graphs = graphs or GRAPHS[cell.task] * settings.get("train_share", 1.0)
    epochs = settings["epochs"]
    if settings.get("patience") is not None:
        epochs = min(epochs, TYPICAL_EPOCHS)
    width = settings["encoder"]["channels"] if cell.kind == "code" else settings["hidden_channels"]
    seconds = NARROW if width < WIDTH else WIDE_ON_GPU if on_gpu else WIDE
    per_thousand = seconds[cell.task] * SLOWER.get(cell.model or "", 1.0)
    return Estimate(OVERHEAD + per_thousand * graphs / 1000 * epochs, False)
