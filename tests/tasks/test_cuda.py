"""The same on a GPU."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from dagnn import FlatGraphs
from dagnn.nn.readout import READOUTS
from dagnn.tasks import naming
from dagnn.tasks.code_encoders import MODELS, CodeEncoder, EncoderConfig
from dagnn.tasks.code_training import evaluate, load_task, train_code
from dagnn.tasks.longest_path import LongestPath
from dagnn.tasks.token_prediction import TokenPrediction
from dagnn.training import read_checkpoint
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


@pytest.mark.parametrize(
    ("model", "options"),
    [
        *((model, {}) for model in MODELS),
        *(("dagnn", {"pool": "all", "readout": mode}) for mode in READOUTS),
    ],
)
def test_large_functions_in_half_precision(model: str, options: dict[str, str]) -> None:
    """Sums over thousands of nodes, one of which is the parent of all others."""
    torch.manual_seed(0)
    nodes = 3000
    parent = torch.zeros(nodes - 1, dtype=torch.long)
    graph = Data(
        edge_index=torch.stack([parent, torch.arange(1, nodes)]),
        edge_type=torch.randint(2, (nodes - 1,)),
        node_type=torch.randint(5, (nodes,)),
        attribute=torch.randint(20, (nodes,)),
        depth=torch.randint(20, (nodes,)),
    )
    batch = FlatGraphs.from_data_list([graph, graph]).batch([0, 1], schedule=True)
    encoder = CodeEncoder(EncoderConfig(model, channels=64, **options), 5, 20).eval()
    with torch.no_grad():
        exact = encoder(batch)
        encoder, batch = encoder.to("cuda"), batch.to("cuda")
        with torch.autocast("cuda", torch.bfloat16):
            found = encoder(batch).float().cpu()
    assert (found - exact).norm() < 0.05 * exact.norm()


def test_a_model_says_the_same_on_both_devices(tmp_path: Path) -> None:
    run = small_run("tok", epochs=10)
    train_code(run, dataset(), tmp_path, device="cuda", progress=False)
    task = load_task(tmp_path / "best.ckpt")
    values = [evaluate(task, dataset().test, device=device) for device in ("cpu", "cuda")]
    assert values[0] == pytest.approx(values[1], rel=1e-3, abs=1e-3)
    vectors = [naming.embed(task, functions()[:9], device=device) for device in ("cpu", "cuda")]
    assert torch.allclose(*vectors, atol=1e-3)


@pytest.mark.parametrize("captured", [False, True])
def test_longest_path_resumes_on_a_gpu(
    captured: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = replace(small_run("lp", epochs=3), captured=captured)
    data = dataset(run.edges)
    whole = train_code(run, data, tmp_path / "whole", device="cuda", progress=False)

    def interrupted(self: LongestPath) -> None:
        if self.trainer.current_epoch == 1:
            raise RuntimeError("interrupted")

    with monkeypatch.context() as patch:
        patch.setattr(LongestPath, "on_train_epoch_start", interrupted)
        with pytest.raises(RuntimeError, match="interrupted"):
            train_code(run, data, tmp_path / "parts", device="cuda", progress=False)
    resumed = train_code(run, data, tmp_path / "parts", device="cuda", progress=False)
    for name in ("valid_loss", "test_loss"):
        assert resumed["metrics"][name] == pytest.approx(whole["metrics"][name], rel=1e-4)


@pytest.mark.parametrize("model", ["dagnn", "ggnn"])
def test_dropout_of_captured_steps_follows_from_the_seed(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A resumed run records its steps anew, at other moments than one that never ended."""
    run = small_run(model=model, epochs=3)
    run = replace(run, encoder=replace(run.encoder, dropout=0.3), captured=True)
    whole = train_code(run, dataset(), tmp_path / "whole", device="cuda", progress=False)

    def interrupted(self: TokenPrediction) -> None:
        if self.trainer.current_epoch == 1:
            raise RuntimeError("interrupted")

    with monkeypatch.context() as patch:
        patch.setattr(TokenPrediction, "on_train_epoch_start", interrupted)
        with pytest.raises(RuntimeError, match="interrupted"):
            train_code(run, dataset(), tmp_path / "parts", device="cuda", progress=False)
    resumed = train_code(run, dataset(), tmp_path / "parts", device="cuda", progress=False)
    assert resumed["metrics"]["test_loss"] == pytest.approx(whole["metrics"]["test_loss"], rel=1e-4)
    plain = replace(run, encoder=replace(run.encoder, dropout=None))
    other = train_code(plain, dataset(), tmp_path / "plain", device="cuda", progress=False)
    assert other["metrics"]["test_loss"] != pytest.approx(whole["metrics"]["test_loss"], rel=1e-3)


@pytest.mark.parametrize("precision", ["32", "bf16"])
@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("dagnn", {}),
        ("dvae", {}),
        ("dagnn", {"pool": "all", "readout": "attention"}),
        ("dagnn", {"pool": "all", "readout": "gated_sum"}),
    ],
)
def test_captured_steps_train_as_eager_ones(
    model: str, options: dict[str, str], precision: str, tmp_path: Path
) -> None:
    """Batches of several sizes, so that several graphs take turns."""
    weights = []
    for captured in (False, True):
        run = small_run(model=model, precision=precision, epochs=2)
        encoder = replace(run.encoder, **options)
        run = replace(run, encoder=encoder, captured=captured, learning_rate=1e-3)
        folder = tmp_path / str(captured)
        train_code(run, dataset(), folder, device="cuda", progress=False)
        weights.append(read_checkpoint(folder / "last.ckpt")["state_dict"])
    tolerance = 1e-4 if precision == "32" else 2e-3
    for name, value in weights[0].items():
        error = (weights[1][name] - value).norm() / value.norm().clamp(min=1e-3)
        assert error < tolerance, name


@pytest.mark.parametrize("model", ["dagnn", "dvae"])
def test_runs_with_one_seed_have_the_same_weights(model: str, tmp_path: Path) -> None:
    """With batches large enough for PyTorch's own gradients of embeddings to differ."""
    data = dataset()
    copies = np.tile(np.arange(len(data.train)), 1 + 30_000 // data.train.num_nodes)
    data = replace(data, train=data.train.select(copies))
    weights = []
    for name in ("first", "second"):
        run = replace(small_run(model=model, precision="bf16"), batch_size=len(copies) // 3)
        train_code(run, data, tmp_path / name, device="cuda", progress=False)
        weights.append(read_checkpoint(tmp_path / name / "last.ckpt")["state_dict"])
    assert all(torch.equal(weights[1][name], value) for name, value in weights[0].items())


@pytest.mark.parametrize("precision", ["32", "bf16"])
@pytest.mark.parametrize("model", ["gcn", "gin-vn", "gat", "ggnn", "bag"])
def test_captured_message_passing_trains_as_eager(
    model: str, precision: str, tmp_path: Path
) -> None:
    """Losses and spreads: of a bias before a batch normalization, Adam follows rounding errors,
    and so do the weights and means that it moves."""
    losses, states = [], []
    for captured in (False, True):
        run = small_run(model=model, precision=precision, epochs=3)
        run = replace(run, captured=captured, learning_rate=1e-3)
        folder = tmp_path / str(captured)
        train_code(run, dataset(), folder, device="cuda", progress=False)
        lines = (folder / "metrics.jsonl").read_text().splitlines()
        losses.append([json.loads(line)["loss"] for line in lines])
        states.append(read_checkpoint(folder / "last.ckpt")["state_dict"])
    tolerance = 1e-3 if precision == "32" else 3e-2
    assert losses[1] == pytest.approx(losses[0], rel=tolerance)
    assert losses[1][-1] < losses[1][0]
    for name, value in states[0].items():
        if name.endswith("num_batches_tracked"):
            assert torch.equal(states[1][name], value)  # no step of a warm-up is counted
        elif name.endswith("running_var"):
            error = (states[1][name] - value).norm() / value.norm()
            assert error < 10 * tolerance, name
