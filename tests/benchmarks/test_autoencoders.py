"""The benchmark of the autoencoders at tiny sizes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import step_by_step
from benchmarks.autoencoders import main

ROW = "[[{}], [4, 0], [5, 0, 0], [0, 1, 1, 1], [2, 1, 1, 1, 1], [3, 0, 0, 0, 0, 1]], 0.73\n"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "na.txt"
    path.write_text("".join(ROW.format(i % 6) for i in range(1080)))
    return path


def test_steps_epochs_and_decoding(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    options = ["--data", str(data), "--device", "cpu", "--hidden", "5", "--repeats", "2"]
    main([*options, "--json", str(out), "--models", "dagnn", "s-vae"])
    result = json.loads(out.read_text())
    assert result["failed"] == {}
    assert set(result["models"]) == {"dagnn", "s-vae"}
    for found in result["models"].values():
        assert found["check"]["fp32"]["loss"] < 1e-5
        assert set(found["steps"]) == {"step_by_step", "eager"}
        assert found["steps_an_epoch"] == 3
        assert len(found["epoch_s"]) == 1
        assert found["decoded_a_second"] > 0


def test_a_wrong_loss_is_not_timed(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = step_by_step.loss
    monkeypatch.setattr(step_by_step, "loss", lambda *args: 1.01 * right(*args))
    result = main(["--data", str(data), "--device", "cpu", "--hidden", "5", "--models", "s-vae"])
    assert "expected relative errors of at most" in result["failed"]["s-vae"]
    assert "steps" not in result["models"]["s-vae"]
