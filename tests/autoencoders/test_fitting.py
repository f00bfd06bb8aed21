"""Training, killed and resumed; checkpoints; steps."""

from __future__ import annotations

import itertools
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from dagnn.autoencoders import fitting
from dagnn.autoencoders.fitting import (
    AutoencoderConfig,
    IndexBlocks,
    fit_autoencoder,
    load_autoencoder,
    preset,
)
from dagnn.autoencoders.models import MODELS
from dagnn.autoencoders.train_step import CapturedStep, EagerStep, make_step
from dagnn.autoencoders.vae import KL_WEIGHT, DagVAE, VaeLoss
from dagnn.training import NonFiniteLossError
from tests.autoencoders.graphs import random_dags

GRAPHS = random_dags(50, max_nodes=5)
CONFIG = AutoencoderConfig(hidden_channels=8, latent_channels=3, epochs=3, batch_size=16)


def train(folder: Path, **changes: Any) -> tuple[Any, Any]:
    config = AutoencoderConfig(**{**CONFIG.__dict__, **changes})
    return fit_autoencoder(config, GRAPHS, folder, device="cpu", progress=False)


def test_loss_falls_and_checkpoint_is_the_model(tmp_path: Path) -> None:
    model, run = train(tmp_path, epochs=8, rate=1e-2)
    losses = [row["loss"] for row in run.history]
    assert losses[-1] < 0.8 * losses[0]
    loaded, config = load_autoencoder(run.last_checkpoint)
    assert config["autoencoder"]["model"] == "dagnn"
    for name, value in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value), name
    z = model.encode_all(GRAPHS)
    torch.testing.assert_close(model.latent_mean, z.mean(0))
    torch.testing.assert_close(model.latent_std, z.std(0, correction=0))
    assert loaded.sample_prior(7, torch.Generator().manual_seed(0)).shape == (7, 3)


@pytest.mark.parametrize(("device", "precision"), [("cuda", "tf32"), ("cpu", "32")])
def test_products_on_a_gpu_are_of_tf32(
    device: str, precision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked of fit itself: what is set around it, it sets anew."""
    asked: dict[str, Any] = {}
    monkeypatch.setattr(fitting, "fit", lambda *_, **options: asked.update(options))
    fit_autoencoder(CONFIG, GRAPHS, tmp_path, device=device, progress=False)
    assert asked["precision"] == precision


@pytest.mark.parametrize("model", MODELS)
def test_every_model_trains(model: str, tmp_path: Path) -> None:
    _, run = train(tmp_path, model=model, epochs=3, rate=1e-2)
    assert run.history[-1]["loss"] < run.history[0]["loss"]


@pytest.mark.parametrize("steps", [1, 4, 6, 11])
def test_an_interrupted_run_ends_as_if_it_was_not(
    steps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, _ = train(tmp_path / "whole")
    count = itertools.count()
    step = EagerStep.__call__

    def interrupted(self: EagerStep, *args: torch.Tensor) -> torch.Tensor:
        if next(count) == steps:
            raise RuntimeError("the power is out")
        return step(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(EagerStep, "__call__", interrupted)
        with pytest.raises(RuntimeError, match="the power is out"):
            train(tmp_path / "parts")
    resumed, run = train(tmp_path / "parts")
    assert [row["epoch"] for row in run.history] == [0, 1, 2]
    for name, value in whole.state_dict().items():
        assert torch.equal(resumed.state_dict()[name], value), name


def test_another_config_is_refused(tmp_path: Path) -> None:
    train(tmp_path, epochs=1)
    with pytest.raises(ValueError, match=r"autoencoder.rate is 0.001 there and 0.01 here"):
        train(tmp_path, epochs=1, rate=0.01)


def test_a_loss_that_is_not_finite_stops_with_the_graphs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = AutoencoderConfig.make

    def broken(self: AutoencoderConfig, *sizes: int) -> Any:
        model = make(self, *sizes)
        model.mean.bias.data[0] = torch.nan
        return model

    monkeypatch.setattr(fitting.AutoencoderConfig, "make", broken)
    with pytest.raises(NonFiniteLossError, match="step 0") as error:
        train(tmp_path)
    assert error.value.graphs == IndexBlocks(50, 16).graphs_of(0, 0)
    assert (tmp_path / "non_finite.ckpt").exists()


def test_weights_follow_from_the_seed() -> None:
    state = torch.get_rng_state()
    a, b = (CONFIG.make(5, 5).state_dict() for _ in range(2))
    c = AutoencoderConfig(**{**CONFIG.__dict__, "seed": 1}).make(5, 5).state_dict()
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert not torch.equal(a["mean.weight"], c["mean.weight"])
    assert torch.equal(torch.get_rng_state(), state)


def test_blocks_are_all_graphs_in_an_order_of_the_epoch() -> None:
    blocks = IndexBlocks(50, 8, block=4, seed=3)
    shapes = [(4, 8), (2, 8), (1, 2)]
    first, second = list(blocks), list(blocks)
    assert [tuple(block.shape) for block in first] == shapes
    assert len(blocks) == 3
    for epoch in (first, second):
        flat = torch.cat([block.flatten() for block in epoch])
        assert sorted(flat.tolist()) == list(range(50))
    assert not torch.equal(first[0], second[0])
    assert blocks.graphs_of(1, 2) == second[2].flatten().tolist()
    # The same from a state in the middle.
    again = IndexBlocks(50, 8, block=4, seed=3)
    iterator = iter(again)
    next(iterator)
    state = again.state_dict()
    fresh = IndexBlocks(50, 8, block=4, seed=3)
    fresh.load_state_dict(state)
    assert all(torch.equal(x, y) for x, y in zip(fresh, first[1:], strict=True))
    assert [len(IndexBlocks(n, 8, 4)) for n in (1, 8, 32, 33, 40)] == [1, 1, 1, 2, 2]
    assert [len(list(IndexBlocks(n, 8, 4))) for n in (1, 8, 32, 33, 40)] == [1, 1, 1, 2, 2]
    with pytest.raises(ValueError, match="expected at least one graph"):
        IndexBlocks(0, 8)


def test_presets() -> None:
    assert preset("paper", "dagnn", "na") == {
        "epochs": 100, "batch_size": 32, "rate": 1e-3, "clip": 0.25
    }  # fmt: skip
    assert preset("paper", "d-vae", "bn")["epochs"] == 100
    assert preset("paper", "deepgmg", "na")["epochs"] == 30
    assert preset("paper", "gcn", "na")["rate"] == 1e-4
    with pytest.raises(ValueError, match="expected preset 'paper' or 'quick'"):
        preset("slow", "dagnn", "na")


def test_a_foreign_checkpoint_is_refused(tmp_path: Path) -> None:
    torch.save({"state_dict": {}, "config": {}}, tmp_path / "x.ckpt")
    with pytest.raises(ValueError, match="expected a checkpoint of dagnn train na or"):
        load_autoencoder(tmp_path / "x.ckpt")


@pytest.mark.parametrize(
    "change",
    [
        {"sizes": {}},
        {"sizes": None},
        {"autoencoder": {"colour": "red"}},
        {"autoencoder": {"hidden_channels": 9}},
        {"autoencoder": None},
    ],
)
def test_a_damaged_checkpoint_is_refused(change: dict[str, Any], tmp_path: Path) -> None:
    _, run = train(tmp_path, epochs=1)
    checkpoint = torch.load(run.last_checkpoint, weights_only=True)
    checkpoint["config"] |= change
    torch.save(checkpoint, tmp_path / "x.ckpt")
    with pytest.raises(ValueError, match=r"this version's dagnn train na .*x\.ckpt"):
        load_autoencoder(tmp_path / "x.ckpt")


def test_a_rate_of_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="expected a learning rate above 0, got 0"):
        AutoencoderConfig(rate=0.0)


def test_the_losses_of_an_epoch_are_means_over_graphs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 50 graphs, the last two are a batch of their own."""
    steps: list[VaeLoss] = []
    loss = DagVAE.loss

    def watched(self: DagVAE, *args: Any) -> VaeLoss:
        steps.append(loss(self, *args))
        return steps[-1]

    monkeypatch.setattr(DagVAE, "loss", watched)
    _, run = train(tmp_path, epochs=2, rate=1e-2)
    assert len(steps) == 8
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    for line, part in zip(lines, (steps[:4], steps[4:]), strict=True):
        row = json.loads(line)
        for name, values in zip(("loss", "reconstruction", "kl"), zip(*part, strict=True),
                                strict=True):  # fmt: skip
            total = sum(value.item() for value in values)
            assert row[name] == pytest.approx(total / 50, rel=1e-6), name
        assert row["loss"] == pytest.approx(row["reconstruction"] + KL_WEIGHT * row["kl"])
    assert "kl" in run.history[-1]


@pytest.mark.parametrize("processes", [2, 3, 4])
def test_the_mean_over_processes_is_that_of_one(
    processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a batch has fewer graphs than there are processes, as the last may have."""
    block = torch.tensor([[4, 9, 2]])
    monkeypatch.setattr(fitting._Training, "trainer", SimpleNamespace(current_epoch=0))

    def step(rank: int, number: int) -> tuple[torch.Tensor, list[torch.Tensor]]:
        model = CONFIG.make(GRAPHS.num_types, GRAPHS.max_nodes)
        module = fitting._Training(model, GRAPHS, IndexBlocks(3, 3), CONFIG)
        monkeypatch.setattr(module, "manual_backward", torch.Tensor.backward)
        monkeypatch.setattr(fitting, "rank_and_world_size", lambda: (rank, number))
        still = torch.optim.SGD(model.parameters(), lr=0.0)
        module._step = EagerStep(model, still, GRAPHS, backward=module._backward)
        loss = module.training_step(block, 0)
        return loss, [p.grad for p in model.parameters() if p.grad is not None]

    loss, gradients = step(0, 1)
    losses, parts = zip(*(step(rank, processes) for rank in range(processes)), strict=True)
    torch.testing.assert_close(torch.stack(losses).mean(), loss)
    for found, wanted in zip(zip(*parts, strict=True), gradients, strict=True):
        torch.testing.assert_close(torch.stack(found).mean(0), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize(("hidden", "rest"), [(16, 8), (7, 1), (61, 8)])
@pytest.mark.parametrize("name", MODELS)
def test_captured_steps_equal_eager_ones(name: str, hidden: int, rest: int) -> None:
    """Two sizes of batches, and a learning rate that changes between steps."""
    graphs = random_dags(40, max_nodes=5).to("cuda")
    outcomes = []
    for kind in (EagerStep, CapturedStep):
        config = AutoencoderConfig(model=name, hidden_channels=hidden, latent_channels=3)
        model = config.make(5, 5).to("cuda")
        # Gradients that are nothing but rounding stay small, and are not brought to length 1.
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, eps=1e-4, fused=True)
        step = kind(model, optimizer, graphs, 0.25)
        losses = []
        generator = torch.Generator("cuda").manual_seed(0)
        for i, size in enumerate([16, 16, rest, 16, rest]):
            if i == 3:
                optimizer.param_groups[0]["lr"] = 1e-4
            index = torch.arange(i, i + size, device="cuda")
            noise = torch.randn(size, 3, generator=generator, device="cuda")
            losses.append(step(index, noise).clone())
        outcomes.append((torch.stack(losses), torch.cat([p.flatten() for p in model.parameters()])))
    torch.testing.assert_close(outcomes[1][0], outcomes[0][0], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(outcomes[1][1], outcomes[0][1], rtol=1e-3, atol=1e-4)


def test_the_cpu_has_eager_steps() -> None:
    model = CONFIG.make(5, 5)
    optimizer = torch.optim.Adam(model.parameters())
    assert isinstance(make_step(model, optimizer, GRAPHS), EagerStep)


def test_weights_follow_from_the_seed_in_any_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that begin together do not draw from one another's seed."""
    expected = [make(seed) for seed in (0, 1)]
    began = threading.Event()
    original = fitting.make_autoencoder

    def slow(*arguments: Any, **options: Any) -> DagVAE:
        began.set()
        time.sleep(0.3)  # in which the other would seed
        return original(*arguments, **options)

    monkeypatch.setattr(fitting, "make_autoencoder", slow)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(make, 0)
        assert began.wait(30)
        second = pool.submit(make, 1)
        for found, wanted in zip((first.result(), second.result()), expected, strict=True):
            assert all(torch.equal(found[name], wanted[name]) for name in wanted)


def make(seed: int) -> dict[str, torch.Tensor]:
    config = AutoencoderConfig(hidden_channels=8, latent_channels=3, seed=seed)
    return config.make(GRAPHS.num_types, GRAPHS.max_nodes).state_dict()


def test_torch_s_generator_is_not_touched(tmp_path: Path) -> None:
    """It is one for all threads, and another may be drawing from it."""
    torch.manual_seed(5)
    before = torch.get_rng_state()
    train(tmp_path)
    assert torch.equal(torch.get_rng_state(), before)


def test_epochs_that_share_the_device_say_so(tmp_path: Path) -> None:
    fit_autoencoder(CONFIG, GRAPHS, tmp_path, device="cpu", progress=False, shared=True)
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [row["shared"] for row in rows] == [True] * 3
