"""What a person sees while a network is learned: a bar for each phase, and lines, on stderr."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from dagnn.bayesnet.scores import Progress as Callback

__all__ = ["Phases"]


class Phases:
    """The phases of a piece of work, and the seconds that each took.

    Args:
        shown: Whether anything is printed.
    """

    def __init__(self, shown: bool) -> None:
        self.shown = shown
        self.seconds: dict[str, float] = {}
        self._console = Console(stderr=True, quiet=not shown, soft_wrap=True)

    @contextmanager
    def phase(self, name: str, *, bar: bool = True) -> Iterator[Callback]:
        """A phase: what is given is to be called with how much is done, and how much there is."""
        began = time.perf_counter()
        shown = Progress(
            TextColumn(name),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
            disable=not (bar and self.shown),
        )
        with shown:
            task = shown.add_task(name, total=None)
            yield lambda done, total: shown.update(task, completed=done, total=total)
        self.seconds[name] = time.perf_counter() - began

    def line(self, text: str) -> None:
        """Tell something."""
        self._console.print(text, markup=False, highlight=False)
