"""Options that only some models have."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

__all__ = ["check_options"]


def check_options(
    model: str, given: Mapping[str, Any], options: Mapping[str, Collection[str]]
) -> None:
    """That a model has all options that were given, whatever their values.

    Args:
        model: Its name.
        given: Values by the names that options have in Python.
        options: The names of each model's options.
    """
    strange = [
        f"{_flag(name, value)} (of {' and '.join(m for m in options if name in options[m])})"
        for name, value in given.items()
        if name not in options[model]
    ]
    if strange:
        raise ValueError(
            f"expected options of the model {model}, got {', '.join(strange)}; leave out what is "
            "not its own"
        )


def _flag(name: str, value: object) -> str:
    """How an option is written on the command line."""
    words = name.removeprefix("num_").replace("_", "-")
    if value is False:
        return "--unidirectional" if name == "bidirectional" else f"--no-{words}"
    return f"--{words}"
