"""Two layers at a time against layer by layer and float64: on a GPU, and in the interpreter."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

from dagnn import DAGNN, LevelSchedule
from dagnn.ops.stack import Graph
from tests.interpreter import CUDA, INTERPRETED, check_in_interpreter, kernels, outside
from tests.nn.configurations import make_graph
from tests.ops.triton_cases import (
    BARS,
    SHAPES,
    assert_identical,
    assert_near,
    chain,
    check,
    errors,
    in_float64,
    layered,
    make_model,
    poisoned_buffers,
    products_in,
    random_dag,
    run,
)

pytestmark = [
    # Masked rows of a tile divide by zero, which only numpy tells.
    pytest.mark.filterwarnings("ignore::RuntimeWarning:triton.runtime.interpreter"),
    pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton"),
]
DEVICE = "cuda" if CUDA else "cpu"
HIDDEN = 7 if INTERPRETED else 300


def small_graph() -> Data:
    """Every node but the first two has two predecessors, so that attention matters."""
    return make_graph([(0, 2), (1, 2), (0, 3), (2, 3), (1, 4), (3, 4), (1, 5), (0, 5)], 6)


def cuda(test: Callable[..., Any]) -> Callable[..., Any]:
    """For a GPU alone: too large for the interpreter, or about the launch itself."""
    return pytest.mark.cuda(pytest.mark.skipif(not CUDA, reason="needs a CUDA device")(test))


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Wavefronts wherever they are possible; the names of their launches."""
    import dagnn.ops.triton as package

    names: list[str] = []

    def spied(name: str) -> Callable[..., Any]:
        launch = getattr(package, name)

        def spy(*args: Any) -> Any:
            names.append(name.removeprefix("launch_wave_"))
            return launch(*args)

        return spy

    for name in ("launch_wave_forward", "launch_wave_backward"):
        monkeypatch.setattr(package, name, spied(name))
    monkeypatch.setenv("DAGNN_WAVEFRONT", "always")
    return names


@outside
def test_everything_in_the_interpreter() -> None:
    check_in_interpreter("tests/ops/test_wavefront.py", "-m", "not cuda")


# Outputs and gradients


def check_beside_layers(model: DAGNN, data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    """States and every gradient against float64, with all buffers poisoned. Where so much cancels
    that layer by layer is not below the bar (nor is the reference in float32), a wavefront is to
    be as near as it: 4 times, for an input product of 22 bits instead of 24."""
    exact = in_float64(model, data)
    with products_in("fp32", DEVICE), poisoned_buffers():
        measured = errors(run(model, data), exact)
        with monkeypatch.context() as patch:
            patch.setenv("DAGNN_WAVEFRONT", "never")
            by_layers = errors(run(model, data), exact)
    bars = {name: max(BARS["fp32"], 4 * error) for name, error in by_layers.items()}
    failed = {name: (e, bars[name]) for name, e in measured.items() if not e < bars[name]}
    assert not failed


CONFIGURATIONS = [  # aggregator, cell, hidden size, bidirectional, layers
    ("attention-types", "gru", 20, True, 2),
    ("attention-types", "gru", 1, True, 2),
    ("attention-tied", "gru", 7, False, 4),
    ("attention", "gru", 7, True, 3),
    ("attention-features", "linear", 20, True, 2),
    ("attention", "linear", 7, False, 3),
]


@kernels
@pytest.mark.parametrize(
    ("aggregator", "cell", "hidden", "bidirectional", "layers"), CONFIGURATIONS
)
def test_every_configuration(
    aggregator: str,
    cell: str,
    hidden: int,
    bidirectional: bool,
    layers: int,
    launches: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = {"num_layers": layers, "bidirectional": bidirectional}
    model = make_model(aggregator, cell, hidden, **options).to(DEVICE)
    check_beside_layers(model, small_graph(), monkeypatch)
    assert launches == ["forward"] * (layers // 2) + ["backward"] * (layers // 2)


@kernels
@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape(shape: str, launches: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = SHAPES[shape]
    model = make_model(
        "attention-types", "gru", HIDDEN, num_layers=2, bidirectional=not INTERPRETED
    ).to(DEVICE)
    check_beside_layers(model, small() if INTERPRETED else large(), monkeypatch)
    assert launches == ([] if shape == "empty" else ["forward", "backward"])


@kernels
@pytest.mark.parametrize("precision", ["tf32", "fp16"] if INTERPRETED else ["tf32", "bf16"])
def test_lower_precision_as_layer_by_layer(
    precision: str, launches: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # So many units that tf32 is not fp32.
    model = make_model("attention-types", "gru", max(HIDDEN, 72), num_layers=2).to(DEVICE)
    data = make_graph([(1, 0), (2, 0), (1, 3)], 4) if INTERPRETED else chain(100)
    with products_in(precision, DEVICE):
        found = run(model, data)
        assert launches == ["forward", "backward"]
        monkeypatch.setenv("DAGNN_WAVEFRONT", "never")
        expected = run(model, data)
    assert launches == ["forward", "backward"]
    assert_near(found, expected, precision)


@kernels
def test_input_weights_of_any_size(launches: list[str]) -> None:
    """The product between the layers is in fp16 backward, which has no numbers below 6e-8."""
    model = make_model("attention", "gru", max(HIDDEN, 72), num_layers=2, bidirectional=False)
    with torch.no_grad():
        model.forward_layers[1].cell.weight_ih.mul_(2.0**-30)
    # Without attention, whose gradients cancel, and all of it through these weights.
    check(model.to(DEVICE), chain(4), "tf32", loss=lambda states: states[-1].square().sum())
    assert launches == ["forward", "backward"]


@kernels
@pytest.mark.parametrize("cell", ["gru", "linear"])
@pytest.mark.parametrize(
    ("hidden", "at_once", "early", "precision"), [(20, 2, False, "fp32"), (150, 3, True, "fp16")]
)
def test_several_blocks_of_units(
    hidden: int,
    at_once: int,
    early: bool,
    precision: str,
    cell: str,
    launches: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Programs that own a part of the units each, of more nodes than a tile has."""
    from dagnn.ops.triton import launch, wave

    tiles = launch.Tiles(16, 16, 8, at_once=at_once, early=early)
    monkeypatch.setitem(launch.CANDIDATES, precision, (tiles,))
    model = make_model("attention-types", cell, hidden, num_layers=2, bidirectional=False).to(
        DEVICE
    )
    wave._tiles_that_fit.cache_clear()
    try:
        check(model, layered([3, 18, 2], degree=at_once + 2), precision)
    finally:
        wave._tiles_that_fit.cache_clear()
    assert launches == ["forward", "backward"]


@pytest.mark.skipif(not INTERPRETED, reason="on a GPU, the launch is persistent anyway")
@pytest.mark.parametrize("cell", ["gru", "linear"])
def test_the_persistent_launch_with_one_program(
    cell: str, launches: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Per direction and role, in the order in which roles need one another: nobody has to wait,
    and so the interpreter can run it."""
    from dagnn.ops.triton import launch

    monkeypatch.setattr(launch, "processors", lambda _: 6)
    check(make_model("attention-types", cell, 7, num_layers=2), layered([2, 17, 3, 1, 1], 2))
    assert launches == ["forward", "backward"]


@kernels
def test_a_loss_that_sees_one_layer_alone(launches: list[str]) -> None:
    model = make_model("attention", "gru", HIDDEN, num_layers=2, bidirectional=False).to(DEVICE)
    for layer in (0, 1):
        check(model, make_graph([(1, 0), (2, 0)], 3), loss=lambda states, i=layer: states[i].sum())
    assert launches == ["forward", "backward"] * 2


@kernels
def test_backward_twice_and_inference(launches: list[str]) -> None:
    """Nothing that autograd keeps is written to, two runs agree to the last bit, whatever buffers
    hold before, and inference has the same states."""
    model = make_model("attention", "gru", HIDDEN, num_layers=2, bidirectional=not INTERPRETED).to(
        DEVICE
    )
    data = (small_graph() if INTERPRETED else random_dag(300, 600)).to(DEVICE)
    data.x = data.x.float().requires_grad_()
    states = model.embed_nodes(data).forward
    out = torch.stack([h.square().sum() for h in states]).sum()
    variables = [data.x, *model.forward_layers.parameters()]
    first = torch.autograd.grad(out, variables, retain_graph=True)
    with poisoned_buffers():
        second = torch.autograd.grad(out, variables)
        with torch.no_grad():
            inferred = model.embed_nodes(data).forward
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(states, inferred, strict=True))
    assert launches == ["forward", "backward", "backward", "forward"]


@cuda
@pytest.mark.parametrize("cell", ["gru", "linear"])
@pytest.mark.parametrize("hidden", [7, 64, 300])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_random_dags_on_a_gpu(
    cell: str, hidden: int, bidirectional: bool, launches: list[str]
) -> None:
    options = {"num_layers": 2, "bidirectional": bidirectional}
    model = make_model("attention-types", cell, hidden, **options).to(DEVICE)
    check(model, random_dag(300, 600))
    assert launches == ["forward", "backward"]


@cuda
@pytest.mark.parametrize("cell", ["gru", "linear"])
@pytest.mark.parametrize("hidden", [64, 300])
@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_random_dags_in_lower_precision_on_a_gpu(
    cell: str, hidden: int, precision: str, launches: list[str]
) -> None:
    """Gradients of attentions' parameters cancel, and feel an inexact product between layers."""
    model = make_model("attention-types", cell, hidden, num_layers=2).to(DEVICE)
    check(model, random_dag(300, 600), precision)
    assert launches == ["forward", "backward"]


@cuda
@pytest.mark.parametrize(
    ("hidden", "precision"),
    [(300, "fp32"), (300, "tf32"), (300, "bf16"), (501, "tf32"), (501, "bf16")],
)
def test_deep_and_wide_levels_on_a_gpu(
    hidden: int, precision: str, launches: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs take turns and wait for one another; they agree from run to run to the last bit,
    with layer by layer, and with float64."""
    model = make_model("attention-types", "gru", hidden, num_layers=2).to(DEVICE)
    data = layered([2000, 300, *[17] * 200, *[1] * 50], degree=2)
    with products_in(precision, DEVICE):
        first = run(model, data)
        for _ in range(3):
            assert_identical(first, run(model, data))
        assert launches == ["forward", "backward"] * 4
        monkeypatch.setenv("DAGNN_WAVEFRONT", "never")
        by_layers = run(model, data)
    # Lower bars: both round, and edge weights of random graphs feel it most.
    assert_near(first, by_layers, {"fp32": "tf32", "tf32": "bf16"}.get(precision, precision))
    monkeypatch.setenv("DAGNN_WAVEFRONT", "always")
    check(model, chain(150), precision)


@cuda
def test_one_launch_per_step_does_the_same(
    launches: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from dagnn.ops.triton import launch

    model = make_model("attention-types", "gru", 64, num_layers=2).to(DEVICE)
    data = layered([40, 300, 17, 1, 50], degree=3)
    persistent = run(model, data)
    monkeypatch.setattr(launch, "processors", lambda _: 0)
    assert_near(run(model, data), persistent)
    assert launches == ["forward", "backward"] * 2


@cuda
def test_in_a_cuda_graph(launches: list[str]) -> None:
    model = make_model("attention-types", "gru", 64, num_layers=2).to(DEVICE)
    data = chain(60).to(DEVICE)
    data.x = data.x.float()
    schedule = LevelSchedule.from_data(data)

    def step() -> list[torch.Tensor]:
        out = model.embed_nodes(data.x, edge_type=data.edge_type, schedule=schedule).forward[-1]
        return [out, *torch.autograd.grad(out.sum(), list(model.forward_layers.parameters()))]

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            expected = step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = step()
    graph.replay()
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


# The choice


@kernels
@pytest.mark.parametrize(
    ("precision", "hidden", "bounded", "expected"),
    [
        ("fp32", 300, True, "fp32"),
        ("tf32", 300, True, "bf16x3"),
        ("tf32", 64, True, "fp32"),
        ("bf16", 300, True, "fp16"),
        ("fp16", 300, True, "fp16"),
        ("bf16", 300, False, "bf16x3"),
        ("fp16", 300, False, "bf16x3"),
    ],
)
def test_products_between_layers_have_no_fewer_bits_than_large_ones(
    precision: str, hidden: int, bounded: bool, expected: str
) -> None:
    from dagnn.ops.triton import wave

    assert wave.forward_precision(precision, hidden, bounded) == expected


def schedule_of(data: Data) -> Graph:
    schedule = LevelSchedule.from_data(data)
    return Graph(*(getattr(schedule, name) for name in Graph._fields))


@kernels
def test_narrow_levels_in_number_are_a_wavefront(monkeypatch: pytest.MonkeyPatch) -> None:
    from dagnn.ops.triton import launch, wave

    monkeypatch.delenv("DAGNN_WAVEFRONT", raising=False)
    monkeypatch.setattr(launch, "processors", lambda _: 132)
    monkeypatch.setattr(launch, "memory_of", lambda _: launch.SHARED_MEMORY)
    deep, shallow = schedule_of(chain(100)), schedule_of(chain(10))
    one_way = deep._replace(order=deep.order[:1])
    # In fp16, 5 blocks of units in 3 roles and 2 directions: 4 programs each, of 16 nodes.
    wide = [schedule_of(layered([width] * wave.LEVELS, degree=1)) for width in (96, 97)]

    def chosen(graph: Graph, hidden: int = 300, precision: str = "fp16") -> int | None:
        tiles = wave.wave_tiles("attention", graph, hidden, precision)
        return None if tiles is None else tiles.BN

    assert chosen(deep) == 64
    assert chosen(deep, precision="bf16x3") == chosen(deep, precision="fp32") == 32
    assert chosen(shallow) is None
    assert chosen(wide[0]) == 64
    assert chosen(wide[1]) is None
    assert chosen(wide[0], precision="bf16x3") is None
    assert wave.wave_tiles("gated_sum", deep, 300, "fp16") is None
    # So many units do not fit into the registers, or into programs that run at once.
    assert chosen(deep, hidden=501) == 64
    assert chosen(deep, hidden=501, precision="bf16x3") is None
    assert chosen(deep, hidden=501, precision="fp32") is None
    assert chosen(one_way, hidden=501, precision="fp32") is None
    assert chosen(deep, hidden=1024) is None
    monkeypatch.setenv("DAGNN_WAVEFRONT", "always")
    assert chosen(shallow) == 64
    assert chosen(deep, hidden=501, precision="bf16x3") == 32
    assert chosen(deep, hidden=1024) is None
    monkeypatch.setenv("DAGNN_WAVEFRONT", "never")
    assert chosen(deep) is None
    monkeypatch.delenv("DAGNN_WAVEFRONT")
    assert chosen(deep) == 64
    monkeypatch.setattr(launch, "processors", lambda _: 0)
    assert chosen(deep) is None
    monkeypatch.setenv("DAGNN_WAVEFRONT", "often")
    with pytest.raises(ValueError, match="one of auto, always, never, got 'often'"):
        chosen(deep)
