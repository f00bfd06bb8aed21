"""fit: what it leaves behind, when it stops, and that nothing is lost when it is killed."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import signal
import time
from collections.abc import Callable
from itertools import product
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Batch

from dagnn import FlatLoader, GraphBatchSampler
from dagnn.datasets.training_data import training_data
from dagnn.training import (
    NonFiniteLossError,
    Plateau,
    find_checkpoint,
    load_weights,
    read_checkpoint,
    seed_of_step,
)
from tests.training.toy import EPOCHS, Toy, graphs, kill_at, train

STEPS = 4


def weights(folder: Path, name: str = "last.ckpt") -> dict[str, Tensor]:
    state: dict[str, Tensor] = read_checkpoint(folder / name)["state_dict"]
    return state


def assert_same(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert one.keys() == other.keys()
    for name in one:
        assert torch.equal(one[name], other[name]), name


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run from beginning to end."""
    folder = tmp_path_factory.mktemp("whole")
    train(folder)
    return folder


def test_a_run_leaves_its_files(whole: Path) -> None:
    assert {path.name for path in whole.iterdir()} == {
        "best.ckpt",
        "config.json",
        "last.ckpt",
        "metrics.jsonl",
        "tensorboard",
    }
    rows = [json.loads(line) for line in (whole / "metrics.jsonl").read_text().splitlines()]
    assert [row["epoch"] for row in rows] == list(range(EPOCHS))
    assert [row["step"] for row in rows] == [STEPS * (e + 1) for e in range(EPOCHS)]
    best = min(rows, key=lambda row: row["valid_loss"])
    assert read_checkpoint(whole / "best.ckpt")["row"] == best
    config = json.loads((whole / "config.json").read_text())
    assert config["model"] == {"name": "toy", "layers": 2}
    assert config["fit"]["seed"] == 1
    assert read_checkpoint(whole / "last.ckpt")["config"]["model"]["name"] == "toy"


def test_training_lowers_the_loss(whole: Path) -> None:
    rows = [json.loads(line) for line in (whole / "metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["loss"] < rows[0]["loss"]


def test_a_finished_run_returns_at_once(whole: Path) -> None:
    before = (whole / "last.ckpt").stat().st_mtime_ns
    module = Toy()
    result = train(whole, module)
    assert (whole / "last.ckpt").stat().st_mtime_ns == before
    assert_same(module.state_dict(), weights(whole))
    assert result.finished
    assert len(result.history) == EPOCHS
    load_weights(module, result.best_checkpoint)
    assert_same(module.state_dict(), weights(whole, "best.ckpt"))


def test_another_config_is_refused_with_the_difference(whole: Path) -> None:
    with pytest.raises(ValueError, match=r"model\.layers is 2 there and 3 here"):
        train(whole, config={"model": {"name": "toy", "layers": 3}})
    with pytest.raises(ValueError, match=r"fit\.seed is 1 there and 2 here"):
        train(whole, seed=2)
    with pytest.raises(ValueError, match=r"extra is not set there and 'x' here"):
        train(whole, config={"model": {"name": "toy", "layers": 2}, "extra": "x"})


def test_where_the_data_are_is_kept_of_a_run_that_may_go_on(whole: Path, tmp_path: Path) -> None:
    assert training_data(whole) is None
    with pytest.raises(ValueError, match="another config"):
        train(whole, seed=2, source="other.txt")
    assert training_data(whole) is None
    train(tmp_path, epochs=1, source="mine.txt")
    train(tmp_path, epochs=1, source="moved.txt")
    assert training_data(tmp_path) == Path("moved.txt").absolute()
    # What somebody else keeps under these names is left as it is.
    for name in ("config.json", "data.json"):
        (tmp_path / name).write_text('{"x": 1}')
    with pytest.raises(ValueError, match="of something else"):
        train(tmp_path, epochs=1, source="mine.txt")
    assert (tmp_path / "data.json").read_text() == '{"x": 1}'


def assert_same_run(folder: Path, other: Path) -> None:
    """In all but the time it took."""
    for name in ("last.ckpt", "best.ckpt"):
        assert_same(weights(folder, name), weights(other, name))
    adam, others = (
        read_checkpoint(each / "last.ckpt")["optimizer_states"][0]["state"]
        for each in (folder, other)
    )
    for index, moments in adam.items():
        assert_same(moments, others[index])
    untimed = {"train_seconds": 0, "seconds": 0}
    rows, expected = (
        [json.loads(line) | untimed for line in (each / "metrics.jsonl").read_text().splitlines()]
        for each in (folder, other)
    )
    assert rows == expected
    assert (folder / "config.json").read_bytes() == (other / "config.json").read_bytes()


# "epochs" of those who call stand in their own config, too.
def of_epochs(epochs: int, **changes: Any) -> dict[str, Any]:
    config = {"epochs": epochs, "run": {"epochs": epochs}, "warmup": {"epochs": 1}}
    return {"epochs": epochs, "config": config, **changes}


@pytest.mark.parametrize("plateau", [None, Plateau(0, 0.5)])
def test_a_finished_run_is_made_longer(plateau: Plateau | None, tmp_path: Path) -> None:
    options = {"plateau": plateau, "patience": None}
    whole, longer = tmp_path / "whole", tmp_path / "longer"
    train(whole, **of_epochs(5, **options))
    assert train(longer, **of_epochs(2, **options)).finished == "all 2 epochs"
    for epochs in (3, 5):  # more than once
        assert train(longer, **of_epochs(epochs, **options)).finished == f"all {epochs} epochs"
    assert_same_run(longer, whole)
    shorter = r"longer is one of 5 epochs and cannot be made shorter, to 4; give 5 to .*, or more"
    with pytest.raises(ValueError, match=shorter):
        train(longer, **of_epochs(4, **options))
    with pytest.raises(ValueError, match=r"config: fit\.seed is 1 there and 2 here\. Choose"):
        train(longer, **of_epochs(6, **options, seed=2))
    another = of_epochs(6, **options)
    another["config"]["warmup"]["epochs"] = 6
    with pytest.raises(ValueError, match=r"config: warmup\.epochs is 1 there and 6 here\. Choose"):
        train(longer, **another)
    assert_same_run(longer, whole)  # what was refused has changed nothing


def test_a_run_that_goes_on_says_from_where(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for epochs in (1, 3):
        train(tmp_path, epochs=epochs, progress=True)
    said = [line for line in capfd.readouterr().err.splitlines() if "goes on" in line]
    assert said == [f"{tmp_path} goes on with epoch 2 of 3"]


def test_longer_than_patience_allows(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A run whose last epoch is also the one at which it would have stopped."""
    options = {"monitor": "learning_rate", "mode": "max", "patience": 2, "plateau": None}
    assert len(train(tmp_path, epochs=3, **options).history) == 3
    before = (tmp_path / "last.ckpt").read_bytes()
    result = train(tmp_path, epochs=9, **options, progress=True)
    assert result.finished == "no better learning_rate for 2 epochs"
    assert "finished already (epochs: 3): no better" in capfd.readouterr().err
    assert (tmp_path / "last.ckpt").read_bytes() == before


def test_a_module_with_a_scheduler_is_not_made_longer(tmp_path: Path) -> None:
    class Scheduled(Toy):
        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.Adam(self.parameters(), lr=0.01)
            return [optimizer], [torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 2)]

    train(tmp_path, Scheduled(), epochs=2, plateau=None)
    with pytest.raises(ValueError, match=r"expected 2 epochs, .* got 4: its module has a sched"):
        train(tmp_path, Scheduled(), epochs=4, plateau=None)
    assert train(tmp_path, Scheduled(), epochs=2, plateau=None).finished == "all 2 epochs"


def test_a_run_without_a_checkpoint_does_not_keep_its_folder(tmp_path: Path) -> None:
    module = Toy()
    module.poison = 0
    with pytest.raises(NonFiniteLossError):
        train(tmp_path, module)
    assert not (tmp_path / "last.ckpt").exists()
    result = train(tmp_path, config={"model": {"name": "toy", "layers": 3}}, epochs=1)
    assert json.loads((tmp_path / "config.json").read_text())["model"]["layers"] == 3
    result.last_checkpoint.unlink()  # the best weights are still something to lose
    with pytest.raises(ValueError, match=r"model\.layers is 3 there and 2 here"):
        train(tmp_path, epochs=1)


@pytest.mark.parametrize("text", ['{"name": "my-project"}', "[1]"])
def test_a_foreign_config_is_left_alone(text: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ValueError, match="expected the config of a run"):
        train(tmp_path)
    assert (tmp_path / "config.json").read_text() == text


class Waiting(Toy):
    def __init__(self, begun: Event) -> None:
        super().__init__()
        self.begun = begun

    def training_step(self, batch: Batch, index: int) -> Tensor:
        self.begun.set()
        time.sleep(60)
        return super().training_step(batch, index)


def train_slowly(folder: Path, begun: Event) -> None:
    train(folder, Waiting(begun), source="mine.txt")


def test_one_process_at_a_time(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    begun = context.Event()
    child = context.Process(target=train_slowly, args=(tmp_path, begun))
    child.start()
    try:
        assert begun.wait(60)
        with pytest.raises(ValueError, match=f"another process is training .* {child.pid}.*Wait"):
            train(tmp_path, source="other.txt")
        assert training_data(tmp_path) == Path("mine.txt").absolute()
    finally:
        child.kill()
        child.join(60)
    assert train(tmp_path, epochs=1).finished  # nothing is left of a killed one
    assert not (tmp_path / ".lock").exists()


# A run of 4 epochs of 4 steps, with a checkpoint after 2 steps, goes through: 16 steps; 1 config,
# 4 metrics, up to 4 best and 8 last checkpoints as files.
MOMENTS = [
    "on_train_batch_start:1",
    "on_before_optimizer_step:7",
    "on_train_batch_end:8",
    "on_train_epoch_end:2",
    "half_written:3",
    "written:4",
    "written:6",
    "written:9",
    "on_train_batch_end:16",
]


def die_at(moment: str, folder: Path) -> None:
    kill_at(moment)
    train(folder)


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_and_resumed_ends_with_the_same_weights(
    moment: str, whole: Path, tmp_path: Path
) -> None:
    child = multiprocessing.get_context("fork").Process(target=die_at, args=(moment, tmp_path))
    child.start()
    child.join(60)
    assert child.exitcode == -signal.SIGKILL
    module = Toy()
    with torch.no_grad():  # the weights are to come from the checkpoint, if there is one
        if (tmp_path / "last.ckpt").exists():
            module.head[1].weight.fill_(9.0)
    result = train(tmp_path, module)
    assert_same(weights(tmp_path), weights(whole))
    assert_same(weights(tmp_path, "best.ckpt"), weights(whole, "best.ckpt"))
    expected = [json.loads(line) for line in (whole / "metrics.jsonl").read_text().splitlines()]
    untimed = {"train_seconds": 0, "seconds": 0}
    for row, other in zip(result.history, expected, strict=True):
        assert {**row, **untimed} == {**other, **untimed}


def test_checkpoints_hold_no_code(whole: Path) -> None:
    for name in ("best.ckpt", "last.ckpt"):
        torch.load(whole / name, weights_only=True)


def test_a_run_with_a_damaged_checkpoint_says_how_to_go_on(tmp_path: Path) -> None:
    train(tmp_path, **of_epochs(2))
    last = tmp_path / "last.ckpt"
    last.write_bytes(last.read_bytes()[:1000])
    words = (
        r"^cannot go on: .* cannot be read .*\. Remove best\.ckpt \(or keep it elsewhere\) and "
        r".*last\.ckpt to train again from the first"
    )
    for epochs in (2, 3):
        with pytest.raises(ValueError, match=words):
            train(tmp_path, **of_epochs(epochs))
    last.unlink()
    (tmp_path / "best.ckpt").unlink()
    assert train(tmp_path, **of_epochs(2)).finished == "all 2 epochs"


def test_best_weights_are_not_replaced_by_those_of_a_run_from_the_start(tmp_path: Path) -> None:
    train(tmp_path, **of_epochs(2))
    (tmp_path / "last.ckpt").unlink()
    best = (tmp_path / "best.ckpt").read_bytes()
    words = r"^cannot go on: .* best\.ckpt of a run of 2 epochs, but no last\.ckpt\. .* keep it"
    for epochs in (2, 3):
        with pytest.raises(ValueError, match=words):
            train(tmp_path, **of_epochs(epochs))
    assert (tmp_path / "best.ckpt").read_bytes() == best


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (
            Path.unlink,
            r"best epoch in .*best\.ckpt, got no such file. Put it back, or remove .*last",
        ),
        (
            lambda best: best.write_bytes(best.read_bytes()[:1000]),
            r"best\.ckpt, which cannot be read .* put them back, or remove .*best\.ckpt and .*last",
        ),
    ],
)
def test_best_weights_that_are_missing_are_missed_before_training(
    damage: Callable[[Path], None], words: str, tmp_path: Path
) -> None:
    train(tmp_path, **of_epochs(2))
    damage(tmp_path / "best.ckpt")
    last = (tmp_path / "last.ckpt").read_bytes()
    for epochs in (2, 3):
        with pytest.raises(ValueError, match=words):
            train(tmp_path, **of_epochs(epochs))
    assert (tmp_path / "last.ckpt").read_bytes() == last


def test_damaged_checkpoint_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.ckpt"
    path.write_bytes(b"PK\x03\x04 not really")
    words = r"expected a checkpoint, got .*x\.ckpt, which .*; a checkpoint is best\.ckpt or last"
    with pytest.raises(ValueError, match=words):
        read_checkpoint(path)
    torch.save([1, 2], path)
    with pytest.raises(ValueError, match="with a state_dict"):
        read_checkpoint(path)
    torch.save({"state_dict": {"other": torch.zeros(1)}}, path)
    with pytest.raises(ValueError, match="holds another model"):
        load_weights(Toy(), path)


def test_a_file_of_another_kind_is_no_damaged_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"or last\.ckpt .* of another kind: .*table\.csv$"):
        read_checkpoint(path)


def test_a_run_is_found_below_a_folder(tmp_path: Path) -> None:
    def make(*runs: str) -> None:
        for run in runs:
            (tmp_path / run).mkdir(parents=True)
            (tmp_path / run / "best.ckpt").touch()

    with pytest.raises(ValueError, match=r"without best\.ckpt"):
        find_checkpoint(tmp_path)
    make("lp/gcn/seed0")
    assert find_checkpoint(tmp_path) == tmp_path / "lp" / "gcn" / "seed0" / "best.ckpt"
    make("tok/dagnn/seed0")
    with pytest.raises(ValueError, match=r"name one: .*lp/gcn/seed0, .*tok/dagnn/seed0$"):
        find_checkpoint(tmp_path)
    make("seed0", *(f"sweep/{i}" for i in range(7)))  # the sweep that came before a run
    assert find_checkpoint(tmp_path) == tmp_path / "seed0" / "best.ckpt"
    with pytest.raises(ValueError, match=r"sweep/4 and 2 more$"):
        find_checkpoint(tmp_path / "sweep")


def test_no_damage_goes_unnoticed(whole: Path, tmp_path: Path) -> None:
    content = (whole / "best.ckpt").read_bytes()
    path = tmp_path / "x.ckpt"
    for size in range(0, len(content), 97):
        path.write_bytes(content[:size])
        with pytest.raises(ValueError, match=r"expected a checkpoint, got .*x\.ckpt"):
            read_checkpoint(path)
    expected = weights(whole, "best.ckpt")
    for place in range(0, len(content), 97):
        path.write_bytes(content[:place] + bytes([content[place] ^ 0xFF]) + content[place + 1 :])
        try:
            found = weights(tmp_path, "x.ckpt")
        except ValueError:
            continue
        assert_same(found, expected)  # it was one of the bytes between two files


def test_missing_checkpoint_is_not_a_damaged_one(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_checkpoint(tmp_path / "x.ckpt")
    with pytest.raises(IsADirectoryError):
        read_checkpoint(tmp_path)


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("echo this must not run",)


def test_nothing_is_executed_on_reading(tmp_path: Path) -> None:
    torch.save({"state_dict": Evil()}, tmp_path / "evil.ckpt")
    with pytest.raises(ValueError, match="expected a checkpoint"):
        read_checkpoint(tmp_path / "evil.ckpt")


def test_patience_stops_early(tmp_path: Path) -> None:
    result = train(
        tmp_path, monitor="learning_rate", mode="max", patience=2, plateau=None, epochs=9
    )
    assert len(result.history) == 3
    assert result.finished == "no better learning_rate for 2 epochs"
    # All epochs are equal in it: the best weights are those with the lowest loss.
    best = min(result.history, key=lambda row: row["valid_loss"])
    assert best["epoch"] > 0
    assert result.best == best
    again = train(tmp_path, monitor="learning_rate", mode="max", patience=2, plateau=None, epochs=9)
    assert again == result


def test_plateau_lowers_the_learning_rate(tmp_path: Path) -> None:
    result = train(
        tmp_path, monitor="epoch", mode="max", plateau=Plateau(0, 0.1), patience=None, epochs=2
    )
    assert [row["learning_rate"] for row in result.history] == [0.01, 0.01]
    result = train(
        tmp_path / "b", monitor="epoch", mode="min", plateau=Plateau(1, 0.1), patience=None
    )
    rates = [row["learning_rate"] for row in result.history]
    assert rates == pytest.approx([0.01, 0.01, 0.01, 0.001])


@pytest.mark.parametrize("clip", [0.1, None])
def test_a_step_clips_the_gradient(clip: float | None, tmp_path: Path) -> None:
    """All of it, by its norm, before the optimizer sees it."""

    class Descending(Toy):
        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.5)

    data = graphs(4)
    loaders = FlatLoader(data, 4), FlatLoader(data, 4)
    train(tmp_path, Descending(dropout=0.0), loaders, epochs=1, plateau=None, clip=clip)
    before = Toy(dropout=0.0)
    before.loss(data.batch(range(4))).backward()
    gradient = {n: p.grad for n, p in before.named_parameters() if p.grad is not None}
    norm = float(torch.cat([grad.flatten() for grad in gradient.values()]).norm())
    assert norm > 0.5
    rate = 0.5 if clip is None else 0.5 * clip / norm
    after = weights(tmp_path)
    for name, value in before.named_parameters():
        expected = value.detach() - rate * gradient[name]
        torch.testing.assert_close(after[name], expected, msg=name)


def test_every_step_of_every_process_has_a_seed_of_its_own() -> None:
    numbers = product(range(3), range(12), range(12))
    assert len({seed_of_step(*number) for number in numbers}) == 3 * 12 * 12


def test_loss_is_monitored_without_validation(tmp_path: Path) -> None:
    class NoValidation(Toy):
        validation_step = None  # type: ignore[assignment]

    result = train(tmp_path, NoValidation(), monitor="loss")
    assert result.best["loss"] == min(row["loss"] for row in result.history)


def test_unknown_monitor_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"expected monitor to be one of .*valid_loss.*'f1'"):
        train(tmp_path, monitor="f1")


def test_non_finite_loss_stops_and_tells_the_graphs(tmp_path: Path) -> None:
    module = Toy()
    module.poison = 6
    with pytest.raises(NonFiniteLossError, match=r"step 6 \(epoch 1, batch 2, graphs") as caught:
        train(tmp_path, module)
    sampler = GraphBatchSampler(16, 4, seed=5)
    sampler.set_epoch(1)
    assert caught.value.graphs == list(sampler)[2]
    saved = read_checkpoint(tmp_path / "non_finite.ckpt")
    assert saved["row"]["graphs"] == caught.value.graphs
    # The weights are those that gave the loss, which are those of the last checkpoint.
    assert_same(saved["state_dict"], weights(tmp_path))
    assert all(value.isfinite().all() for value in saved["state_dict"].values())
    assert saved["row"]["steps_later"] == 0
    assert "later" not in str(caught.value)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.step) == (str(caught.value), 6)


def test_a_loss_found_late_says_how_late(tmp_path: Path) -> None:
    class Manual(Toy):
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False

        def training_step(self, batch: Batch, index: int) -> Tensor:
            self.optimizers().step()  # type: ignore[union-attr]
            return torch.tensor(float("nan") if index == 1 else 1.0)

    with pytest.raises(NonFiniteLossError, match=r"step 1 .*ckpt, as it was 3 steps later\. Try"):
        train(tmp_path, Manual(), checkpoint_every_steps=None)
    assert read_checkpoint(tmp_path / "non_finite.ckpt")["row"]["steps_later"] == 3


def test_metrics_are_json_and_rates_are_round(tmp_path: Path) -> None:
    class Odd(Toy):
        def validation_step(self, batch: Batch, index: int) -> None:
            super().validation_step(batch, index)
            self.log("odd", torch.tensor(float("nan")), batch_size=1)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.Adam(self.parameters(), lr=torch.tensor(0.01), capturable=False)

    def refuse(word: str) -> None:
        raise AssertionError(word)

    result = train(tmp_path, Odd(), epochs=1, plateau=None)
    [line] = (tmp_path / "metrics.jsonl").read_text().splitlines()
    row = json.loads(line, parse_constant=refuse)
    assert row["odd"] is None
    assert row["learning_rate"] == result.history[0]["learning_rate"] == 0.01


def test_manual_optimization(tmp_path: Path) -> None:
    class Manual(Toy):
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False
            self.reused = torch.zeros(())

        def training_step(self, batch: object, index: int) -> Tensor:
            optimizer = self.optimizers()
            loss = self.loss(batch)  # type: ignore[arg-type]
            optimizer.zero_grad()  # type: ignore[union-attr]
            self.manual_backward(loss)
            optimizer.step()  # type: ignore[union-attr]
            self.reused.copy_(loss.detach())
            return self.reused

    by_hand = train(tmp_path / "manual", Manual())
    automatic = train(tmp_path / "automatic")
    assert [r["loss"] for r in by_hand.history] == [r["loss"] for r in automatic.history]
    assert_same(weights(tmp_path / "manual"), weights(tmp_path / "automatic"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epochs": 0}, "epochs >= 1"),
        ({"patience": 0}, "patience >= 1"),
        ({"checkpoint_every_steps": 0}, "checkpoint_every_steps >= 1"),
        ({"clip": -0.25}, "clip > 0"),
        ({"clip": 0.0}, "clip > 0"),
        ({"mode": "best"}, "mode 'min' or 'max'"),
        ({"precision": "16"}, "precision 32, tf32, bf16"),
        ({"device": "tpu"}, "device 'auto', 'cpu' or 'cuda'"),
    ],
)
def test_bad_arguments(change: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        train(tmp_path, **change)


@pytest.mark.parametrize("precision", ["bf16", "tf32"])
def test_lower_precision_runs(precision: str, tmp_path: Path) -> None:
    before = torch.get_float32_matmul_precision()
    result = train(tmp_path, precision=precision, epochs=1)
    assert result.history[0]["loss"] > 0
    assert torch.get_float32_matmul_precision() == before
