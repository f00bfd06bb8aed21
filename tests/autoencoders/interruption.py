"""Training that is interrupted between two epochs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dagnn.autoencoders import fitting


@contextmanager
def interrupted_after(epochs: int) -> Iterator[None]:
    """Let autoencoders be interrupted, as by Ctrl-C, once they have so many epochs."""
    original = fitting._Training.on_train_epoch_start

    def start(training: fitting._Training) -> None:
        if training.current_epoch == epochs:
            raise KeyboardInterrupt
        original(training)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting._Training, "on_train_epoch_start", start)
        yield
