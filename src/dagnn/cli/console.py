"""How commands speak: results on stdout, messages and progress on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

__all__ = ["complain", "messages", "print_json", "results"]

results = Console(soft_wrap=True)
messages = Console(stderr=True)


def complain(text: str) -> None:
    """Print an error, as one paragraph on stderr."""
    print(f"dagnn: error: {text}", file=sys.stderr)


def print_json(value: Mapping[str, Any] | Sequence[Any]) -> None:
    """Print a result for machines; NaN and infinity are not JSON and raise."""
    print(json.dumps(value, ensure_ascii=False, allow_nan=False, indent=2))
