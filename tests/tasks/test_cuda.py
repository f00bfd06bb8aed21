"""The same on a GPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dagnn.tasks import naming
from dagnn.tasks.code_encoders import MODELS
from dagnn.tasks.code_training import evaluate, load_task, train_code
from tests.graph.test_flat import needs_cuda
from tests.tasks.small_code import dataset, functions
from tests.tasks.test_code_training import small_run

pytestmark = [
    pytest.mark.cuda,
    needs_cuda,
    pytest.mark.filterwarnings("ignore:Sparse"),
]


@pytest.mark.parametrize("precision", ["32", "tf32", "bf16"])
@pytest.mark.parametrize("model", MODELS)
def test_every_model_trains(model: str, precision: str, tmp_path: Path) -> None:
    run = small_run(model=model, precision=precision)
    record = train_code(run, dataset(), tmp_path, device="cuda", progress=False)
    assert 0 <= record["metrics"]["test_f1"] <= 1


def test_a_model_says_the_same_on_both_devices(tmp_path: Path) -> None:
    run = small_run("tok", epochs=10)
    train_code(run, dataset(), tmp_path, device="cuda", progress=False)
    task = load_task(tmp_path / "best.ckpt")
    values = [evaluate(task, dataset().test, device=device) for device in ("cpu", "cuda")]
    assert values[0] == pytest.approx(values[1], rel=1e-3, abs=1e-3)
    vectors = [naming.embed(task, functions()[:9], device=device) for device in ("cpu", "cuda")]
    assert torch.allclose(*vectors, atol=1e-3)


def test_longest_path_resumes_on_a_gpu(tmp_path: Path) -> None:
    run = small_run("lp", epochs=3)
    data = dataset(run.edges)
    first = train_code(run, data, tmp_path, device="cuda", progress=False)
    again = train_code(run, data, tmp_path, device="cuda", progress=False)
    assert again["metrics"] == first["metrics"]


@pytest.mark.parametrize("precision", ["32", "bf16"])
@pytest.mark.parametrize("model", ["dagnn", "dvae"])
def test_captured_steps_train_as_eager_ones(model: str, precision: str, tmp_path: Path) -> None:
    """Batches of several sizes, so that several graphs take turns."""
    records = []
    for captured in (False, True):
        run = small_run(model=model, precision=precision, epochs=4)
        run = replace(run, captured=captured)
        folder = tmp_path / str(captured)
        records.append(train_code(run, dataset(), folder, device="cuda", progress=False))
    eager, captured_record = (record["metrics"] for record in records)
    tolerance = 1e-4 if precision == "32" else 5e-2
    assert captured_record["valid_loss"] == pytest.approx(eager["valid_loss"], rel=tolerance)
    assert captured_record["test_loss"] == pytest.approx(eager["test_loss"], rel=tolerance)
