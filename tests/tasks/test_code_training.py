"""Runs of code models: records, seeds, sweeps, restored models, evaluation."""

from __future__ import annotations

import json
import multiprocessing
import signal
from dataclasses import replace
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from dagnn.datasets.code_dataset import CodeDataset
from dagnn.graph import sampler
from dagnn.graph.sampler import DepthBucketSampler, GraphBatchSampler
from dagnn.tasks import code_training
from dagnn.tasks.code_encoders import DYNAMIC, MODELS, RECURRENT, EncoderConfig
from dagnn.tasks.code_protocol import CodeRun, preset
from dagnn.tasks.code_training import evaluate, load_task, repeat, sweep, train_code
from dagnn.tasks.token_prediction import TokenPrediction
from dagnn.training import origins_of, read_checkpoint, training_step
from tests.tasks.small_code import dataset, vocabulary
from tests.training.toy import kill_at

QUIET: dict[str, Any] = {"device": "cpu", "progress": False}


def small_run(task: str = "tok", model: str = "dagnn", **options: Any) -> CodeRun:
    run = preset("quick", task, model)
    encoder = replace(run.encoder, channels=16)
    settings = {"epochs": 2, "batch_size": 8, "learning_rate": 0.01, **options}
    return replace(run, encoder=encoder, **settings)


def load_share(edges: str, share: float) -> CodeDataset:
    return replace(dataset(edges), train_share=share)


@pytest.mark.parametrize(("task", "metric"), [("tok", "f1"), ("lp", "accuracy")])
def test_a_run_and_its_record(task: str, metric: str, tmp_path: Path) -> None:
    run = small_run(task)
    data = dataset(run.edges)
    record = train_code(run, data, tmp_path, **QUIET)
    assert json.loads((tmp_path / "record.json").read_text()) == record
    assert record["seed"] == 0
    assert record["config"]["encoder"]["model"] == "dagnn"
    assert record["data"]["fingerprint"] == data.fingerprint
    assert record["versions"]["torch"] == torch.__version__
    assert record["metrics"]["epochs"] == 2

    task_of_best = load_task(tmp_path / "best.ckpt")
    assert task_of_best.edges == run.edges
    values = evaluate(task_of_best, data.test, device="cpu")
    assert values[metric] == pytest.approx(record["metrics"][f"test_{metric}"])
    whole = data.test.batch(range(len(data.test)), schedule=True)
    with torch.no_grad():
        at_once = task_of_best.evaluate_batch(whole)
    assert values == pytest.approx({name: float(v) for name, v in at_once.items()}, rel=1e-4)

    again = train_code(run, data, tmp_path, **QUIET)
    assert again["metrics"] == record["metrics"]


def test_a_finished_run_keeps_its_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever looks at it later, with another version on another machine, has not made it."""
    run = small_run("lp", "gcn", epochs=1)
    record = train_code(run, dataset("ast"), tmp_path, **QUIET)
    text = (tmp_path / "record.json").read_text()
    assert "earlier" not in record
    monkeypatch.setattr("dagnn.training.record._hardware", lambda: {"machine": "another"})
    assert train_code(run, dataset("ast"), tmp_path, **QUIET) == json.loads(text)
    assert (tmp_path / "record.json").read_text() == text

    (tmp_path / "record.json").unlink()  # as if it had been killed before it wrote it
    again = train_code(run, dataset("ast"), tmp_path, **QUIET)
    first = {name: record[name] for name in ("commit", "versions", "hardware")}
    assert again["metrics"] == record["metrics"]
    assert again["hardware"] == {"machine": "another"}  # where the test split was evaluated
    assert again["earlier"] == [first]

    longer = train_code(replace(run, epochs=2), dataset("ast"), tmp_path, **QUIET)
    assert origins_of(longer) == [first, {**first, "hardware": {"machine": "another"}}]


@pytest.mark.parametrize("task", ["tok", "lp"])
def test_metrics_are_means_over_graphs(
    task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not over batches, where these are of unequal sizes."""
    run = small_run(task, epochs=1)
    data = dataset(run.edges)
    graphs = data.valid.select(range(11))
    monkeypatch.setattr(code_training, "EVALUATION_BATCH", 5)
    assert [len(batch) for batch in code_training._by_depth(graphs.depths)] == [4, 4, 3]
    record = train_code(run, replace(data, valid=graphs), tmp_path, **QUIET)
    module = load_task(tmp_path)
    with torch.no_grad():
        at_once = module.evaluate_batch(graphs.batch(range(11), schedule=True))
    expected = {name: float(value) for name, value in at_once.items()}
    assert evaluate(module, graphs, device="cpu") == pytest.approx(expected, rel=1e-4)
    in_training = {name: record["metrics"][f"valid_{name}"] for name in expected}
    assert in_training == pytest.approx(expected, rel=1e-4)


def test_the_time_of_epochs_beside_others_is_not_told(tmp_path: Path) -> None:
    run = small_run("lp", "gcn")
    beside = train_code(replace(run, epochs=1), dataset("ast"), tmp_path, shared=True, **QUIET)
    assert "train_seconds" not in beside["metrics"]
    assert beside["shared"] is True
    alone = train_code(replace(run, epochs=2), dataset("ast"), tmp_path, **QUIET)
    _, row = (json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines())
    assert alone["metrics"]["train_seconds"] == row["train_seconds"]
    assert alone["shared"] is True  # once


def test_seeds_of_which_one_ran_beside_others(tmp_path: Path) -> None:
    run = small_run("lp", "gcn", epochs=1)
    train_code(replace(run, seed=1), dataset("ast"), tmp_path / "seed1", shared=True, **QUIET)
    summary = repeat(run, lambda edges, _: dataset(edges), tmp_path, [0, 1], **QUIET)
    assert "train_seconds" not in summary["mean"]
    assert summary["mean"]["epochs"] == 1


@pytest.mark.parametrize("model", ["dagnn", "gcn"])
def test_runs_are_reproducible(model: str, tmp_path: Path) -> None:
    run = small_run(model=model, train_limit=24)
    records = [train_code(run, dataset(), tmp_path / name, **QUIET) for name in "ab"]
    weights = [read_checkpoint(tmp_path / name / "last.ckpt")["state_dict"] for name in "ab"]
    assert records[0]["config"]["data"]["train"] == 24
    for name in weights[0]:
        assert torch.equal(weights[0][name], weights[1][name])


def die_at(moment: str, run: CodeRun, folder: Path) -> None:
    kill_at(moment)
    train_code(run, dataset(), folder, checkpoint_every_steps=2, **QUIET)


@pytest.mark.parametrize("model", ["dagnn", "gcn"])
@pytest.mark.parametrize("moment", ["on_train_batch_end:4", "on_train_batch_end:9"])
def test_killed_and_resumed_ends_with_the_same_weights(
    model: str, moment: str, tmp_path: Path
) -> None:
    run = small_run(model=model)
    run = replace(run, encoder=replace(run.encoder, dropout=0.2))
    child = multiprocessing.get_context("fork").Process(
        target=die_at, args=(moment, run, tmp_path / "killed")
    )
    child.start()
    child.join(60)
    assert child.exitcode == -signal.SIGKILL
    assert (tmp_path / "killed" / "last.ckpt").exists()
    for name in ("killed", "whole"):
        train_code(run, dataset(), tmp_path / name, **QUIET)
    one, other = (
        read_checkpoint(tmp_path / name / "last.ckpt")["state_dict"] for name in ("killed", "whole")
    )
    for name in one:
        assert torch.equal(one[name], other[name])


def test_several_seeds(tmp_path: Path) -> None:
    data = dataset()
    result = repeat(small_run(epochs=1), lambda edges, share: data, tmp_path, [3, 4], **QUIET)
    scores = [record["metrics"]["test_f1"] for record in result["runs"]]
    assert result["seeds"] == [3, 4]
    assert result["mean"]["test_f1"] == pytest.approx(sum(scores) / 2)
    assert result["std"]["test_f1"] == pytest.approx(abs(scores[0] - scores[1]) / 2**0.5)
    assert json.loads((tmp_path / "result.json").read_text()) == result
    assert (tmp_path / "seed3" / "best.ckpt").exists()


def test_sweep_takes_the_best_rate_on_a_subset(tmp_path: Path) -> None:
    asked = []

    def load(edges: str, share: float) -> CodeDataset:
        asked.append((edges, share))
        return load_share(edges, share)

    best, scores = sweep(small_run(epochs=3), load, tmp_path, [1e-6, 1e-2], **QUIET)
    assert asked == [("full", 0.15)]
    assert scores[1e-2] > scores[1e-6]
    assert best == 1e-2


@pytest.mark.parametrize("model", MODELS)
def test_presets_follow_the_paper(model: str) -> None:
    run = preset("paper", "tok", model)
    recurrent = model in RECURRENT
    assert run.encoder.channels == 300
    assert (run.batch_size, run.patience) == ((80, 10) if recurrent else (128, 20))
    assert run.clip == (0.25 if recurrent else None)
    assert run.edges == "full"
    lp = preset("paper", "lp", model)
    assert lp.edges == "ast"
    assert not lp.encoder.depth
    assert lp.encoder.bidirectional == (not recurrent)


def test_bad_settings(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a preset of quick, paper"):
        preset("slow", "tok", "dagnn")
    with pytest.raises(ValueError, match="a task of tok, lp"):
        preset("quick", "sum", "dagnn")
    with pytest.raises(ValueError, match="learning_rate > 0"):
        CodeRun("tok", learning_rate=0.0)
    with pytest.raises(ValueError, match="edges='full', got 'ast'"):
        train_code(small_run(), dataset("ast"), tmp_path, **QUIET)
    with pytest.raises(ValueError, match=r"train_share=0\.15, got 1\.0"):
        train_code(replace(small_run(), train_share=0.15), dataset(), tmp_path, **QUIET)
    with pytest.raises(ValueError, match="settings of"):
        EncoderConfig.from_dict({"width": 3})
    torch.save({"state_dict": {}}, tmp_path / "other.ckpt")
    with pytest.raises(ValueError, match="expected a checkpoint of tok or lp"):
        load_task(tmp_path / "other.ckpt")


@pytest.mark.parametrize(
    ("model", "wanted"), [("dagnn", "a CUDA device with Triton"), ("gcn", "a CUDA device")]
)
def test_captured_steps_need_a_gpu(model: str, wanted: str, tmp_path: Path) -> None:
    run = small_run(model=model, captured=True)
    with pytest.raises(ValueError, match=f"expected {wanted} for captured steps, got cpu"):
        train_code(run, dataset(run.edges), tmp_path, **QUIET)
    assert not list(tmp_path.iterdir())


def test_captured_steps_need_sizes_that_depend_on_no_values() -> None:
    for model in DYNAMIC:
        with pytest.raises(ValueError, match=f"sizes follow.*for captured steps, got {model}"):
            small_run(model=model, captured=True)
    slow = EncoderConfig(channels=16, aggregator="dot_attention")
    task = TokenPrediction(slow, vocabulary())
    with pytest.raises(ValueError, match="expected a model with a fused path"):
        task.capture_steps(None, bf16=False)


class EagerStand:
    """Runs steps as they come, where a CUDA graph would be recorded."""

    keys: ClassVar[set[Any]] = set()

    def __init__(self, *_: Any) -> None:
        pass

    def __call__(self, key: Any, inputs: list[Tensor], step: Any) -> Tensor:
        self.keys.add(key)
        return step([tensor.clone() for tensor in inputs])


@pytest.mark.parametrize("task", ["tok", "lp"])
def test_padded_steps_train_the_same(
    task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of a captured run but the recording."""
    monkeypatch.setattr(training_step, "CapturedStep", EagerStand)
    run = small_run(task, epochs=3)
    train_code(run, dataset(run.edges), tmp_path / "plain", **QUIET)

    monkeypatch.setattr(code_training, "choose_device", lambda _: torch.device("cpu"))
    monkeypatch.setattr(code_training, "_can_capture", lambda *_: True)
    EagerStand.keys.clear()
    train_code(run, dataset(run.edges), tmp_path / "padded", **QUIET)  # by default where it can be
    assert len(EagerStand.keys) > 1  # sizes
    EagerStand.keys.clear()
    eager = replace(run, captured=False)
    train_code(eager, dataset(run.edges), tmp_path / "eager", **QUIET)
    assert not EagerStand.keys
    plain, padded = (
        read_checkpoint(tmp_path / name / "last.ckpt")["state_dict"] for name in ("plain", "padded")
    )
    for name, value in plain.items():
        torch.testing.assert_close(padded[name], value, atol=1e-4, rtol=1e-3, msg=name)


def test_all_that_a_warm_up_changes_can_be_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Tensor] = []
    monkeypatch.setattr(training_step, "CapturedStep", lambda changed, _: told.extend(changed))
    task = TokenPrediction(EncoderConfig(model="gin-vn", channels=8), vocabulary())
    trainer = SimpleNamespace(optimizers=[task.configure_optimizers()])
    monkeypatch.setattr(TokenPrediction, "trainer", trainer)
    task.capture_steps(None, bf16=False)
    task.on_train_start()
    known = {id(tensor) for tensor in told}
    assert known == {id(tensor) for tensor in task.state_dict(keep_vars=True).values()}


@pytest.mark.parametrize(("task", "model"), [("tok", "gat"), ("tok", "ggnn"), ("lp", "gin-vn")])
def test_padded_steps_of_message_passing(
    task: str, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They come to the same losses. Weights may differ: before a batch normalization, the gradient
    of a bias is a rounding error, of which Adam takes the sign."""
    monkeypatch.setattr(training_step, "CapturedStep", EagerStand)
    monkeypatch.setattr(code_training, "choose_device", lambda _: torch.device("cpu"))
    monkeypatch.setattr(code_training, "_can_capture", lambda *_: True)
    EagerStand.keys.clear()
    run = small_run(task, model, epochs=3, learning_rate=1e-3)
    losses = []
    for captured in (False, None):
        folder = tmp_path / str(captured)
        train_code(replace(run, captured=captured), dataset(run.edges), folder, **QUIET)
        lines = (folder / "metrics.jsonl").read_text().splitlines()
        losses.append([json.loads(line)["loss"] for line in lines])
        assert (len(EagerStand.keys) > 1) == (captured is None)  # by default where it can be
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)


@pytest.mark.parametrize(("channels", "captured"), [(300, True), (600, False)])
def test_models_too_wide_for_their_fused_path_are_not_captured(
    channels: int, captured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reference looks at schedules on the host."""
    pytest.importorskip("triton", reason="Triton comes with PyTorch's builds for Linux")
    monkeypatch.setattr(code_training, "_can_capture", lambda *_: True)
    run = small_run("tok", "dvae")
    run = replace(run, encoder=replace(run.encoder, channels=channels))
    module = TokenPrediction(run.encoder, vocabulary())
    gpu = torch.device("cuda")
    assert code_training._captures(run, module, gpu, 1) == captured
    if not captured:
        with pytest.raises(ValueError, match=r"fits its fused path in 32 .* got 600 channels"):
            code_training._captures(replace(run, captured=True), module, gpu, 1)


def test_a_sweep_goes_on_where_a_rate_diverges(tmp_path: Path) -> None:
    run = small_run(epochs=1)
    best, scores = sweep(run, load_share, tmp_path, [1e30, 0.01], **QUIET)
    assert best == 0.01
    assert scores[1e30] is None
    with pytest.raises(ValueError, match="expected a learning rate that does not diverge"):
        sweep(run, load_share, tmp_path / "all", [1e30], **QUIET)


@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_empty_splits_are_refused_before_training(split: str, tmp_path: Path) -> None:
    data = dataset()
    empty = replace(data, **{split: data.test.select([0])})
    monkey: Any = getattr(empty, split)
    monkey._tables.pointers["graph"] = monkey._tables.pointers["graph"][:1]
    with pytest.raises(ValueError, match=f"expected functions in the {split} split.*--split-by"):
        train_code(small_run(), empty, tmp_path, **QUIET)


def test_a_missing_gpu_is_named(tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device here")
    with pytest.raises(ValueError, match="expected a CUDA device, but torch finds none"):
        train_code(small_run(), dataset(), tmp_path, device="cuda", progress=False)


@pytest.mark.parametrize("task", ["tok", "lp"])
def test_processes_share_the_batches_of_one(task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where pools of like depth are many."""
    monkeypatch.setattr(code_training, "POOL", 3)
    run = small_run(task)
    graphs = dataset(run.edges).train
    batches = []
    for processes in (1, 2, 4):
        parts = []
        for rank in range(processes):
            where = rank, processes
            monkeypatch.setattr(code_training, "number", lambda where=where: where[1])
            monkeypatch.setattr(sampler, "rank_and_world_size", lambda where=where: where)
            loader = code_training._training_loader(run, graphs, True, torch.device("cpu"), False)
            parts.append(list(loader.batch_sampler))
        batches.append([list(chain(*shares)) for shares in zip(*parts, strict=True)])
    assert len(batches[0]) > 3
    assert batches[0] == batches[1] == batches[2]


@pytest.mark.parametrize(
    ("task", "recurrent", "kind"),
    [
        ("tok", True, DepthBucketSampler),
        ("tok", False, GraphBatchSampler),
        ("lp", True, GraphBatchSampler),
        ("lp", False, GraphBatchSampler),
    ],
)
def test_batches_of_like_depth_are_for_recurrent_models_of_names(
    task: str, recurrent: bool, kind: type[GraphBatchSampler]
) -> None:
    """Where the longest path is the label, such a batch would be of one class."""
    run = small_run(task)
    graphs = dataset(run.edges).train
    loader = code_training._training_loader(run, graphs, recurrent, torch.device("cpu"), False)
    assert type(loader.batch_sampler) is kind


@pytest.mark.parametrize(("graphs", "processes"), [(7, 2), (1000, 3), (256, 4), (3, 3)])
def test_processes_share_what_is_evaluated(
    graphs: int, processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    depths = torch.arange(graphs).flip(0)
    shares = []
    for rank in range(processes):
        monkeypatch.setattr(code_training, "rank_and_world_size", lambda r=rank: (r, processes))
        shares.append(code_training._by_depth(depths))
    assert len({len(share) for share in shares}) == 1  # as many batches, so that none waits
    everything = [graph for share in shares for batch in share for graph in batch]
    assert sorted(everything) == list(range(graphs))
    assert all(len(batch) <= code_training.EVALUATION_BATCH for s in shares for batch in s)


def test_fewer_graphs_than_processes_go_to_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_training, "rank_and_world_size", lambda: (2, 4))
    assert code_training._by_depth(torch.tensor([5, 1, 3])) == [[1, 2, 0]]
