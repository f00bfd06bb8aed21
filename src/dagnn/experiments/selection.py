"""Which runs a command names, and which command names given runs."""

from __future__ import annotations

import difflib
import math
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from dagnn.experiments.cells import Cell
from dagnn.experiments.entries import Entry, Place
from dagnn.experiments.registry import NAMES, TITLES, Rates, make_entry

__all__ = ["Planned", "Selection", "selection_of"]

TAKERS = {
    "epochs": "models that are trained do, but not where time is measured",
    "precision": "models of code do",
    "learning_rate": "models that are trained do",
    "batch_size": "models that are trained do",
    "dropout": "models of code do",
}


@dataclass(frozen=True)
class Selection:
    """Runs of tables and figures, as ``dagnn reproduce`` takes them.

    Args:
        name: A table or a figure, ``"sweep"``, or ``"all"``.
        preset: ``"quick"`` or ``"paper"``.
        rows, columns: See :meth:`dagnn.experiments.entries.Entry.only`; by default all.
        seeds: By default the preset's.
        options: How models are trained, where it is not as the preset says; see
            :meth:`dagnn.experiments.cells.Cell.trained_with`.

    Example:
        >>> Selection("table1", "paper", ("GG-NN",), ("lp",), (0, 1), {"batch_size": 80}).command
        'dagnn reproduce table1 --preset paper --row GG-NN --column lp --seeds 0,1 --batch-size 80'
    """

    name: str
    preset: str
    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.name not in (choices := (*NAMES, "sweep", "all")):
            # The paper has numbers: figure3, figure-3 and "Figure 3" are all asked for.
            numbers = {title.partition(":")[0].lower(): name for name, title in TITLES.items()}
            asked = re.sub(r"\W*(\d)", r" \1", self.name.lower())
            hint = f"; did you mean {numbers[asked]!r}?" if asked in numbers else ""
            raise ValueError(f"expected one of {', '.join(choices)}, got {self.name!r}{hint}")
        dropout = self.options.get("dropout")
        if dropout is not None and not 0 <= dropout < 1:
            raise ValueError(f"expected 0 <= dropout < 1, got {dropout}")
        if dropout is not None and self.name == "sweep":
            raise ValueError(
                f"expected a sweep without dropout, for the rates of the paper's protocol, got "
                f"{dropout}; give runs a --learning-rate"
            )
        rate = self.options.get("learning_rate")
        if rate is not None and not 0 < rate < math.inf:
            raise ValueError(f"expected a learning rate above 0, got {rate}")
        if rate is not None and self.name == "sweep":
            raise ValueError(f"expected a sweep to try its own learning rates, got {rate}")

    @property
    def names(self) -> tuple[str, ...]:
        """Of the tables and figures."""
        return NAMES if self.name == "all" else (self.name,)

    @property
    def command(self) -> str:
        """What to type."""
        words = ["dagnn", "reproduce", self.name, "--preset", self.preset]
        for row in self.rows:
            words += ["--row", row]
        for column in self.columns:
            words += ["--column", column]
        if self.seeds:
            words += ["--seeds", ",".join(map(str, self.seeds))]
        for name, value in self.options.items():
            words += [_flag(name), str(value)]
        return shlex.join(words)

    def cells(self, rates: Rates | None = None) -> list[Cell]:
        """The runs, each once.

        Args:
            rates: See :func:`dagnn.experiments.registry.make_entry`.

        Raises:
            ValueError: If there are none, or none that takes one of the options.
        """
        entries = [make_entry(name, self.preset, rates) for name in self.names]
        self._check_names(entries)
        chosen = map(self._chosen, entries)
        cells = {cell.id: cell for entry in chosen for cell in entry.cells(self.seeds)}
        if not cells:
            raise ValueError(
                f"expected rows and columns of {self.name} that meet, got {', '.join(self.rows)} "
                f"and {', '.join(self.columns)}"
            )
        for option in self.options:
            if not any(option in cell.options for cell in cells.values()):
                raise ValueError(
                    f"expected runs that take {_flag(option)}, got none: {TAKERS[option]}"
                )
        return list(cells.values())

    def _check_names(self, entries: Sequence[Entry]) -> None:
        """One that is misspelt beside others would just be missing."""
        for row in self.rows:
            if not any(entry.only([row], None).places for entry in entries):
                raise self._unknown("row", row, [name for e in entries for name in e.rows])
        for column in self.columns:
            if not any(entry.only(None, [column]).places for entry in entries):
                raise self._unknown("column", column, [c for e in entries for c in e.columns])

    def _unknown(self, kind: str, name: str, known: Iterable[str]) -> ValueError:
        spellings = {other.lower(): other for other in known}
        near = difflib.get_close_matches(name.lower(), spellings, n=1)
        hint = f"; did you mean {spellings[near[0]]!r}?" if near else ""
        names = ", ".join(map(repr, spellings.values()))
        return ValueError(f"expected a {kind} of {self.name} ({names}), got {name!r}{hint}")

    def _chosen(self, entry: Entry) -> Entry:
        entry = entry.only(self.rows, self.columns)
        places = (replace(p, cell=p.cell.trained_with(self.options)) for p in entry.places)
        return replace(entry, places=tuple(places))


class Planned(NamedTuple):
    """A place of a table or a figure, with the learning rate that was found to be best, and with
    the one that it has before any is tried."""

    name: str
    swept: Place
    unswept: Place

    @classmethod
    def all_of(cls, entry: Entry) -> list[Planned]:
        """The places of an entry that was made with the rates found."""
        unswept = make_entry(entry.name, entry.preset).places
        return [cls(entry.name, *both) for both in zip(entry.places, unswept, strict=True)]


def selection_of(runs: Sequence[Cell], own: Planned, preset: str, rates: Rates) -> Selection | None:
    """What gives runs of one config, whichever learning rates have been tried where it is typed:
    their own place, or another of the preset, where they were not made for theirs, as a full run
    whose time stands in a figure was not.

    What they are is told up to the data and the scoring of latent spaces.

    Returns:
        ``None`` where no options give them, as for another patience.
    """
    run, seeds = runs[0], tuple(cell.seed for cell in runs)
    for name, *places in _with_others(own, preset, rates):
        options: dict[str, Any] = {}
        for place in places:
            mine = place.cell.options
            options |= {k: v for k, v in run.options.items() if k in mine and mine[k] != v}
        if all(place.cell.trained_with(options).same_training(run) for place in places):
            place = places[0]
            return Selection(name, preset, (place.row,), (place.column,), seeds, options)
    return None


def _with_others(own: Planned, preset: str, rates: Rates) -> Iterator[Planned]:
    yield own
    for name in NAMES:
        yield from Planned.all_of(make_entry(name, preset, rates))


def _flag(option: str) -> str:
    return f"--{option.replace('_', '-')}"
