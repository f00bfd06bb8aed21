"""What a command would run, and what it would take."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dagnn.experiments.cells import Cell
from dagnn.experiments.cost import Estimate, estimate
from dagnn.experiments.records import Record
from dagnn.experiments.run_cell import bind

__all__ = ["Line", "Plan", "make_plan"]


@dataclass(frozen=True)
class Line:
    """Cells of one name in one state.

    Args:
        name: What they share.
        state: ``"done"``, ``"to run"`` or ``"no data"``.
        count: How many they are.
        seconds: What each takes, on average; of those that are done, what it took where they ran.
        is_measured: Whether that was measured on runs like them, or is a guess.
    """

    name: str
    state: str
    count: int
    seconds: float
    is_measured: bool


@dataclass(frozen=True)
class Plan:
    """All cells of a command, and what to do about missing data."""

    lines: list[Line]
    missing: list[str]

    @property
    def to_run(self) -> int:
        return sum(line.count for line in self.lines if line.state == "to run")

    @property
    def without_data(self) -> int:
        return sum(line.count for line in self.lines if line.state == "no data")

    @property
    def seconds(self) -> float:
        return sum(line.count * line.seconds for line in self.lines if line.state == "to run")

    def to_dict(self) -> dict[str, Any]:
        return {
            "to_run": self.to_run,
            "seconds": round(self.seconds, 1),
            "missing": self.missing,
            "lines": [asdict(line) for line in self.lines],
        }


def make_plan(
    cells: Sequence[Cell],
    records: Sequence[Record],
    data: str | os.PathLike[str],
    on_gpu: bool = False,
) -> Plan:
    """See what is done, what is to run and what lacks its data; nothing is run or written."""
    done = {record.cell.id: record.content["seconds"] for record in records}
    groups: dict[tuple[str, str], list[Estimate]] = {}
    missing: dict[str, None] = {}
    for cell in cells:
        try:
            known = bind(cell, data).id
            state = "done" if known in done else "to run"
        except FileNotFoundError as error:
            state = "no data"
            missing[str(error)] = None
        took = Estimate(done[known], True) if state == "done" else estimate(cell, records, on_gpu)
        groups.setdefault((cell.name, state), []).append(took)
    lines = []
    for (name, state), group in groups.items():
        seconds = sum(each.seconds for each in group) / len(group)
        measured = all(each.is_measured for each in group)
        lines.append(Line(name, state, len(group), round(seconds, 1), measured))
    return Plan(lines, list(missing))
