"""The benchmark of naming runs, and counts what it says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import naming

SOURCE = """
def area(width, height):
    result = width * height
    return result


def total(values):
    out = 0
    for value in values:
        out = out + value
    return out
"""


def test_it_counts_functions(tmp_path: Path) -> None:
    (tmp_path / "shapes.py").write_text(SOURCE, encoding="utf-8")
    file = tmp_path / "out.json"
    result = naming.main(["--folder", str(tmp_path), "--repeats", "1", "--json", str(file)])
    assert json.loads(file.read_text(encoding="utf-8")) == result
    assert result["functions"] == 2
    assert result["nodes_a_function"] > 11
    assert result["model"]["channels"] == 96
    for name in ("parse", "name", "embed"):
        rate = 2 / result["seconds"][name][0]
        assert result["functions_a_second"][name] == pytest.approx(rate, abs=0.1)
