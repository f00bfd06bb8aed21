"""What a person sees."""

from __future__ import annotations

import pytest

from dagnn.training.progress import Display


def test_the_first_steps_of_a_run_are_said_to_take_longer() -> None:
    display = Display(False, epochs=3)
    (task,) = display._bar.tasks
    display.epoch(1, steps=100, done=0)  # of a run that goes on
    assert (task.fields["epoch"], task.fields["text"]) == ("2/3", "the first steps take longer")
    display.show({"loss": 0.25})
    assert task.fields["text"] == "loss 0.25"
    display.epoch(2, steps=100, done=0)
    assert task.fields["text"] == ""


def test_a_line_per_epoch(capsys: pytest.CaptureFixture[str]) -> None:
    display = Display(True, epochs=3)
    display.line({"epoch": 0, "step": 9, "loss": 0.12345, "seconds": 1.26}, best=True)
    assert capsys.readouterr().err == "epoch 1/3  loss 0.1235  1.3 s  (best)\n"
