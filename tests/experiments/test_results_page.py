"""RESULTS.md is what the records say."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.main import get_command

from dagnn.cli import app
from dagnn.experiments import plan
from dagnn.experiments.cells import Cell
from dagnn.experiments.records import read_records
from dagnn.experiments.results_page import results_page
from dagnn.experiments.views import view_all

ROOT = Path(__file__).parents[2]
CELLS = ROOT / "results" / "cells"


def test_results_page_is_not_stale() -> None:
    page = results_page(read_records(CELLS))
    stored = (ROOT / "RESULTS.md").read_text(encoding="utf-8")
    assert stored == page, "make it anew: dagnn report --out RESULTS.md"


@pytest.mark.parametrize("has_records", [True, False])
def test_commands_give_what_stands_there(
    has_records: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the records are, and where nothing is: which rates were tried makes no difference."""
    chosen: list[Cell] = []

    def keep(cells: list[Cell], *_: object) -> plan.Plan:
        chosen[:] = cells
        return plan.Plan([], [])

    monkeypatch.setattr(plan, "make_plan", keep)
    dagnn = get_command(app)
    records = read_records(CELLS)
    shown = [place for view in view_all(records) for place in view.measured]
    commands = re.findall(r"^\| .+ \| `(dagnn .+)` \|$", results_page(records), re.MULTILINE)
    assert len(commands) == len(shown) > 0
    for command, place in zip(commands, shown, strict=True):
        name, *words = shlex.split(command)
        assert name == "dagnn"
        words += ["--dry-run", "--results", str(CELLS if has_records else tmp_path)]
        dagnn.main(words, standalone_mode=False)
        ran = [record.cell for record in place.records]
        assert [cell.seed for cell in chosen] == [cell.seed for cell in ran]
        assert all(mine.same_training(cell) for mine, cell in zip(chosen, ran, strict=True))
