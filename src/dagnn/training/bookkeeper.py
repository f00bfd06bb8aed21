"""The callback that keeps the books of a run: losses, metrics, checkpoints, when to stop."""

from __future__ import annotations

import hashlib
import json
import math
import signal
import threading
import time
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint
from torch import Tensor
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils.tensorboard import SummaryWriter

from dagnn.training.checkpoints import write_atomically
from dagnn.training.data_parallel import GraphMeanDDP
from dagnn.training.guard import INTERVAL, EpochLosses, NonFiniteLossError
from dagnn.training.processes import from_first, gathered, number
from dagnn.training.progress import Display
from dagnn.training.record import origin
from dagnn.training.standing import why_finished

__all__ = ["Bookkeeper", "Plateau", "seed_of_step"]


class Plateau(NamedTuple):
    """Multiply the learning rate by :obj:`factor` when the monitored number has not improved for
    more than :obj:`patience` epochs, as :class:`torch.optim.lr_scheduler.ReduceLROnPlateau`."""

    patience: int = 10
    factor: float = 0.1


def seed_of_step(seed: int, step: int, rank: int) -> int:
    """The seed of torch's generators in a step of a process."""
    words = f"{seed} {rank} {step}".encode()
    return int.from_bytes(hashlib.blake2b(words, digest_size=8).digest())


class Bookkeeper(Checkpoint):  # Lightning calls a Checkpoint after all other callbacks
    """All that happens around the steps of :func:`dagnn.training.fit`; see there.

    What it knows is part of each checkpoint, so that a resumed run goes on as if nothing had
    happened. A checkpoint is written at the end of an epoch, after ``best.ckpt``: a run that is
    killed between the two repeats the epoch, and comes to the same best.

    Of several processes each has one. Losses are added up before anybody looks at them, and an
    epoch's row is that of the first process, so that all decide alike.
    """

    def __init__(
        self,
        folder: Path,
        loader: Any,
        config: dict[str, Any],
        *,
        epochs: int,
        monitor: str,
        mode: str,
        patience: int | None,
        plateau: Plateau | None,
        clip: float | None,
        seed: int,
        checkpoint_every_steps: int | None,
        shared: bool,
        display: Display,
    ) -> None:
        self.folder, self.loader, self.config = folder, loader, config
        self.epochs, self.monitor, self.mode = epochs, monitor, mode
        self.patience, self.plateau, self.clip, self.seed = patience, plateau, clip, seed
        self.checkpoint_every_steps = checkpoint_every_steps
        self.shared = shared
        self.display = display
        self.history: list[dict[str, Any]] = []
        self.best: dict[str, Any] | None = None  # the row of the best epoch
        self.origins: list[dict[str, Any]] = []  # what has trained it, each once
        self._here = origin()  # now: while it trains, its code may be edited
        self._losses = EpochLosses()
        self._scheduler: ReduceLROnPlateau | None = None
        self._scheduler_state: dict[str, Any] | None = None
        self._writer: SummaryWriter | None = None
        self._elapsed = 0.0  # seconds of this epoch before an interruption
        self._train_seconds: float | None = None  # of this epoch, if it is in validation
        self._began = time.perf_counter()

    def state_dict(self) -> dict[str, Any]:
        return {
            "history": self.history,
            "best": self.best,
            "origins": self.origins,
            "losses": self._losses.read(),
            "scheduler": None if self._scheduler is None else self._scheduler.state_dict(),
            "elapsed": self._seconds(),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.history, self.best = state_dict["history"], state_dict["best"]
        self.origins = state_dict.get("origins", [])  # runs of version 0.1.0 may have none
        self._losses.restore(state_dict["losses"])
        self._scheduler_state = state_dict["scheduler"]
        self._elapsed = state_dict["elapsed"]

    @property
    def finished(self) -> str:
        """Why the run is over; empty if it is not. Never stored, so that a run can be made longer,
        but none that one of so many epochs from the start would have stopped before."""
        return why_finished(
            self.history,
            self.best,
            epochs=self.epochs,
            monitor=self.monitor,
            patience=self.patience,
        )

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        checkpoint["config"] = self.config

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if number() > 1 and threading.current_thread() is threading.main_thread():
            # Lightning's own handler waits for the other processes, whether or not they come.
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if self.plateau is not None:
            self._scheduler = ReduceLROnPlateau(
                trainer.optimizers[0],
                mode="min" if self.mode == "min" else "max",
                patience=self.plateau.patience,
                factor=self.plateau.factor,
            )
            if self._scheduler_state is not None:
                self._scheduler.load_state_dict(self._scheduler_state)
        if trainer.is_global_zero:
            step = trainer.current_epoch * len(self.loader) + len(self._losses)
            self._writer = SummaryWriter(self.folder / "tensorboard", purge_step=step)
        if self._here not in self.origins:  # after those of the checkpoint
            self.origins.append(self._here)
        self._begin(trainer, pl_module)
        self.display.start()

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._losses.clear()
        self._elapsed, self._train_seconds = 0.0, None
        self._begin(trainer, pl_module)

    def _begin(self, trainer: Trainer, module: LightningModule) -> None:
        self._began = time.perf_counter()
        self._losses.start(len(self.loader), module.device)
        self.display.epoch(trainer.current_epoch, len(self.loader), len(self._losses))

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        if getattr(pl_module, "has_own_generators", False):
            return
        step = trainer.current_epoch * len(self.loader) + batch_idx
        seed = seed_of_step(self.seed, step, trainer.global_rank)
        # Not torch.manual_seed: it reaches for every kind of device, at a millisecond a call.
        torch.default_generator.manual_seed(seed)
        if pl_module.device.type == "cuda":
            torch.cuda.default_generators[pl_module.device.index].manual_seed(seed)

    def on_before_backward(
        self, trainer: Trainer, pl_module: LightningModule, loss: Tensor
    ) -> None:
        # Where looking costs nothing, a bad step is found before it changes the weights. Several
        # processes look together, or else the others would wait for this one's gradient.
        if loss.device.type == "cpu" and number() == 1 and not bool(loss.isfinite()):
            self._fail(trainer, pl_module, len(self._losses), float(loss.detach()))

    def on_before_optimizer_step(
        self, trainer: Trainer, pl_module: LightningModule, optimizer: Any
    ) -> None:
        if self.clip is not None:
            torch.nn.utils.clip_grad_norm_(pl_module.parameters(), self.clip)

    def on_train_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        loss = outputs["loss"]
        if isinstance(trainer.strategy, GraphMeanDDP):
            loss = loss * trainer.strategy.share
        self._losses.add(loss)
        done = batch_idx + 1
        self.display.advance()
        if done % INTERVAL == 0:
            self._check(trainer, pl_module)
            recent = float(self._losses.read()[-INTERVAL:].mean())
            self.display.show({"loss": recent, **self._monitored()})
            self._log({"loss": recent}, trainer.current_epoch * len(self.loader) + batch_idx)
        # The end of an epoch has a checkpoint of its own, after validation.
        every = self.checkpoint_every_steps
        if every is not None and done % every == 0 and done < len(self.loader):
            self._check(trainer, pl_module)
            trainer.save_checkpoint(self.folder / "last.ckpt")

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._check(trainer, pl_module)  # which waits for the device
        self._train_seconds = self._seconds()

    def _seconds(self) -> float:
        """Of this epoch."""
        return self._elapsed + time.perf_counter() - self._began

    def _monitored(self) -> dict[str, float]:
        if not self.history or self.monitor == "loss":
            return {}
        return {self.monitor: self.history[-1][self.monitor]}

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._check(trainer, pl_module)
        # Before from_first: where values are of all processes, each takes part in making them.
        logged = {name: float(value) for name, value in trainer.callback_metrics.items()}
        row: dict[str, Any] = from_first(
            lambda: {
                "epoch": trainer.current_epoch,
                "step": (trainer.current_epoch + 1) * len(self.loader),
                "loss": float(self._losses.read().double().mean()),
                "learning_rate": _rounded(float(trainer.optimizers[0].param_groups[0]["lr"])),
                **logged,
                "train_seconds": self._train_seconds or self._seconds(),
                "seconds": self._seconds(),
                **({"shared": True} if self.shared else {}),
            }
        )
        if self.monitor not in row:
            raise ValueError(
                f"expected monitor to be one of {', '.join(row)}, got {self.monitor!r}; a metric "
                "is monitored under the name by which validation_step logs it"
            )
        self.history.append(row)
        improved = self.best is None or self._is_better(row, self.best)
        if improved:
            self.best = row
        self._decide(trainer, row)
        self._log(row, row["step"] - 1)
        self.display.line(row, improved)
        if trainer.is_global_zero:
            if improved:
                self._write_weights(pl_module, "best.ckpt", row)
            lines = "".join(_to_line(row) for row in self.history)
            write_atomically(self.folder / "metrics.jsonl", lambda f: f.write(lines.encode()))
        trainer.save_checkpoint(self.folder / "last.ckpt")

    def _is_better(self, row: dict[str, Any], than: dict[str, Any]) -> bool:
        score, best = row[self.monitor], than[self.monitor]
        if math.isnan(best):
            return not math.isnan(score)
        if score == best and "valid_loss" in row:  # such as an F1 that is zero in the beginning
            return bool(row["valid_loss"] < than["valid_loss"])
        return bool(score < best if self.mode == "min" else score > best)

    def _decide(self, trainer: Trainer, row: dict[str, Any]) -> None:
        """Lower the learning rate, or stop."""
        if self._scheduler is not None:
            self._scheduler.step(row[self.monitor])
        if self.finished:
            trainer.should_stop = True

    def _log(self, values: dict[str, Any], step: int) -> None:
        if self._writer is not None:
            for name, value in values.items():
                if name not in ("epoch", "step"):
                    self._writer.add_scalar(name, value, step)

    def _write_weights(self, module: LightningModule, name: str, facts: dict[str, Any]) -> None:
        checkpoint = {"state_dict": module.state_dict(), "config": self.config, "row": facts}
        module.on_save_checkpoint(checkpoint)
        write_atomically(self.folder / name, lambda file: torch.save(checkpoint, file))

    def _check(self, trainer: Trainer, module: LightningModule) -> None:
        bad = self._losses.first_non_finite()
        if bad is not None:
            self._fail(trainer, module, *bad)

    def _fail(self, trainer: Trainer, module: LightningModule, batch: int, loss: float) -> None:
        epoch = trainer.current_epoch
        graphs = None
        if hasattr(self.loader, "graphs_of"):
            parts = gathered(self.loader.graphs_of(epoch, batch))
            graphs = list(dict.fromkeys(chain.from_iterable(parts)))
        step = epoch * len(self.loader) + batch
        later = len(self._losses) - batch
        facts = {"loss": loss, "step": step, "epoch": epoch, "batch": batch, "graphs": graphs}
        facts["steps_later"] = later
        saved = self.folder / "non_finite.ckpt"
        if trainer.is_global_zero:
            self._write_weights(module, saved.name, facts)
        raise NonFiniteLossError(loss, step, epoch, batch, graphs, str(saved), later)

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self.display.stop()
        if self._writer is not None:
            self._writer.close()

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        self.teardown(trainer, pl_module, "fit")


def _rounded(rate: float) -> float:
    """Without the noise of a rate in float32, as an optimizer for CUDA graphs keeps it."""
    return float(f"{rate:.7g}")


def _to_line(row: dict[str, Any]) -> str:
    """A row as JSON, which has no word for what is not finite but null."""
    finite = {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in row.items()
    }
    return json.dumps(finite, allow_nan=False) + "\n"
