"""RESULTS.md is what the records say."""

from __future__ import annotations

from pathlib import Path

from dagnn.experiments.records import read_records
from dagnn.experiments.results_page import results_page

ROOT = Path(__file__).parents[2]


def test_results_page_is_not_stale() -> None:
    page = results_page(read_records(ROOT / "results" / "cells"))
    stored = (ROOT / "RESULTS.md").read_text(encoding="utf-8")
    assert stored == page, "make it anew: dagnn report --out RESULTS.md"
