"""Fit a Lightning module: resumable, reproducible, watched."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.accelerators import CUDAAccelerator
from lightning.pytorch.strategies import Strategy

from dagnn.training.bookkeeper import Bookkeeper, Plateau
from dagnn.training.captured_step import CAPTURING
from dagnn.training.checkpoints import AtomicCheckpointIO, load_weights
from dagnn.training.claims import check_best, check_unclaimed_best, claimed, read_last
from dagnn.training.data_parallel import GraphMeanDDP
from dagnn.training.guard import INTERVAL
from dagnn.training.processes import from_first, is_first, join, number
from dagnn.training.progress import Display, quiet
from dagnn.training.training_step import check_clip

__all__ = ["FitResult", "Plateau", "fit"]

PRECISIONS = {"32": "32-true", "tf32": "32-true", "bf16": "bf16-mixed"}


@dataclass(frozen=True)
class FitResult:
    """What :func:`fit` did.

    Args:
        folder: Where everything is.
        history: One row per epoch: ``epoch``, ``step``, ``loss`` (mean over the training steps),
            ``learning_rate``, what validation logged, ``train_seconds`` (without validation) and
            ``seconds``; ``shared`` (true) if others used the device meanwhile.
        best: The row of the epoch whose weights are in ``best.ckpt``.
        finished: Why it ended.
        origins: The commits, versions and hardware that trained it; several if it was resumed with
            others.
        was_finished: Whether it had ended before :func:`fit` was called.
    """

    folder: Path
    history: list[dict[str, Any]]
    best: dict[str, Any]
    finished: str
    origins: list[dict[str, Any]]
    was_finished: bool = field(compare=False)

    @property
    def best_checkpoint(self) -> Path:
        return self.folder / "best.ckpt"

    @property
    def last_checkpoint(self) -> Path:
        return self.folder / "last.ckpt"

    @property
    def seconds(self) -> float:
        return float(sum(row["seconds"] for row in self.history))


def fit(
    module: LightningModule,
    train: Iterable[Any],
    valid: Iterable[Any] | None = None,
    *,
    folder: str | os.PathLike[str],
    epochs: int,
    monitor: str = "loss",
    mode: str = "min",
    patience: int | None = None,
    plateau: Plateau | None = None,
    clip: float | None = None,
    precision: str = "32",
    seed: int = 0,
    config: dict[str, Any],
    source: str | os.PathLike[str] | None = None,
    device: str = "auto",
    devices: int = 1,
    num_nodes: int = 1,
    progress: bool = True,
    shared: bool = False,
    checkpoint_every_steps: int | None = None,
) -> FitResult:
    r"""Train a module with Lightning's Trainer until the last epoch, or until it stops improving.

    The folder then holds ``config.json``; ``best.ckpt`` (weights of the epoch with the best
    :obj:`monitor`) and ``last.ckpt`` (weights and all that is needed to go on), both readable with
    :func:`dagnn.training.read_checkpoint`, which executes nothing; ``metrics.jsonl``, a row per
    epoch; and ``tensorboard/``. Every file appears as a whole or not at all.

    **Resuming.** Called again with the same folder and config, a run that was interrupted, or
    killed, goes on from ``last.ckpt``, and on the CPU it ends with the very weights of a run that
    was not; a finished one returns at once, or, called with more :obj:`epochs`, goes on as if it
    had been given them from the start. Any other config is refused, unless the run there never came
    to a checkpoint, and so is a second process while one is at work. For this

    * the weights of a new module must follow from :obj:`config` (seed before making it);
    * nothing but the end may depend on the number of epochs, which may also stand in :obj:`config`,
      as ``epochs``; modules with schedulers of their own are therefore not made longer;
    * :obj:`train` has a length, ``state_dict`` and ``load_state_dict``, and its batches follow from
      a seed and the epoch, as those of :class:`dagnn.FlatLoader`; if it also has ``set_epoch``,
      that is found as ``train.sampler.set_epoch``;
    * what is random in a step follows from torch's generators: they are seeded before every step
      from :obj:`seed`, the step's number and the rank. A module that has its own, seeded likewise
      (:func:`dagnn.training.seed_of_step`), says so by ``has_own_generators``.

    **The module.** ``training_step`` returns the loss, ``validation_step`` logs its metrics with
    ``self.log(name, value, batch_size=…, sync_dist=True)``. Losses are recorded for it: logging in
    ``training_step`` would only cost time. Batches come as the loaders make them; a module whose
    batches are already on its device should return them as they are from
    ``transfer_batch_to_device``. With ``automatic_optimization = False`` a module makes its steps
    itself, for example by replaying a CUDA graph: it returns the loss (it is copied at once, so
    the graph may reuse its memory), clips gradients itself, and should call ``step`` of
    ``self.optimizers()``, or else ``trainer.global_step`` does not advance. Whatever it wants to
    keep in checkpoints is added in ``on_save_checkpoint``: tensors, numbers, words.

    **Several processes.** With :obj:`devices` or :obj:`num_nodes`, this is called in each of them:
    started by torchrun or Slurm, or else by this function, which starts the program again for each
    further device (see :func:`dagnn.training.processes.join`). All must see the folder; the first
    writes it. The loader gives each process its part of every batch, as :class:`dagnn.FlatLoader`
    does, the same number of batches to each, and batches say their ``num_graphs``. Then losses and
    gradients are those of one process with the whole batch (up to rounding, dropout, and batch
    normalisation on the CPU), and so a run may go on with another number of processes. A module
    with parameters that get no gradient says so by ``has_unused_parameters``. One that makes its
    steps itself gets the mean over processes from ``self.manual_backward``, and returns a loss
    whose mean over processes is that of the batch.

    Losses stay on the device and are looked at every 50 steps, before each checkpoint and after
    each epoch. One that is NaN or infinite ends the run (:class:`NonFiniteLossError`) and leaves
    ``non_finite.ckpt`` with the weights, the step and the indices of the batch's graphs, if
    ``train.graphs_of(epoch, batch)`` tells them; ``last.ckpt`` is always from before that step.
    On the CPU these weights are the ones that gave the loss; on a GPU, and in several processes,
    they are those of the moment when it was looked at, up to 50 steps later, as the error says.

    Args:
        module: The module, with its optimizer. It ends with the last weights; for the best call
            ``load_weights(module, result.best_checkpoint)``.
        train: The training batches.
        valid: The validation batches, gone through after every epoch.
        folder: Where the run is kept. It is made if it is not there.
        epochs: The largest number of epochs; more than before let a run go on.
        monitor: The number that says which epoch is best: ``"loss"``, the mean training loss, or a
            name that ``validation_step`` logs. Of epochs that are equal in it, that with the lower
            ``valid_loss``, if there is one.
        mode: Whether it should be small, ``"min"``, or large, ``"max"``.
        patience: Stop after this many epochs without improvement.
        plateau: When to lower the learning rate; see :class:`Plateau`.
        clip: The largest norm of the gradient.
        precision: ``"32"``; ``"tf32"`` to let a GPU round the factors of products; or ``"bf16"``
            for autocast to bfloat16.
        seed: Of all randomness in the steps.
        config: What the run is: numbers, words, lists and dictionaries. Stored in ``config.json``
            and under ``"config"`` in the checkpoints, together with the settings above.
        source: Where the data are. Kept in ``data.json``, since it is no part of what the run is:
            data may move.
        device: ``"cpu"``, ``"cuda"``, or ``"auto"`` for CUDA if it is there.
        devices: Processes on each machine, with a GPU each, unless on the CPU.
        num_nodes: Machines.
        progress: Whether to show a bar and a line per epoch on stderr.
        shared: Whether others use the device meanwhile: the rows of these epochs say so, since
            their times do not mean much.
        checkpoint_every_steps: Write ``last.ckpt`` also during an epoch, after so many steps.

    Raises:
        ValueError: If the folder holds a run with another config (the difference is named), or one
            of which a checkpoint is missing or damaged, or another process works in it, or other
            processes were started than asked for.
        NonFiniteLossError: See above.
    """
    for name, value in {
        "epochs": epochs,
        "patience": patience,
        "checkpoint_every_steps": checkpoint_every_steps,
    }.items():
        if value is not None and value < 1:
            raise ValueError(f"expected {name} >= 1, got {value}")
    check_clip(clip)
    if mode not in ("min", "max"):
        raise ValueError(f"expected mode 'min' or 'max', got {mode!r}")
    if precision not in PRECISIONS:
        raise ValueError(f"expected precision {', '.join(PRECISIONS)}, got {precision!r}")
    kind = accelerator(device)
    join(kind, devices, num_nodes)
    folder = Path(folder)
    settings = {
        "epochs": epochs,
        "monitor": monitor,
        "mode": mode,
        "patience": patience,
        "plateau": None if plateau is None else plateau._asdict(),
        "clip": clip,
        "precision": precision,
        "seed": seed,
    }
    config = {**config, "fit": settings}
    with claimed(folder, config, source):
        last = folder / "last.ckpt"
        bookkeeper = Bookkeeper(
            folder,
            train,
            config,
            epochs=epochs,
            monitor=monitor,
            mode=mode,
            patience=patience,
            plateau=plateau,
            clip=clip,
            seed=seed,
            checkpoint_every_steps=checkpoint_every_steps,
            shared=shared,
            display=Display(progress and is_first(), epochs),
        )
        is_there = from_first(last.exists)
        state = read_last(last)["callbacks"]["Bookkeeper"] if is_there else None
        if state is None:
            from_first(lambda: check_unclaimed_best(folder))
        else:
            bookkeeper.load_state_dict(state)
            if bookkeeper.best is not None:
                from_first(lambda: check_best(folder))
        was_finished = bool(bookkeeper.finished)
        if was_finished:
            load_weights(module, last)
            done = len(bookkeeper.history)
            why = f": {bookkeeper.finished}" if done < epochs else ""
            bookkeeper.display.say(f"{folder} was finished already (epochs: {done}){why}")
        else:
            if state is not None:
                epoch = len(bookkeeper.history) + 1
                bookkeeper.display.say(f"{folder} goes on with epoch {epoch} of {epochs}")
            with quiet(), matmul_precision(precision):
                trainer = Trainer(
                    accelerator=_Gpu() if kind == "cuda" else kind,
                    devices=devices,
                    num_nodes=num_nodes,
                    strategy=_strategy(module),
                    sync_batchnorm=kind == "cuda" and number() > 1,
                    precision=PRECISIONS[precision],  # type: ignore[arg-type]
                    max_epochs=epochs,
                    callbacks=[bookkeeper],
                    plugins=[AtomicCheckpointIO()],
                    logger=False,
                    log_every_n_steps=INTERVAL,
                    num_sanity_val_steps=0,
                    enable_progress_bar=False,
                    enable_model_summary=False,
                    use_distributed_sampler=False,
                    default_root_dir=folder,
                )
                with _interruptible(trainer):
                    trainer.fit(
                        module, train, valid, ckpt_path=last if state else None, weights_only=True
                    )
        assert bookkeeper.best is not None
        return FitResult(
            folder,
            bookkeeper.history,
            bookkeeper.best,
            bookkeeper.finished,
            bookkeeper.origins,
            was_finished,
        )


class _Gpu(CUDAAccelerator):
    """Lightning's, but what another thread of this process has on the device stays there. At the
    beginning and the end of a run, Lightning drops all workspaces of cuBLAS, which belong to the
    process; captured steps of others go on writing to them."""

    def setup(self, trainer: Trainer) -> None:
        self.set_nvidia_flags(trainer.local_rank)
        self.teardown()

    def teardown(self) -> None:
        with CAPTURING:
            torch.cuda.empty_cache()


def accelerator(device: str) -> str:
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device not in ("cpu", "cuda"):
        raise ValueError(f"expected device 'auto', 'cpu' or 'cuda', got {device!r}")
    if device == "cuda" and not torch.cuda.is_available():
        raise ValueError("expected a CUDA device, but torch finds none; use the CPU")
    return device


def _strategy(module: LightningModule) -> str | Strategy:
    if number() == 1:
        return "auto"
    return GraphMeanDDP(find_unused_parameters=getattr(module, "has_unused_parameters", False))


@contextmanager
def matmul_precision(precision: str) -> Iterator[None]:
    """Let products of float32 round their factors to TF32, for ``"tf32"``, or not."""
    try:
        before = torch.get_float32_matmul_precision()
    except RuntimeError:  # it was set by its newer name, which this question does not know
        before = "highest"
    newer = torch.backends.cuda.matmul
    name = newer.fp32_precision
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
        if newer.fp32_precision != name:
            newer.fp32_precision = name


@contextmanager
def _interruptible(trainer: Trainer) -> Iterator[None]:
    """Let Ctrl-C be a KeyboardInterrupt: Lightning exits the process, and ignores the next one."""
    in_main = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    except SystemExit as error:
        if trainer.interrupted:
            raise KeyboardInterrupt from error
        raise
    finally:
        if in_main:
            signal.signal(signal.SIGINT, handler)
