"""Records as a run would write them, without the run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dagnn.experiments.cells import Cell
from dagnn.experiments.records import Record


def make_record(
    cell: Cell, metrics: dict[str, Any], *, seed: int = 0, data: str = "toy", **content: Any
) -> Record:
    cell = replace(cell, seed=seed, data=data)
    return Record(
        cell,
        {
            "id": cell.id,
            "config": cell.config,
            "seed": seed,
            "metrics": metrics,
            "data": {"name": data, "sha256": "0123456789abcdef"},
            "seconds": 12.5,
            "finished": "2026-01-01T00:00:00+00:00",
            "commit": "abcdef0123456789",
            "versions": {"torch": "2.9"},
            "hardware": {"machine": "x86_64", "cpus": 2, "gpu": None},
            **content,
        },
    )


def latent_metrics(rmse: list[float], r: list[float], kind: str = "fitc") -> dict[str, Any]:
    return {"loss": 1.0, "train_seconds": 3.0, kind: {"seeds": {"rmse": rmse, "pearson": r}}}
