"""Runs the Python blocks of a page of docs/, and compares what they print with their comments."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1] / "docs"


def read_page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def run_page(name: str, least: int) -> dict[str, Any]:
    """Run a page that has at least so many blocks; the names that it leaves."""
    blocks = re.findall(r"^```python\n(.*?)^```$", read_page(name), flags=re.MULTILINE | re.DOTALL)
    assert len(blocks) >= least
    names: dict[str, Any] = {"__name__": "tutorial"}
    for block in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(block, name, "exec"), names)
        promised = re.findall(r"^print\(.*\)  # (.*)$", block, flags=re.MULTILINE)
        lines = printed.getvalue().splitlines()
        assert [line for line in lines if line in promised] == promised
    return names
