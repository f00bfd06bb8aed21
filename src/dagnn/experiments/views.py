"""What stands in a table: our value beside the paper's, and how far apart they are."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from dagnn.experiments.cells import Cell
from dagnn.experiments.entries import Entry, Place
from dagnn.experiments.paper_values import FOLDS, Value
from dagnn.experiments.records import SPARSE, Record, sparse_process
from dagnn.experiments.registry import NAMES, PRESETS, best_rates, make_entry
from dagnn.experiments.selection import Planned, Selection, selection_of
from dagnn.tasks.code_encoders import EncoderConfig

__all__ = [
    "EntryView",
    "Measured",
    "PlaceView",
    "standard_errors",
    "view_all",
    "view_entry",
    "why_in_no_table",
]


class Measured(NamedTuple):
    """A mean over runs, with their standard deviation where there are several."""

    mean: float
    std: float | None
    runs: int


@dataclass(frozen=True)
class PlaceView:
    """A place with the runs that stand there.

    Args:
        place: The place.
        records: Runs of one config on the same data, one per seed; none if it was not run.
        changes: Settings in which they differ from the place's cell, with their values.
        is_comparable: Whether they are of the paper's size.
        selection: What gives these runs, if anything does.
        others: Of every other learning rate and dropout that was tried on the same data, the runs
            that would stand there without the rest.
    """

    place: Place
    records: tuple[Record, ...]
    changes: dict[str, Any]
    is_comparable: bool
    selection: Selection | None = None
    others: tuple[tuple[Record, ...], ...] = ()

    @property
    def value(self) -> Measured | None:
        return self.measure(self.place.metric)

    @property
    def exact_process(self) -> Measured | None:
        """The same measure by an exact Gaussian process, where a latent space was scored so."""
        kind, _, measure = self.place.metric.partition(".")
        return self.measure(f"exact.{measure}") if kind == SPARSE else None

    @property
    def error(self) -> float | None:
        """The difference to the paper in standard errors; positive if ours is larger."""
        task = self.place.column.partition("-")[0]
        if (
            not self.is_comparable
            or self.value is None
            or self.place.paper is None
            or task not in FOLDS
        ):
            return None
        return standard_errors(self.value, self.place.paper, FOLDS[task])

    def validated(self, records: Sequence[Record]) -> Measured | None:
        """What runs have on the validation split of the score that is reported on the test split,
        if there is one."""
        return _validated(records, self.place)

    def measure(self, metric: str) -> Measured | None:
        """The mean of a metric over the runs."""
        values = [value for r in self.records if (value := r.metric(metric)) is not None]
        return _mean(values, self.place.scale) if values else None


@dataclass(frozen=True)
class EntryView:
    """A table or a figure with all that was measured for it."""

    entry: Entry
    places: tuple[PlaceView, ...]

    @property
    def measured(self) -> list[PlaceView]:
        return [place for place in self.places if place.records]

    @property
    def records(self) -> list[Record]:
        """All runs that stand in it, each once."""
        found = {r.cell.id: r for place in self.places for r in place.records}
        return list(found.values())

    def only(self, rows: Sequence[str], columns: Sequence[str]) -> EntryView:
        """A part of it; see :meth:`dagnn.experiments.entries.Entry.only`."""
        entry = self.entry.only(rows, columns)
        wanted = {(place.row, place.column) for place in entry.places}
        places = (p for p in self.places if (p.place.row, p.place.column) in wanted)
        return EntryView(entry, tuple(places))

    def to_dict(self) -> dict[str, Any]:
        """The measured places, for machines."""
        places = []
        for view in self.measured:
            value, paper = view.value, view.place.paper
            places.append(
                {
                    "row": view.place.row,
                    "column": view.place.column,
                    "ours": value and value._asdict(),
                    "paper": paper and paper._asdict(),
                    "standard_errors": view.error,
                    "changes": view.changes,
                    "cells": [record.cell.id for record in view.records],
                    "command": view.selection and view.selection.command,
                }
            )
        return {"name": self.entry.name, "preset": self.entry.preset, "places": places}

    def at(self, row: str, column: str) -> PlaceView | None:
        wanted = (row, column)
        return next((p for p in self.places if (p.place.row, p.place.column) == wanted), None)


def standard_errors(ours: Measured, paper: Value, folds: int) -> float | None:
    r"""How many standard errors lie between two means,

    .. math::
        (\bar x - \bar y) / \sqrt{s_x^2 / n_x + s_y^2 / n_y},

    or ``None`` where ours is of one run, or nothing varies.

    Example:
        >>> standard_errors(Measured(2.0, 3.0, 9), Value(1.0, 0.0), 5)
        1.0
    """
    if ours.std is None:
        return None
    variance = ours.std**2 / ours.runs + paper.std**2 / folds
    return (ours.mean - paper.mean) / math.sqrt(variance) if variance > 0 else None


def view_all(records: Sequence[Record]) -> list[EntryView]:
    """All tables and figures in the paper's order; of each the presets of which something was
    measured, or ``"quick"`` without anything.

    What needs no training is the same in both, and alone does not make a table twice.
    """
    views = []
    for name in NAMES:
        quick, paper = (view_entry(name, preset, records) for preset in PRESETS)
        small, full = ({r.cell.id for r in view.records} for view in (quick, paper))
        if full and not full < small:
            views.append(paper)
        if not full or small - full:
            views.append(quick)
    return views


def view_entry(
    name: str, preset: str, records: Sequence[Record], first: Collection[str] = ()
) -> EntryView:
    """A table or a figure with the records that belong there.

    Args:
        name, preset: See :func:`dagnn.experiments.registry.make_entry`.
        records: What there is. Where several belong to a place, those as planned come first (of
            times, then those with batches as planned, since an epoch of others takes otherwise),
            then those with the planned dropout, which is no part of the paper's protocol, then
            those with most seeds, then those that are best on the validation split (by which a
            learning rate is chosen, too), then the latest.
        first: Ids of runs that come before all of these.
    """
    rates = best_rates(((r.cell, r.metrics) for r in records), preset)
    entry = make_entry(name, preset, rates)
    places = []
    for planned in Planned.all_of(entry):
        place = planned.swept
        found, *others = _records_at(place, records, first) or [()]
        changes, selection = {}, None
        if found:
            cells = [record.cell for record in found]
            changes = _changes(place, found[0])
            selection = selection_of(cells, planned, preset, rates)
        places.append(PlaceView(place, found, changes, preset == "paper", selection, tuple(others)))
    return EntryView(entry, tuple(places))


def why_in_no_table(record: Record) -> str:
    """Why a run stands in no table or figure of scores, whichever others there are; empty if it
    does."""
    entries = (make_entry(name, preset) for preset in PRESETS for name in NAMES)
    places = [p for entry in entries for p in entry.places if p.metric != "train_seconds"]
    if any(_records_at(place, [record], ()) for place in places):
        return ""
    run = record.cell
    if "data" in run.settings:
        return f"its graphs are those of {run.settings['data']}"
    cells = [p.cell for p in places if p.cell.name == run.name]
    if not cells:
        return f"none has {run.name}"
    nearest = min(cells, key=lambda cell: len(cell.model_differences(run)))
    here, there = nearest.model_differences(run), run.model_differences(nearest)
    if not here:
        return "it has no score by a sparse Gaussian process, such as of dagnn score --gp fitc"
    words = (
        f"{k} {_default(k) if v is None else v}" + ("" if here[k] is None else f" (here {here[k]})")
        for k, v in there.items()
    )
    return f"the nearest place has {', '.join(words)}"


def _default(name: str) -> Any:
    """What a setting is that is not named."""
    owner, _, option = name.partition(".")
    return getattr(EncoderConfig, option, None) if owner == "encoder" else None


def _records_at(
    place: Place, records: Iterable[Record], first: Collection[str]
) -> list[tuple[Record, ...]]:
    """The runs that stand in a place, and behind them the best of each other learning rate and
    dropout."""
    is_time = place.metric == "train_seconds"
    groups: dict[str, list[Record]] = {}
    for record in records:
        cell = record.cell
        if (
            place.cell.same_model(cell)
            and (not record.is_shared if is_time else not cell.is_timing)
            and record.metric(place.metric) is not None
        ):
            kind = [cell.config, record.content["data"], record.device if is_time else ""]
            groups.setdefault(json.dumps(kind, sort_keys=True), []).append(record)

    def merit(group: list[Record]) -> tuple[bool, bool, bool, bool, int, float, str, str]:
        cell = group[0].cell
        is_first = any(record.cell.id in first for record in group)
        as_planned = cell.config == place.cell.config
        same_batches = not (is_time and "batch_size" in place.cell.differences(cell))
        same_dropout = cell.dropout == place.cell.dropout
        latest = max(str(record.content.get("finished")) for record in group)
        valid = _validated(group, place)
        score = -math.inf if valid is None else valid.mean
        likeness = is_first, as_planned, same_batches, same_dropout
        return *likeness, len(group), score, latest, cell.id

    by_trial: dict[Any, tuple[Record, ...]] = {}
    data: Any = None
    for group in sorted(groups.values(), key=merit, reverse=True):
        data = data or group[0].content["data"]
        cell = group[0].cell
        trial = cell.options.get("learning_rate"), cell.dropout
        if group[0].content["data"] == data:
            by_trial.setdefault(trial, tuple(sorted(group, key=lambda record: record.cell.seed)))
    return list(by_trial.values())


def _validated(records: Sequence[Record], place: Place) -> Measured | None:
    split, _, score = place.metric.partition("_")
    values = [v for r in records if (v := r.metric(f"valid_{score}")) is not None]
    return _mean(values, place.scale) if split == "test" and values else None


def _changes(place: Place, run: Record) -> dict[str, Any]:
    changes = place.cell.differences(run.cell)
    if place.metric == "train_seconds":  # how long it was trained is not how long an epoch takes
        kept = ("precision", "batch_size")
        return {name: value for name, value in changes.items() if name in kept}
    trained = {name: value for name, value in changes.items() if not name.startswith("scoring")}
    return trained | _scoring_changes(place, run)


def _scoring_changes(place: Place, run: Record) -> dict[str, Any]:
    """How its latent space was scored otherwise, as far as the number in the place is of that:
    other processes beside do not matter."""
    if not place.metric.startswith(f"{SPARSE}."):
        return {}
    planned = _scoring(place.cell, place.cell.settings["scoring"]["options"])
    done = _scoring(run.cell, run.metrics)
    names = [name for name in {**planned, **done} if planned.get(name) != done.get(name)]
    return {f"scoring.{name}": done.get(name) for name in names}


def _scoring(cell: Cell, processes: Collection[str]) -> dict[str, Any]:
    scoring, process = cell.settings["scoring"], sparse_process(processes)
    options = scoring["options"].get(process, {})
    return {"seeds": scoring["seeds"], "process": process, **options}


def _mean(values: Sequence[float | list[float]], scale: float) -> Measured:
    """Over runs; of a single run whose latent space was scored several times, over those times."""
    first = values[0]
    if len(values) == 1 and isinstance(first, list):
        values = first
    means = [scale * (statistics.fmean(v) if isinstance(v, list) else v) for v in values]
    std = statistics.stdev(means) if len(means) > 1 else None
    return Measured(statistics.fmean(means), std, len(means))
