"""How far a run has come, by its checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dagnn.training import Standing, read_checkpoint, standing
from dagnn.training.bookkeeper import Bookkeeper
from tests.training.toy import EPOCHS, train


def test_to_the_end(tmp_path: Path) -> None:
    result = train(tmp_path)
    last = standing(read_checkpoint(tmp_path / "last.ckpt"))
    assert last == Standing(EPOCHS, EPOCHS, result.finished)
    best = standing(read_checkpoint(tmp_path / "best.ckpt"))
    assert best[:2] == (result.best["epoch"] + 1, EPOCHS)
    assert bool(best.finished) == (result.best["epoch"] + 1 == EPOCHS)


def test_without_improvement(tmp_path: Path) -> None:
    options: dict[str, Any] = {"monitor": "learning_rate", "patience": 2, "plateau": None}
    train(tmp_path, **options)
    found = standing(read_checkpoint(tmp_path / "last.ckpt"))
    assert found == Standing(3, EPOCHS, "no better learning_rate for 2 epochs")


@pytest.mark.parametrize("epochs", [0, 2])
def test_interrupted(epochs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In an epoch, of which there is a checkpoint already: whole ones count."""
    original = Bookkeeper.on_validation_start

    def start(self: Bookkeeper, trainer: Any, module: Any) -> None:
        if trainer.current_epoch == epochs:
            raise KeyboardInterrupt
        original(self, trainer, module)

    monkeypatch.setattr(Bookkeeper, "on_validation_start", start)
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path)
    found = standing(read_checkpoint(tmp_path / "last.ckpt"))
    assert found == Standing(epochs, EPOCHS, "")


def test_no_run() -> None:
    with pytest.raises(ValueError, match=r"expected last.ckpt or best.ckpt of a run, got .*'fit'"):
        standing({"state_dict": {}, "config": {}})
