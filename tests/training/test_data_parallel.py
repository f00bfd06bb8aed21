"""Two processes over gloo do what one does with the same batches, also after a kill."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Batch

from dagnn import FlatLoader
from dagnn.training import FitResult, NonFiniteLossError, fit, read_checkpoint
from dagnn.training.processes import from_first, is_first, join, leave, number
from tests.training.toy import Toy, graphs, kill_at, train

TIMEOUT = 120  # seconds; only a test that fails takes so long
WORLD = 2
BATCH = 6  # of both processes together; of 15 graphs, the last 3 are shared unevenly

context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(["tests.training.toy"])


class Dropping(Toy):
    """Keeps masks as dropout draws them."""

    def __init__(self) -> None:
        super().__init__()
        self.masks: list[list[float]] = []

    def training_step(self, batch: Batch, index: int) -> Tensor:
        self.masks.append(nn.functional.dropout(torch.ones(64)).tolist())
        return super().training_step(batch, index)


def fit_toy(
    folder: Path, processes: int = 1, poison: int | None = None, module: Toy | None = None
) -> FitResult:
    """By default the toy without dropout, whose masks are other ones in each process."""
    data = graphs(23)
    module = module or Toy(dropout=0.0)
    module.poison = poison
    train_loader = FlatLoader(data.select(range(15)), BATCH // processes, shuffle=True, seed=5)
    valid_loader = FlatLoader(data.select(range(15, 23)), BATCH // processes)
    return train(
        folder,
        module,
        loaders=(train_loader, valid_loader),
        devices=processes,
    )


def start(rank: int, port: int, work: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    """As torchrun starts a process."""
    torch.set_num_threads(1)
    os.environ.update(
        TORCHELASTIC_RUN_ID="test",
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
        WORLD_SIZE=str(WORLD),
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        GROUP_RANK="0",
    )
    work(*arguments)
    leave()  # and never return: gloo's teardown can wait for ever


def together(work: Callable[..., None], *arguments: Any) -> list[int | None]:
    """Run a function in two processes; how each of them ended."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes = [
        context.Process(target=start, args=(rank, port, work, arguments)) for rank in range(WORLD)
    ]
    for process in processes:
        process.start()
    try:
        for process in processes:
            process.join(TIMEOUT)
        return [process.exitcode for process in processes]
    finally:
        for process in processes:
            process.kill()


def rows(folder: Path) -> list[dict[str, float]]:
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    hidden = ("train_seconds", "seconds")
    return [{k: v for k, v in json.loads(line).items() if k not in hidden} for line in lines]


def assert_like(folder: Path, expected: Path) -> None:
    """The same run, up to the rounding of sums."""
    assert len(rows(folder)) == len(rows(expected))
    for found, wanted in zip(rows(folder), rows(expected), strict=True):
        assert found == pytest.approx(wanted, rel=1e-4)
    for name in ("last.ckpt", "best.ckpt"):
        a, b = (read_checkpoint(where / name)["state_dict"] for where in (folder, expected))
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of one process."""
    folder = tmp_path_factory.mktemp("alone")
    fit_toy(folder)
    return folder


def whole_run(folder: Path) -> None:
    result = fit_toy(folder / "whole", WORLD)
    again = fit_toy(folder / "whole", WORLD)
    assert again.history == result.history
    name = "first" if is_first() else "second"
    (folder / f"of_{name}.json").write_text(json.dumps([result.history, result.finished]))
    dropping = Dropping()
    fit_toy(folder / "dropping", WORLD, module=dropping)
    (folder / f"masks_of_{name}.json").write_text(json.dumps(dropping.masks))
    with pytest.raises(ValueError, match=r"expected 2 processes, as were started, got devices=1"):
        fit_toy(folder / "other", 1)
    with pytest.raises(ValueError, match="disk is full"):  # in both
        from_first(fail_in_the_first)
    with pytest.raises(NonFiniteLossError, match=r"step 4 \(epoch 1, batch 1, graphs") as caught:
        fit_toy(folder / "bad", WORLD, poison=4 if is_first() else None)
    assert len(set(caught.value.graphs or ())) == BATCH  # those of both


def fail_in_the_first() -> None:
    assert is_first()
    raise ValueError("the disk is full")


def test_two_processes_are_like_one(alone: Path, tmp_path: Path) -> None:
    assert together(whole_run, tmp_path) == [0, 0]
    assert_like(tmp_path / "whole", alone)
    # Both know the same, and one has written it.
    first, second = (tmp_path / f"of_{name}.json" for name in ("first", "second"))
    assert first.read_text() == second.read_text()
    files = {path.name for path in (tmp_path / "whole").iterdir()}
    assert files == {"best.ckpt", "config.json", "last.ckpt", "metrics.jsonl", "tensorboard"}
    assert len(list((tmp_path / "whole" / "tensorboard").iterdir())) == 1
    # Each has masks of its own, in every step.
    masks = [json.loads(path.read_text()) for path in tmp_path.glob("masks_of_*.json")]
    assert len(masks[0]) == len(masks[1]) > 1
    assert len(set(map(tuple, chain(*masks)))) == 2 * len(masks[0])
    # A loss that is bad in one ends both, before it is in a checkpoint.
    assert (tmp_path / "bad" / "non_finite.ckpt").exists()
    last = read_checkpoint(tmp_path / "bad" / "last.ckpt")["state_dict"]
    assert all(value.isfinite().all() for value in last.values())


def killed_run(folder: Path, how: signal.Signals) -> None:
    join("cpu", WORLD, 1)
    if is_first():
        kill_at("on_train_batch_end:6", how)  # in the second epoch, after a checkpoint within it
    try:
        fit_toy(folder, WORLD)
    except RuntimeError:  # the other has left
        os._exit(3)


def resumed_run(folder: Path) -> None:
    fit_toy(folder, WORLD)
    assert number() == WORLD


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_run_goes_on_with_any_number_of_processes(
    how: signal.Signals, alone: Path, tmp_path: Path
) -> None:
    assert together(killed_run, tmp_path / "two", how) == [-how, 3]
    assert len(rows(tmp_path / "two")) == 1
    shutil.copytree(tmp_path / "two", tmp_path / "one")
    assert together(resumed_run, tmp_path / "two") == [0, 0]
    assert_like(tmp_path / "two", alone)
    fit_toy(tmp_path / "one")
    assert_like(tmp_path / "one", alone)


def test_a_process_ends_with_the_one_that_has_started_it() -> None:
    """Killed, that cannot tell it to, and a GPU's library would wait for it."""
    child = (
        "import os, time; from dagnn.training.processes import _end_with; "
        "_end_with(os.getppid()); print('here', flush=True); time.sleep(600)"
    )
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    started = subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True)
    assert started.stdout is not None
    assert started.stdout.readline() == "here\n"
    started.kill()
    # The pipe is open as long as a process has it; without an end, this raises.
    assert started.communicate(timeout=TIMEOUT) == ("", None)


def test_bad_numbers_of_processes(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"devices and num_nodes >= 1, got 0 and 1"):
        fit(Toy(), [], folder=tmp_path, epochs=1, config={}, device="cpu", devices=0)
