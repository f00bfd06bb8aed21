"""What a table or a figure consists of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dagnn.experiments.cells import Cell
from dagnn.experiments.paper_values import Value

__all__ = ["Entry", "Place"]

PAPER_SEEDS = 5


@dataclass(frozen=True)
class Place:
    """A place in a table or a figure.

    Args:
        row, column: Where it is.
        cell: What is run for it, with seed 0.
        metric: The path of the number in the record's metrics, joined by dots.
        scale: What it is multiplied with, such as 100 for percent.
        paper: The paper's value, if there is one.
    """

    row: str
    column: str
    cell: Cell
    metric: str
    scale: float = 1.0
    paper: Value | None = None


@dataclass(frozen=True)
class Entry:
    """A table or a figure.

    Args:
        name: What the command line calls it.
        title: Its number in the paper and what it shows.
        preset: ``"quick"`` or ``"paper"``.
        places: What stands in it.
    """

    name: str
    title: str
    preset: str
    places: tuple[Place, ...]

    @property
    def is_figure(self) -> bool:
        return self.name.startswith("figure")

    @property
    def rows(self) -> list[str]:
        return list(dict.fromkeys(place.row for place in self.places))

    @property
    def columns(self) -> list[str]:
        return list(dict.fromkeys(place.column for place in self.places))

    def cells(self, seeds: Sequence[int] | None = None) -> list[Cell]:
        """All runs, each once, with the given seeds or as many as the paper has: five of a model of
        code, one of an autoencoder, whose latent space is scored ten times."""
        found = {}
        for place in self.places:
            for seed in self._seeds(place.cell, seeds):
                cell = replace(place.cell, seed=seed)
                found[cell.id] = cell
        return list(found.values())

    def only(self, rows: Sequence[str] | None, columns: Sequence[str] | None) -> Entry:
        """A part of it: the rows of these names, and the columns that are so called or begin so,
        as ``na`` does for ``na-rmse``."""
        places = [
            place
            for place in self.places
            if (not rows or place.row in rows)
            and (not columns or any(_is_column(place.column, name) for name in columns))
        ]
        return replace(self, places=tuple(places))

    def _seeds(self, cell: Cell, given: Sequence[int] | None) -> Sequence[int]:
        if cell.kind in ("baseline", "lengths") or cell.is_timing:
            return (0,)  # nothing is random, or one run is enough
        if given:
            return given
        many = self.preset == "paper" and cell.kind == "code" and self.name != "sweep"
        return range(PAPER_SEEDS) if many else (0,)


def _is_column(column: str, name: str) -> bool:
    return column == name or (name in ("na", "bn") and column.startswith(f"{name}-"))
