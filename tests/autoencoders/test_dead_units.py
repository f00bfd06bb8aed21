"""Models with dead units, against those without them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.functional import pad

from dagnn.autoencoders import dense, models
from dagnn.autoencoders.dead_units import DeadUnits, JoinedLinear, padded_width
from dagnn.autoencoders.fitting import AutoencoderConfig, fit_autoencoder, load_autoencoder
from dagnn.autoencoders.models import MODELS, make_autoencoder
from dagnn.autoencoders.train_step import EagerStep
from dagnn.autoencoders.vae import DagVAE
from dagnn.datasets.small_dags import SmallDags
from tests.autoencoders.graphs import random_dags
from tests.autoencoders.test_models import CASES, gradients
from tests.interpreter import INTERPRETED, check_in_interpreter, kernels, outside

LIVE, WIDTH = 5, 8
DEVICE = "cpu" if INTERPRETED else "cuda"
CONFIG = AutoencoderConfig(hidden_channels=LIVE, latent_channels=3, epochs=3, batch_size=16)
GRAPHS = random_dags(40, max_nodes=5)

Widen = Callable[[], None]


@pytest.fixture
def widen(monkeypatch: pytest.MonkeyPatch) -> Widen:
    """From its call on, models have dead units."""
    return lambda: monkeypatch.setattr(models, "padded_width", lambda width: width + WIDTH - LIVE)


@pytest.fixture(params=CASES)
def both(request: pytest.FixtureRequest, widen: Widen) -> tuple[DagVAE, DagVAE]:
    plain = make(request.param)
    after = torch.get_rng_state()
    widen()
    wide = make(request.param)
    assert torch.equal(torch.get_rng_state(), after)
    return plain, wide


def make(case: str) -> DagVAE:
    """As many types and latent channels as units: sizes do not tell them apart."""
    model, task, options = CASES[case]
    torch.manual_seed(1)
    sizes = {"hidden_channels": LIVE, "latent_channels": 5, "num_types": 5, "max_nodes": 6}
    return make_autoencoder(model, task, **sizes, **options).double()


def assert_padded(plain: Mapping[str, Tensor], wide: Mapping[str, Tensor], dead: DeadUnits) -> None:
    """Values of parameters: near where units live, and zero where they are dead."""
    for name, value in plain.items():
        torch.testing.assert_close(
            wide[name], dead.pad(name, value), rtol=1e-10, atol=1e-10, msg=name
        )
    assert_dead(wide, dead)


def assert_dead(wide: Mapping[str, Tensor], dead: DeadUnits) -> None:
    for name, value in wide.items():
        assert (value[~live(dead, name)] == 0).all(), name


def live(dead: DeadUnits, name: str) -> Tensor:
    """Which entries of a parameter are not zero for good. bool, its shape"""
    narrow = [int(axis.sum()) for axis in dead._axes[name]]
    return dead.pad(name, torch.ones(narrow, dtype=torch.bool))


def test_live_weights_are_drawn_as_without_dead_ones(both: tuple[DagVAE, DagVAE]) -> None:
    plain, wide = both
    assert wide.dead_units is not None
    assert wide.lift.weight.shape == (WIDTH, 5)
    for name, value in plain.named_parameters():
        own = wide.get_parameter(name)[live(wide.dead_units, name)]
        assert torch.equal(own.view(value.shape), value), name
    assert_dead(dict(wide.named_parameters()), wide.dead_units)


@pytest.mark.parametrize("static", [False, True])
def test_losses_and_gradients(
    both: tuple[DagVAE, DagVAE], static: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dense, "has_static_shapes", lambda tensor: static)
    plain, wide = both
    graphs, noise = random_dags(6), torch.randn(6, 5, dtype=torch.double)
    exact: dict[str, Any] = {"rtol": 1e-10, "atol": 1e-10}
    torch.testing.assert_close(wide.encode(graphs), plain.encode(graphs), **exact)
    found, expected = (model.loss(graphs, noise) for model in (wide, plain))
    torch.testing.assert_close(found, expected, **exact)
    z = 2 * noise
    torch.testing.assert_close(
        wide.log_likelihood(z, graphs), plain.log_likelihood(z, graphs), **exact
    )
    assert wide.dead_units is not None
    slopes = gradients(plain, expected.total), gradients(wide, found.total)
    assert_padded(*slopes, wide.dead_units)


def test_dead_units_stay_dead(both: tuple[DagVAE, DagVAE]) -> None:
    graphs = random_dags(16)
    losses = [train_steps(model, graphs, eps=1e-3) for model in both]
    torch.testing.assert_close(losses[1], losses[0], rtol=1e-10, atol=1e-10)
    plain, wide = (dict(model.named_parameters()) for model in both)
    assert both[1].dead_units is not None
    assert_padded(plain, wide, both[1].dead_units)


def train_steps(model: DagVAE, graphs: SmallDags, number: int = 4, eps: float = 1e-8) -> Tensor:
    """The losses of some steps with clipping."""
    first = next(model.parameters())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, eps=eps, fused=True)
    step = EagerStep(model, optimizer, graphs, clip=0.25)
    generator = torch.Generator().manual_seed(0)
    losses = []
    for _ in range(number):
        noise = torch.randn(4, model.latent_channels, generator=generator)
        index = torch.randint(len(graphs), (4,), generator=generator)
        losses.append(step(index.to(first.device), noise.to(first)))
    return torch.stack(losses)


@kernels
@pytest.mark.cuda
@pytest.mark.parametrize(
    "case", [*(f"{model}-na" for model in MODELS), "dagnn-pool-all-both", "d-vae-both"]
)
def test_kernels_do_not_wake_them(case: str, widen: Widen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dense, "_has_kernels", lambda _, dtype: dtype == torch.float32)
    widen()
    model = make(case).float().to(DEVICE)
    train_steps(model, random_dags(16).to(DEVICE), number=2)
    assert model.dead_units is not None
    assert_dead({name: p.cpu() for name, p in model.named_parameters()}, model.dead_units)


@outside
def test_kernels_in_the_interpreter() -> None:
    check_in_interpreter(__file__, "-k", "test_kernels_do_not_wake_them")


@pytest.mark.parametrize("stochastic", [False, True])
def test_decoded_graphs(both: tuple[DagVAE, DagVAE], stochastic: bool) -> None:
    z = 3 * torch.randn(32, 5, dtype=torch.double)
    plain, wide = (
        model.decode(z, stochastic=stochastic, generator=torch.Generator().manual_seed(0))
        for model in both
    )
    assert torch.equal(wide.types, plain.types)
    assert torch.equal(wide.adjacency, plain.adjacency)


def fit(folder: Path, **changes: Any) -> DagVAE:
    config = AutoencoderConfig(**{**CONFIG.__dict__, **changes})
    return fit_autoencoder(config, GRAPHS, folder, device="cpu", progress=False)[0]


def test_checkpoints_hold_the_wider_model(tmp_path: Path, widen: Widen) -> None:
    widen()
    model = fit(tmp_path)
    loaded, config = load_autoencoder(tmp_path)
    assert config["autoencoder"]["hidden_channels"] == LIVE
    assert loaded.lift.weight.shape == (WIDTH, 3)
    for name, value in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value), name
    assert model.dead_units is not None
    assert_dead(dict(model.named_parameters()), model.dead_units)


def test_checkpoints_of_before_are_padded(tmp_path: Path, widen: Widen) -> None:
    plain = fit(tmp_path)
    widen()
    # From its file, and as a run that was finished.
    for model in (load_autoencoder(tmp_path)[0], fit(tmp_path)):
        assert model.dead_units is not None
        state = model.state_dict()
        for name, value in plain.named_parameters():
            assert torch.equal(state[name], model.dead_units.pad(name, value)), name
        assert torch.equal(model.latent_mean, plain.latent_mean)
        torch.testing.assert_close(model.encode_all(GRAPHS), plain.encode_all(GRAPHS))


@pytest.mark.parametrize(
    "change", [lambda x: x[:-1], lambda x: x.new_zeros(2 * WIDTH, 3), lambda x: "a word"]
)
def test_other_weights_are_refused(
    change: Callable[[Tensor], object], tmp_path: Path, widen: Widen
) -> None:
    fit(tmp_path, epochs=1)
    file = tmp_path / "last.ckpt"
    checkpoint = torch.load(file, weights_only=True)
    checkpoint["state_dict"]["model.lift.weight"] = change(
        checkpoint["state_dict"]["model.lift.weight"]
    )
    torch.save(checkpoint, file)
    widen()
    with pytest.raises(ValueError, match=r"lift\.weight"):
        load_autoencoder(file)


def test_runs_of_before_go_on(
    tmp_path: Path, widen: Widen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With Adam's moments, without which the weights would be others."""
    expected = fit(tmp_path / "whole", model="s-vae", rate=1e-2)
    step, steps = EagerStep.__call__, 0

    def interrupted(self: EagerStep, *args: Tensor) -> Tensor:
        nonlocal steps
        steps += 1
        if steps == 8:
            raise RuntimeError("the power is out")
        return step(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(EagerStep, "__call__", interrupted)
        with pytest.raises(RuntimeError, match="the power is out"):
            fit(tmp_path / "parts", model="s-vae", rate=1e-2)
    widen()
    found = fit(tmp_path / "parts", model="s-vae", rate=1e-2)
    assert found.dead_units is not None
    for name, value in expected.named_parameters():
        padded = found.dead_units.pad(name, value)
        torch.testing.assert_close(found.get_parameter(name), padded, rtol=1e-3, atol=1e-4)
    assert_dead(dict(found.named_parameters()), found.dead_units)


@given(st.integers(1, 5000))
def test_the_next_multiple_if_it_is_near(width: int) -> None:
    wider = padded_width(width)
    multiple = next(n for n in range(width, width + 64) if n % 64 == 0)
    assert wider == (multiple if 20 * multiple <= 21 * width else width)


def test_the_paper_s_width() -> None:
    model = make_autoencoder("gcn", "na")
    assert model.lift.weight.shape == (512, 56)
    assert model.lift.weight[:501].all()
    assert not model.lift.weight[501:].any()
    assert make_autoencoder("gcn", "na", hidden_channels=64).dead_units is None
    with torch.device("meta"):
        assert make_autoencoder("gcn", "na").lift.weight.shape == (512, 56)


@given(
    st.integers(1, 6),
    st.integers(1, 5),
    st.lists(st.none() | st.integers(1, 12), min_size=1, max_size=5),
    st.integers(1, 4),
)
def test_maps_of_joined_vectors(
    hidden: int, more: int, parts: list[int | None], blocks: int
) -> None:
    """Parts are states, or vectors of other widths."""

    def linear(width: int) -> JoinedLinear:
        return JoinedLinear([part or width for part in parts], blocks * width).double()

    plain, wide = linear(hidden), linear(hidden + more)
    x = torch.randn(2, plain.in_features, dtype=torch.double)
    padded = torch.cat(
        [
            part if other else pad(part, (0, more), value=7.0)
            for part, other in zip(x.split(plain.widths, -1), parts, strict=True)
        ],
        -1,
    )
    DeadUnits(nn.Sequential(plain), nn.Sequential(wide), hidden, hidden + more)
    expected = pad(plain(x).view(2, blocks, hidden), (0, more)).flatten(1)
    torch.testing.assert_close(wide(padded), expected)


def test_a_plain_map_of_states_and_others_is_noticed() -> None:
    plain, wide = (nn.Sequential(nn.Linear(width + 3, 2)) for width in (LIVE, WIDTH))
    with pytest.raises(AssertionError, match=r"0\.weight needs a JoinedLinear"):
        DeadUnits(plain, wide, LIVE, WIDTH)
