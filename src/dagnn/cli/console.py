"""How commands speak: results on stdout, messages and progress on stderr."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["complain", "counted", "messages", "print_json", "print_table", "results", "speaks"]

results = Console(soft_wrap=True)
messages = Console(stderr=True)


def complain(text: str) -> None:
    """Print an error, as one paragraph on stderr."""
    print(f"dagnn: error: {text}", file=sys.stderr)


def speaks() -> bool:
    """Whether this process is the one of several that prints, also before they are joined."""
    return os.environ.get("LOCAL_RANK", "0") == "0"


def counted(number: int, noun: str) -> str:
    """Such as "1 file" and "2,000 files"."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def print_table(table: Table) -> None:
    """Print a table at its full width: on a narrow screen its lines wrap, but no number is cut."""
    from rich.measure import Measurement

    unbounded = results.options.update(max_width=sys.maxsize)
    table.width = Measurement.get(results, unbounded, table).maximum
    results.print(table)


def print_json(value: Mapping[str, Any] | Sequence[Any]) -> None:
    """Print a result for machines; NaN and infinity are not JSON and raise."""
    print(json.dumps(value, ensure_ascii=False, allow_nan=False, indent=2))
