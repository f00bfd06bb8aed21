"""Training an autoencoder by the paper's protocol."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import Tensor

from dagnn.autoencoders.models import make_autoencoder
from dagnn.autoencoders.train_step import CapturedStep, EagerStep, make_step
from dagnn.autoencoders.vae import DagVAE, VaeLoss
from dagnn.datasets.small_dags import SmallDags
from dagnn.graph.sampler import rank_and_world_size
from dagnn.training import (
    FitResult,
    Plateau,
    find_checkpoint,
    fit,
    read_checkpoint,
    seed_of_step,
)
from dagnn.training.processes import add_up

__all__ = ["AutoencoderConfig", "IndexBlocks", "fit_autoencoder", "load_autoencoder", "preset"]

BLOCK = 8  # batches that the GPU gets at once, so that it does not wait for the host between them

_SEEDED = threading.Lock()  # torch's generator is one for all threads

LOCATED = 4096  # graphs that tell where the latent space is populated


@dataclass(frozen=True)
class AutoencoderConfig:
    """All that a trained autoencoder follows from, beside the data.

    Args:
        model: One of :data:`dagnn.autoencoders.models.MODELS`.
        task: ``"na"`` or ``"bn"``.
        hidden_channels: Width of the states.
        latent_channels: Width of the latent space.
        epochs: How often all graphs are seen.
        batch_size: Graphs in a batch.
        rate: The learning rate at the start; divided by 10 after 10 epochs without a lower loss.
        clip: The largest norm of the gradient.
        seed: Of the weights, the order of the graphs, and the noise.
        options: Of the model; see :func:`dagnn.autoencoders.models.make_autoencoder`.
    """

    model: str = "dagnn"
    task: str = "na"
    hidden_channels: int = 501
    latent_channels: int = 56
    epochs: int = 100
    batch_size: int = 32
    rate: float = 1e-3
    clip: float | None = 0.25
    seed: int = 0
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.rate > 0:
            raise ValueError(f"expected a learning rate above 0, got {self.rate}")

    def make(self, num_types: int, max_nodes: int) -> DagVAE:
        """A new autoencoder; its weights follow from the seed, and torch's generator is as
        before."""
        with _SEEDED, torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(self.seed)
            return make_autoencoder(
                self.model,
                self.task,
                hidden_channels=self.hidden_channels,
                latent_channels=self.latent_channels,
                num_types=num_types,
                max_nodes=max_nodes,
                **self.options,
            )


def preset(name: str, model: str, task: str) -> dict[str, Any]:
    """Settings of :class:`AutoencoderConfig` by name.

    ``"paper"``: DAGNN starts at 1e-3 with its gradient clipped, for 100 epochs on NA and 50 on BN;
    the others at 1e-4 for 300 and 100, DeepGMG 30 and 5. ``"quick"``: a small model that learns
    within minutes on two cores.
    """
    if name == "quick":
        sizes = {"hidden_channels": 64, "epochs": 10, "batch_size": 64 if task == "na" else 256}
        return {**sizes, "rate": 1e-3, "clip": 0.25}
    if name != "paper":
        raise ValueError(f"expected preset 'paper' or 'quick', got {name!r}")
    batch_size = 32 if task == "na" else 128
    if model == "dagnn":
        epochs = 100 if task == "na" else 50
        return {"epochs": epochs, "batch_size": batch_size, "rate": 1e-3, "clip": 0.25}
    epochs = {"na": 300, "bn": 100}[task]
    if model == "deepgmg":
        epochs = {"na": 30, "bn": 5}[task]
    return {"epochs": epochs, "batch_size": batch_size, "rate": 1e-4, "clip": None}


class IndexBlocks:
    """The indices of an epoch's batches, :obj:`block` batches at a time, in an order that follows
    from the seed and the epoch. The last batch of an epoch may be smaller, and comes alone.

    Yields int64 ``[k, B]``.
    """

    def __init__(self, num_graphs: int, batch_size: int, block: int = 1, seed: int = 0) -> None:
        if num_graphs < 1 or batch_size < 1 or block < 1:
            raise ValueError(
                f"expected at least one graph, batch and block, got {num_graphs=}, {batch_size=}, "
                f"{block=}"
            )
        self.num_graphs, self.batch_size, self.block = num_graphs, batch_size, block
        self.seed = seed
        self.epoch = 0
        self._next = 0  # the block with which the next iteration begins

    @property
    def sampler(self) -> IndexBlocks:
        """Itself, where Lightning looks for ``set_epoch``."""
        return self

    def set_epoch(self, epoch: int) -> None:
        if epoch != self.epoch:
            self._next = 0
        self.epoch = epoch

    def state_dict(self) -> dict[str, int]:
        """Where the next block is: its epoch and its number there."""
        return {"epoch": self.epoch, "block": self._next}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.epoch, self._next = state["epoch"], state["block"]

    def graphs_of(self, epoch: int, block: int) -> list[int]:
        """The indices of a block's graphs."""
        return self._blocks(epoch)[block].flatten().tolist()

    def __len__(self) -> int:
        full = self.num_graphs // self.batch_size
        return math.ceil(full / self.block) + (self.num_graphs % self.batch_size > 0)

    def __iter__(self) -> Iterator[Tensor]:
        epoch = self.epoch
        blocks = self._blocks(epoch)
        while self._next < len(blocks):
            self._next += 1
            yield blocks[self._next - 1]
        self.epoch, self._next = epoch + 1, 0

    def _blocks(self, epoch: int) -> list[Tensor]:
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + epoch)
        order = torch.randperm(self.num_graphs, generator=generator)
        rest = self.num_graphs % self.batch_size
        full = order[: self.num_graphs - rest].view(-1, self.batch_size)
        blocks = list(full.split(self.block)) if len(full) else []
        return [*blocks, order[-rest:].unsqueeze(0)] if rest else blocks


class _Training(LightningModule):
    """An autoencoder with its data and its step; a batch is a block of indices ``[k, B]``. Several
    processes all get the block, and each takes some of its columns."""

    has_own_generators = True  # so that several may train in threads of one process

    def __init__(
        self, model: DagVAE, graphs: SmallDags, blocks: IndexBlocks, config: AutoencoderConfig
    ) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.model = model
        self._graphs, self._blocks, self._config = graphs, blocks, config
        self._step: EagerStep | CapturedStep | None = None
        self._sums = torch.zeros(3)  # the losses of this epoch, summed over graphs; see VaeLoss
        self._weight = 1.0  # of this process's gradient in the mean over processes

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.model.parameters(), lr=self._config.rate, fused=True)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Adam's moments too may be of a model without dead units. Weights care for themselves."""
        dead = self.model.dead_units
        if dead is None:
            return
        names = [name for name, _ in self.model.named_parameters()]
        dead.pad_optimizer(checkpoint["optimizer_states"][0], names)

    def on_train_start(self) -> None:
        optimizer = self.trainer.optimizers[0]
        self._graphs = graphs = self._graphs.to(self.device)
        self._step = make_step(self.model, optimizer, graphs, self._config.clip, self._backward)

    def _backward(self, loss: Tensor) -> None:
        self.manual_backward(loss * self._weight)

    def transfer_batch_to_device(
        self, batch: Tensor, device: torch.device, dataloader_idx: int
    ) -> Tensor:
        return batch.to(device)

    def training_step(self, block: Tensor, number: int) -> Tensor:
        """The loss per graph; of several processes, the mean over them is that."""
        assert self._step is not None, "training has started"
        rank, processes = rank_and_world_size()
        step = self.trainer.current_epoch * len(self._blocks) + number
        # The noise of the whole block, the same for any number of processes.
        generator = torch.Generator(block.device)
        generator.manual_seed(seed_of_step(self._config.seed, step, rank=0))
        size = *block.shape, self.model.latent_channels
        noise = torch.randn(*size, device=block.device, generator=generator)
        own, own_noise = (x.tensor_split(processes, dim=1)[rank] for x in (block, noise))
        self._weight = float(processes)  # losses are sums over graphs
        if not own.numel():  # take part all the same: the others wait for a gradient
            own, own_noise, self._weight = block[:, :1], noise[:, :1], 0.0
        sums = torch.zeros(3, device=block.device)
        for index, draw in zip(own, own_noise, strict=True):
            sums += self._step(index, draw)
        sums *= self._weight
        self._sums += sums / processes
        return VaeLoss(*sums).total / block.numel()

    def on_train_epoch_start(self) -> None:
        self._sums = torch.zeros(3, dtype=torch.double, device=self.device)

    def on_train_epoch_end(self) -> None:
        # The mean over graphs: blocks differ in their numbers, so the mean of theirs is another.
        mean = VaeLoss(*add_up(self._sums) / len(self._graphs))
        self.log("loss", mean.total)
        self.log("reconstruction", mean.reconstruction)
        self.log("kl", mean.divergence)
        self.model.locate(self._graphs[:LOCATED])


def fit_autoencoder(
    config: AutoencoderConfig,
    graphs: SmallDags,
    folder: str | os.PathLike[str],
    *,
    data: dict[str, Any] | None = None,
    source: str | os.PathLike[str] | None = None,
    device: str = "auto",
    devices: int = 1,
    num_nodes: int = 1,
    progress: bool = True,
    shared: bool = False,
) -> tuple[DagVAE, FitResult]:
    """Train an autoencoder; see :func:`dagnn.training.fit` for what the folder holds and how a run
    that was killed goes on.

    Args:
        config: What to train.
        graphs: The training graphs.
        folder: Where the run is kept.
        data: What to keep of the data in the run's config, such as a file's name and fingerprint.
        source: Their file; see :func:`dagnn.training.fit`.
        device: ``"cpu"``, ``"cuda"`` or ``"auto"``.
        devices, num_nodes: See :func:`dagnn.training.fit`. The processes share each batch, so that
            its size and the results stay the same; on GPUs, their steps are not captured.
        progress: Whether to show progress on stderr.
        shared: See :func:`dagnn.training.fit`.

    Returns:
        The autoencoder with its last weights (the protocol has no validation), and the run.
    """
    model = config.make(graphs.num_types, graphs.max_nodes)
    on_gpu = device == "cuda" or (device == "auto" and torch.cuda.is_available())
    blocks = IndexBlocks(len(graphs), config.batch_size, BLOCK if on_gpu else 1, config.seed)
    sizes = {"num_types": graphs.num_types, "max_nodes": graphs.max_nodes, "graphs": len(graphs)}
    result = fit(
        _Training(model, graphs, blocks, config),
        blocks,
        folder=folder,
        epochs=config.epochs,
        plateau=Plateau(patience=10, factor=0.1),
        precision="tf32" if on_gpu else "32",
        seed=config.seed,
        config={"autoencoder": asdict(config), "sizes": sizes, "data": data or {}},
        source=source,
        device=device,
        devices=devices,
        num_nodes=num_nodes,
        progress=progress,
        shared=shared,
    )
    return model, result


def load_autoencoder(
    path: str | os.PathLike[str], device: str | torch.device = "cpu"
) -> tuple[DagVAE, dict[str, Any]]:
    """An autoencoder from a checkpoint of :func:`fit_autoencoder` or a run's folder (its
    ``last.ckpt``: the protocol has no validation), and the run's config: under ``"autoencoder"``
    that of :class:`AutoencoderConfig`, under ``"data"`` what was kept of the data."""
    path = find_checkpoint(path, "last.ckpt")
    checkpoint = read_checkpoint(path)
    config = checkpoint.get("config")
    if not isinstance(config, dict) or "autoencoder" not in config:
        raise ValueError(
            f"expected a checkpoint of dagnn train na or dagnn train bn, got {path} of another "
            "model"
        )
    weights = {
        name.removeprefix("model."): value for name, value in checkpoint["state_dict"].items()
    }
    try:
        sizes = config["sizes"]
        settings = AutoencoderConfig(**config["autoencoder"])
        model = settings.make(sizes["num_types"], sizes["max_nodes"])
        model.load_state_dict(weights)
    except (KeyError, TypeError, RuntimeError) as error:
        raise ValueError(
            f"expected a checkpoint of this version's dagnn train na or dagnn train bn, got "
            f"{path}: {error}"
        ) from error
    return model.to(device).eval(), config
