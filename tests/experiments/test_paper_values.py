"""The paper's numbers are those of its source."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dagnn.experiments.paper_values import COLUMNS, NETWORK_BIC, TABLES, TIMES

SOURCE = Path(__file__).parents[3] / "shared" / "paper" / "dagnn-iclr2021.tex"
LABELS = {
    "table1": "tab:results-ogb",
    "table2": "tab:results-nabn",
    "table3": "tab:ablation",
    "table4": "tab:ablation2",
    "table5": "tab:results-nabn-reimpl",
    "table6": "tab:bidir",
}


@pytest.fixture(scope="module")
def source() -> str:
    if not SOURCE.exists():
        pytest.skip(f"the paper's LaTeX source (arXiv 2101.07965) is not at {SOURCE}")
    return SOURCE.read_text(encoding="utf-8")


@pytest.mark.parametrize("table", LABELS)
def test_values_are_the_papers(source: str, table: str) -> None:
    text = source.split(f"\\label{{{LABELS[table]}}}")[1].split("\\end{tabular}")[0]
    printed = [tuple(map(float, pair)) for pair in re.findall(r"([\d.]+)\\std\{([\d.]+)\}", text)]
    ours = [tuple(value) for row in TABLES[table].values() for value in row.values()]
    assert ours == printed


def test_numbering_is_the_papers(source: str) -> None:
    """Tables and figures are numbered in the order in which they stand."""
    labels = re.findall(r"\\label\{(tab:[^}]+|fig:[^}]+)\}", source)
    assert [label for label in labels if label.startswith("tab:")] == list(LABELS.values())
    assert [label for label in labels if label.startswith("fig:")] == [
        "fig:dagnn", "fig:batching", "fig:times", "fig:my_label", "fig:bngraph", "fig:lps",
    ]  # fmt: skip


def test_times_and_scores_are_the_papers(source: str) -> None:
    bars = [float(x) for x in re.findall(r"coordinates \{\(\\\w+,([\d.]+)\)\}", source)]
    assert [*TIMES["tok"].values(), *TIMES["na"].values()] == bars
    for score in NETWORK_BIC.values():
        assert f"${score:.2f}$" in source


def test_columns_are_known() -> None:
    for table in TABLES.values():
        for row in table.values():
            assert row.keys() <= COLUMNS.keys()
