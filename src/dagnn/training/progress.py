"""What a person sees while a model trains: a bar, and a line per epoch, on stderr."""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

__all__ = ["Display", "quiet"]


class _Quiet:
    """Filters and levels are the process's, so the first thread to come changes them, and the last
    to go puts them back."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._stack = ExitStack()

    def enter(self) -> None:
        with self._lock:
            if not self._users:
                self._stack.enter_context(_without_announcements())
            self._users += 1

    def leave(self) -> None:
        with self._lock:
            self._users -= 1
            if not self._users:
                self._stack.close()


_quiet = _Quiet()


@contextmanager
def quiet() -> Iterator[None]:
    """Without Lightning's announcements: what a user should know is on the display."""
    _quiet.enter()
    try:
        yield
    finally:
        _quiet.leave()


@contextmanager
def _without_announcements() -> Iterator[None]:
    loggers = [logging.getLogger(f"lightning.{part}") for part in ("pytorch", "fabric")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module=r"lightning\.|torch\.utils\.tensorboard")
            # From DDP on weights with one row, where any strides mean the same.
            warnings.filterwarnings("ignore", "Grad strides do not match bucket view strides")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


class Display:
    """The bar of an epoch and the lines of the past ones; without :obj:`shown`, nothing."""

    def __init__(self, shown: bool, epochs: int) -> None:
        self.epochs = epochs
        self._console = Console(stderr=True, quiet=not shown, soft_wrap=True)
        self._bar = Progress(
            TextColumn("epoch {task.fields[epoch]}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[text]}"),
            TimeRemainingColumn(),
            console=self._console,
            transient=True,
        )
        self._task = self._bar.add_task("", total=None, epoch="", text="")
        # Until the first losses are seen; kernels are compiled, and steps recorded.
        self._hint = "the first steps take longer"

    def start(self) -> None:
        self._bar.start()

    def stop(self) -> None:
        self._bar.stop()

    def epoch(self, epoch: int, steps: int, done: int) -> None:
        name = f"{epoch + 1}/{self.epochs}"
        self._bar.reset(self._task, total=steps, completed=done, epoch=name, text=self._hint)
        self._hint = ""

    def advance(self) -> None:
        self._bar.advance(self._task)

    def show(self, values: Mapping[str, float]) -> None:
        """Beside the bar."""
        self._bar.update(self._task, text=_words(values))

    def say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False)

    def line(self, row: Mapping[str, Any], best: bool) -> None:
        """An epoch that is over."""
        hidden = ("epoch", "step", "learning_rate", "train_seconds", "seconds")
        values = {name: value for name, value in row.items() if name not in hidden}
        self.say(
            f"epoch {row['epoch'] + 1}/{self.epochs}  {_words(values)}  "
            f"{row['seconds']:.1f} s{'  (best)' if best else ''}"
        )


def _words(values: Mapping[str, float]) -> str:
    return "  ".join(f"{name} {value:.4g}" for name, value in values.items())
