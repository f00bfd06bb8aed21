"""The GPU kernels against float64: on a GPU, and in Triton's interpreter on the CPU.

Whether kernels are interpreted is settled when Triton is imported. So this file runs twice: here
its kernels run on a GPU, if there is one; and one test starts the file again, in a process where
the kernels are interpreted, on small graphs, since that is slow.
"""

import math
import os
import re
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from torch import Tensor, nn
from torch.testing import assert_close
from torch_geometric.data import Data

from dagnn import DAGNN, LevelSchedule
from dagnn.ops.backends import FEW_UNITS
from dagnn.ops.stack import AGGREGATOR_PARAMETERS, CELL_PARAMETERS, Graph
from tests.graph.strategies import dags
from tests.nn.configurations import IN, make_graph
from tests.ops.triton_cases import (
    BARS,
    SHAPES,
    Run,
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
    projection,
    random_dag,
    run,
    star_in,
)

triton = pytest.importorskip("triton")

ROOT = Path(__file__).parents[2]
INTERPRETED = bool(triton.knobs.runtime.interpret)
DEVICE = "cpu" if INTERPRETED else "cuda"
needs_cuda = pytest.mark.skipif(
    INTERPRETED or not torch.cuda.is_available(), reason="needs a CUDA device"
)
# Masked rows of a tile divide by zero, which only numpy tells.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning:triton.runtime.interpreter")

COMBINATIONS = list(
    product(("attention", "attention-types", "attention-features", "gated_sum"), ("gru", "linear"))
)
EACH = [(a, c) for a, c in COMBINATIONS if a in ("attention-types", "gated_sum")]
# Between them, both aggregators and both cells, for what does not depend on the combination.
TWO = pytest.mark.parametrize(
    ("aggregator", "cell"), [("attention-types", "gru"), ("gated_sum", "linear")]
)
HIDDEN = 7 if INTERPRETED else 20
# The interpreter takes products of TF32 for float32's, and cannot multiply bfloat16.
LOWER = ["tf32", "fp16"] if INTERPRETED else ["tf32", "bf16", "fp16"]


def cuda(test: Callable[..., Any]) -> Callable[..., Any]:
    """For a GPU alone: too large for the interpreter, or about the launch itself."""
    return pytest.mark.cuda(needs_cuda(test))


def kernels(test: Callable[..., Any]) -> Callable[..., Any]:
    """In the interpreter, and on a GPU."""
    return test if INTERPRETED else cuda(test)


def on_device(model: DAGNN) -> DAGNN:
    return model.to(DEVICE)


def small_or_large(small: Callable[[], Data], large: Callable[[], Data]) -> Data:
    return small() if INTERPRETED else large()


def example() -> Data:
    return small_or_large(lambda: random_dag(9, 9), lambda: random_dag(300, 600))


@pytest.mark.skipif(INTERPRETED, reason="runs in the interpreter already")
def test_everything_in_the_interpreter() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not cuda", "-p", "no:cacheprovider"]
    outer = re.compile("PYTEST_|COV_|CUDA_")  # what would make that process part of this one
    environment = {name: value for name, value in os.environ.items() if not outer.match(name)}
    environment |= {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    finished = subprocess.run(
        [*command, str(Path(__file__).relative_to(ROOT))],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if finished.returncode:
        pytest.fail(finished.stdout + finished.stderr, pytrace=False)


# Outputs and gradients


def configurations() -> list[tuple[str, str, int, bool]]:
    """Aggregator, cell, hidden size, bidirectional."""
    if not INTERPRETED:
        sizes = (1, 7, 20, 64, 300, 501, 512)
        return [(a, c, h, both) for a, c in COMBINATIONS for h in sizes for both in (False, True)]
    few = [(a, c, 20, True) for a, c in COMBINATIONS]
    few += [(a, c, 7, False) for a, c in COMBINATIONS]
    few += [("attention-types", "gru", 1, True), ("gated_sum", "linear", 1, True)]
    return [*few, ("attention-tied", "gru", 7, False)]


@kernels
@pytest.mark.parametrize(("aggregator", "cell", "hidden", "bidirectional"), configurations())
def test_every_configuration(aggregator: str, cell: str, hidden: int, bidirectional: bool) -> None:
    check(on_device(make_model(aggregator, cell, hidden, bidirectional=bidirectional)), example())


@kernels
@TWO
@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape(shape: str, aggregator: str, cell: str) -> None:
    check(on_device(make_model(aggregator, cell, HIDDEN)), small_or_large(*SHAPES[shape]))


@kernels
@TWO
@pytest.mark.parametrize(
    ("at_once", "early", "precision"),
    [(1, False, "fp32"), (2, True, "fp16"), (3, False, "fp32"), (4, True, "fp16")],
)
def test_neighbours_at_once(
    at_once: int,
    early: bool,
    precision: str,
    aggregator: str,
    cell: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However many rows travel together; and rows of three pieces, two of which make an operand."""
    from dagnn.ops.triton import launch

    tiles = launch.CANDIDATES[precision]
    tiles = tuple(each._replace(at_once=at_once, early=early) for each in tiles)
    monkeypatch.setitem(launch.CANDIDATES, precision, tiles)
    monkeypatch.setattr(launch, "_chosen", {})
    model = on_device(make_model(aggregator, cell, 150))
    check(model, layered([3, 4, 2], degree=5), precision)


@kernels
@pytest.mark.parametrize("precision", ["fp32", "tf32"])
@pytest.mark.parametrize("exponent", [-10, -20])
def test_small_states_have_all_their_bits(exponent: int, precision: str) -> None:
    """Which they would not in fp16 as they are, nor after a tanh whose error does not shrink with
    it."""
    model = make_model("attention", "gru", 72 if INTERPRETED else 300)
    with torch.no_grad():
        for layer in [*model.forward_layers, *model.reverse_layers]:
            layer.cell.bias_ih.zero_()
            layer.cell.bias_hh.zero_()
    data = example()
    data.x = data.x * 2.0**exponent
    check(on_device(model), data, precision)


@kernels
@pytest.mark.parametrize("wavefront", ["never", "always"])
@pytest.mark.parametrize("exponents", [(-20, 0), (0, -20), (-20, 20)])
def test_states_and_input_weights_of_any_size_in_bf16(
    exponents: tuple[int, int], wavefront: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From layer to layer, which have bf16's exponents if not its few bits. Weights of 2^20 get
    small states: with others, all that is left of a unit is its sign, which is anyone's guess where
    it is near zero."""
    monkeypatch.setenv("DAGNN_WAVEFRONT", wavefront)
    model = make_model("attention", "gru", 72, num_layers=2)
    with torch.no_grad():
        for layer in [*model.forward_layers, *model.reverse_layers]:
            layer.cell.bias_ih.zero_()
            layer.cell.bias_hh.zero_()
        for layers in (model.forward_layers, model.reverse_layers):
            layers[1].cell.weight_ih.mul_(2.0 ** exponents[1])
    data = example()
    data.x = data.x * 2.0 ** exponents[0]
    with products_in("bf16", DEVICE), torch.no_grad():
        found = on_device(model).embed_nodes(data.to(DEVICE))
    exact = in_float64(model, data).states
    for a, b in zip([*found.forward[1:], *found.reverse[1:]], exact, strict=True):
        assert float((a - b).norm()) < BARS["bf16"] * float(b.norm())


@kernels
@settings(max_examples=5 if INTERPRETED else 40)
@given(graph=dags(max_nodes=6 if INTERPRETED else 40))
def test_random_dags(graph: Data) -> None:
    data = make_graph([(int(u), int(v)) for u, v in graph.edge_index.t()], graph.num_nodes)
    check(on_device(make_model("attention-features", "gru", HIDDEN)), data)


@kernels
@TWO
@pytest.mark.parametrize("dropout", [0.0, 1e-9])
def test_layers_above_one_another(aggregator: str, cell: str, dropout: float) -> None:
    """Dropout, even of nothing, takes another way: an operator per layer."""
    model = make_model(
        aggregator, cell, HIDDEN, num_layers=2, bidirectional=not INTERPRETED, dropout=dropout
    )
    check(on_device(model), example())


@kernels
@pytest.mark.parametrize("precision", LOWER)
@pytest.mark.parametrize(("aggregator", "cell"), EACH)
@pytest.mark.parametrize("hidden", [20] if INTERPRETED else [7, 64, 300])
def test_lower_precision(precision: str, aggregator: str, cell: str, hidden: int) -> None:
    model = make_model(aggregator, cell, hidden, num_layers=2, bidirectional=not INTERPRETED)
    data = small_or_large(lambda: make_graph([(1, 0), (2, 0), (1, 3)], 4), example)
    check(on_device(model), data, precision)


@kernels
@pytest.mark.parametrize("precision", LOWER)
@pytest.mark.parametrize("cell", ["gru", "linear"])
@pytest.mark.parametrize("hidden", [1, 20, 72] if INTERPRETED else [1, 7, 20, 64, 72, 300, 501])
def test_gated_sums_in_lower_precision(precision: str, cell: str, hidden: int) -> None:
    """Rows in one piece and in two, of one block of units and of several."""
    data = small_or_large(lambda: make_graph([(1, 0), (2, 0), (1, 3), (0, 3)], 4), example)
    check(on_device(make_model("gated_sum", cell, hidden)), data, precision)


@kernels
@pytest.mark.parametrize("precision", ["tf32", "bf16", "fp16"])
@pytest.mark.parametrize(("aggregator", "cell"), [*EACH, ("attention-features", "gru")])
@pytest.mark.parametrize("hidden", [1, 2, FEW_UNITS])
def test_few_units_are_exact(
    hidden: int, aggregator: str, cell: str, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where errors of one unit are not made up for by others. The backward pass is under autocast,
    too; where PyTorch may take TF32, its products with float32 are that."""
    if INTERPRETED and precision == "tf32":
        for module in ("dagnn.ops.float32", "dagnn.ops.triton"):
            monkeypatch.setattr(f"{module}.float32_products", lambda: "high")
        for owner, name in ((torch, "bmm"), (Tensor, "baddbmm_")):
            monkeypatch.setattr(owner, name, _like_tf32(getattr(owner, name)))
    model = on_device(make_model(aggregator, cell, hidden, num_layers=2))
    data = example()
    with products_in(precision, DEVICE), poisoned_buffers():
        found = run(model, data)
    monkeypatch.undo()
    assert_near(found, in_float64(model, data), "fp32")


def _like_tf32(product: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def of_rounded(*operands: Tensor, **options: Any) -> Tensor:
        kept, factors = operands[:-2], operands[-2:]
        return product(*kept, *(_to_11_bits(factor) for factor in factors), **options)

    return of_rounded


def _to_11_bits(x: Tensor) -> Tensor:
    if x.dtype != torch.float32:
        return x
    return ((x.contiguous().view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


@kernels
@pytest.mark.parametrize("precision", LOWER)
def test_sums_over_many_predecessors_in_lower_precision(precision: str) -> None:
    """They grow, and a GRU's states with them. (So do errors: where all rests on one node, gates in
    11 bits, TF32's also, are off by more than 1e-3 from some 3,000 predecessors on.)"""
    hidden = 72 if INTERPRETED else 300
    data = small_or_large(lambda: star_in(40), lambda: star_in(1000))
    check(on_device(make_model("gated_sum", "gru", hidden)), data, precision)


@kernels
@pytest.mark.parametrize("aggregator", ["attention", "gated_sum"])
@pytest.mark.parametrize("cell", ["gru", "linear"])
@pytest.mark.parametrize("exponent", [-60, 60])
@pytest.mark.parametrize("precision", ["tf32", "fp32"])
def test_gradients_of_any_size(precision: str, exponent: int, cell: str, aggregator: str) -> None:
    """Their products are in fp16, which has numbers from 6e-8 to 65504: to the last bit those of
    another size, if that is a power of two."""
    model = on_device(make_model(aggregator, cell, 72 if INTERPRETED else 300))
    data = small_or_large(lambda: make_graph([(1, 0), (2, 0), (1, 3), (0, 3)], 4), example)
    size = 2.0**exponent
    with products_in(precision, DEVICE):
        expected = run(model, data)
        found = run(model, data, loss=lambda states: projection(states) * size)
    for name, gradient in expected.gradients.items():
        assert torch.equal(found.gradients[name], gradient * size), name


@kernels
@pytest.mark.parametrize("exponent", [-40, 40])
def test_sums_of_any_size(exponent: int) -> None:
    """Messages and states likewise, to the last bit: without gates that move and biases, a linear
    cell's are as large as the features."""
    model = make_model("gated_sum", "linear", 72 if INTERPRETED else 300)
    with torch.no_grad():
        for layer in [*model.forward_layers, *model.reverse_layers]:
            layer.aggregator.gate.weight.zero_()
            layer.cell.input.bias.zero_()
    model = on_device(model)
    data = small_or_large(lambda: make_graph([(1, 0), (2, 0), (1, 3), (0, 3)], 4), example)
    with products_in("tf32", DEVICE):
        expected = run(model, data)
        data.x = data.x * 2.0**exponent
        found = run(model, data)
    for a, b in zip(found.states, expected.states, strict=True):
        assert torch.equal(a, b * 2.0**exponent)
    assert torch.equal(found.gradients["x"], expected.gradients["x"])


@kernels
@pytest.mark.parametrize(
    ("aggregator", "cell", "weight", "exponent"),
    [
        ("attention-types", "gru", "cell.weight_hh", -40),
        ("attention-types", "gru", "cell.weight_hh", -20),
        ("attention-types", "gru", "cell.weight_hh", 20),
        ("attention-types", "linear", "cell.message.weight", -20),
        ("gated_sum", "gru", "cell.weight_hh", -20),
        ("gated_sum", "gru", "aggregator.gate.weight", 20),
        ("gated_sum", "gru", "aggregator.map.weight", 20),
        ("gated_sum", "gru", "aggregator.map.weight", -20),
        ("gated_sum", "linear", "aggregator.map.weight", -40),
    ],
)
def test_weights_of_any_size(aggregator: str, cell: str, weight: str, exponent: int) -> None:
    """Their products are in fp16 likewise.

    Large ones on a small graph alone: with 2**20, rounding the weights to TF32's bits changes the
    states of a large one, in float64, by a third, for a gate that flips changes all that follow.
    """
    is_small = INTERPRETED or exponent > 0
    model = make_model(aggregator, cell, 72 if is_small else 300, bidirectional=False)
    with torch.no_grad():
        model.forward_layers[0].get_parameter(weight).mul_(2.0**exponent)
    data = make_graph([(1, 0), (2, 0), (1, 3), (0, 3)], 4) if is_small else example()
    check(on_device(model), data, "tf32")


@kernels
@pytest.mark.parametrize("exponent", [12, 20])
def test_units_of_different_size(exponent: int) -> None:
    """One unit of the messages is large, and its weights small: the same function, whose products
    have one scale for a row, and one for a matrix."""
    hidden = 72 if INTERPRETED else 300
    model = make_model("gated_sum", "gru", hidden)
    with torch.no_grad():
        for layer in [*model.forward_layers, *model.reverse_layers]:
            layer.aggregator.map.weight[3].mul_(2.0**exponent)
            layer.cell.weight_hh[:, 3].mul_(2.0**-exponent)
            layer.cell.bias_ih[hidden + 3].sub_(100.0)  # so that the state has nothing of it
    model = on_device(model)
    data = small_or_large(lambda: make_graph([(1, 0), (2, 0), (1, 3), (0, 3)], 4), example)
    with products_in("tf32", DEVICE):
        measured = errors(run(model, data), in_float64(model, data))
    assert all(measured[name] < BARS["tf32"] for name in ("states 0", "states 1", "x"))


@kernels
def test_weights_that_fp16_does_not_hold() -> None:
    """Each unit listens to one other, of one predecessor, so that gates are open or shut beyond
    doubt: where large numbers cancel, any rounding would decide it."""
    hidden = 72
    model = make_model("attention-types", "gru", hidden, bidirectional=False)
    listens = [torch.eye(hidden)[torch.randperm(hidden)] for _ in range(3)]
    signs = torch.randint(2, (3 * hidden, 1)) * 2 - 1
    with torch.no_grad():
        model.forward_layers[0].cell.weight_hh.copy_(2.0**20 * signs * torch.cat(listens))
    tree = make_graph([(0, 1), (0, 2), (1, 3), (1, 4), (3, 5)], 6)
    check(on_device(model), tree, "tf32")


@kernels
@pytest.mark.parametrize("precision", LOWER)
def test_an_infinite_feature(precision: str) -> None:
    """It saturates gates, as it does in the reference, and makes nothing out of itself."""
    model = on_device(make_model("attention", "gru", HIDDEN))
    data = make_graph([(1, 0), (2, 0), (1, 3)], 4).to(DEVICE)
    data.x = data.x.float()
    data.x[1, 0] = float("inf")
    with torch.no_grad(), products_in(precision, DEVICE):
        found = model.embed_nodes(data).forward[-1]
    model.backend = "reference"
    with torch.no_grad():
        expected = model.embed_nodes(data).forward[-1]
    assert expected.isfinite().all()
    torch.testing.assert_close(found, expected, rtol=0.02, atol=0.02)


@cuda
@pytest.mark.parametrize("precision", BARS)
@pytest.mark.parametrize(("aggregator", "cell"), EACH)
def test_levels_wider_than_the_device(precision: str, aggregator: str, cell: str) -> None:
    """More tiles than programs: they take turns, and some kernels go another way."""
    model = on_device(make_model(aggregator, cell, 64))
    check(model, layered([6000, 5000, 7003, 10, 5001], degree=3), precision)


@pytest.mark.skipif(not INTERPRETED, reason="on a GPU, the launch is persistent anyway")
@pytest.mark.parametrize(
    ("precision", "hidden", "early"),
    [("fp32", 7, False), ("fp16", FEW_UNITS + 4, False), ("fp16", FEW_UNITS + 4, True)],
)
@pytest.mark.parametrize(("aggregator", "cell"), EACH)
def test_the_persistent_launch_with_one_program(
    precision: str,
    hidden: int,
    early: bool,
    aggregator: str,
    cell: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Per direction: it has nobody to wait for, and so the interpreter can run it, through narrow
    levels and through wide ones, which have more than one tile."""
    from dagnn.ops.triton import launch

    monkeypatch.setattr(launch, "processors", lambda _: 2)
    tiles = (each._replace(early=early) for each in launch.CANDIDATES[precision])
    monkeypatch.setitem(launch.CANDIDATES, precision, tuple(tiles))
    monkeypatch.setattr(launch, "_chosen", {})
    check(make_model(aggregator, cell, hidden), layered([2, 18, 17, 3], degree=2), precision)


@cuda
def test_a_path_of_36123_nodes() -> None:
    """As deep as the deepest graph known to the paper's data sets; it is a sequence."""
    nodes, hidden = 36_123, 20
    gru = nn.GRU(IN, hidden, device="cuda", dtype=torch.float64)
    model = on_device(make_model("attention", "gru", hidden, bidirectional=False))
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    own_cell = model.forward_layers[0].get_submodule("cell")
    own_cell.load_state_dict({name: getattr(gru, f"{name}_l0") for name in names})
    data = chain(nodes).to("cuda")

    found = run(model, data)
    x = data.x.requires_grad_()
    out = gru(x)[0]
    weights = [getattr(gru, f"{name}_l0") for name in names]
    gradients = torch.autograd.grad(projection([out]), [x, *weights])
    own = {"x": gradients[0]}
    own |= {f"forward_layers.0.cell.{n}": g for n, g in zip(names, gradients[1:], strict=True)}
    assert_near(Run(found.states, {name: found.gradients[name] for name in own}), Run([out], own))


@kernels
@pytest.mark.parametrize("cell", ["gru", "linear"])
def test_equal_predecessors_have_no_gradient_of_scores(cell: str) -> None:
    """Exactly: to whichever of them a softmax attends, the message is the same."""
    data = make_graph([(1, 0)] * 5 + [(2, 1)] * 2 + [(3, 2)], 4)
    model = on_device(make_model("attention-features", cell, HIDDEN, bidirectional=False))
    for name, gradient in run(model, data).gradients.items():
        if "aggregator" in name:
            assert torch.equal(gradient, torch.zeros_like(gradient)), name


@kernels
def test_split_operands_multiply_as_16_bits_do() -> None:
    """And rows are in the order of levels, and padding is zero."""
    from dagnn.ops.triton.operands import split_rows, split_weight

    nodes, channels, hidden = 19, 5, 3
    x = torch.randn(nodes, channels, device=DEVICE) * 1e3
    weight = torch.randn(2, 3 * hidden, channels, device=DEVICE) * 1e-3
    order = torch.stack([torch.randperm(nodes), torch.randperm(nodes)]).to(DEVICE)
    with poisoned_buffers():
        a, b = split_rows(x, order).double(), split_weight(weight, hidden).double()
        level_major = split_rows(x[order], order).double()
    assert a.shape == (2, nodes, 3 * 8)
    assert b.shape == (2, 3 * 8, 3 * 8)
    assert torch.equal(a, level_major)
    blocks = (a @ b.mT).view(2, nodes, 3, 8)
    assert not blocks[..., hidden:].any()
    expected = (x[order].double() @ weight.double().mT).view(2, nodes, 3, hidden)
    # The interpreter cuts off what bfloat16 does not hold, a GPU rounds it.
    assert float((blocks[..., :hidden] - expected).norm()) < 2**-14 * float(expected.norm())


@kernels
def test_offsets_of_many_predecessors_that_matter_little() -> None:
    """One by one too little to be seen beside the sum, together they are. An error here would be
    one of all the node's gradients of scores."""
    from dagnn.ops.triton.gather import launch_messages

    leaves, hidden = 200, 3
    schedule = LevelSchedule.from_data(star_in(leaves).to(DEVICE), reverse=False)
    graph = Graph(*(getattr(schedule, name) for name in Graph._fields))
    h = torch.rand(1, leaves + 1, hidden, device=DEVICE)
    scores = torch.full((leaves,), -17.5, device=DEVICE)
    scores[1] = 0
    messages = launch_messages(h, scores.unsqueeze(0), graph, torch.float32)
    assert int(messages.anchor[0, -1]) == int(graph.pred[0, 1])  # the one that matters
    offset = messages.offset[0, -1].double()
    states = h[0, graph.pred[0]].double()
    weights = scores.double().softmax(0)
    expected = weights @ (states - states[1])
    # As exact as the weights, whose exponents of -17.5 are rounded to 2^-20.
    assert (offset - expected).norm() < 1e-6 * expected.norm()
    assert_close(messages.weight[0].double(), weights, rtol=1e-6, atol=0)


def switched_off(size: float) -> Data:
    """Three nodes with three predecessors each, the first of which is large and has no weight."""
    data = make_graph([(u, v) for v in (3, 4, 5) for u in (0, 1, 2)], 6)
    data.edge_attr = torch.rand_like(data.edge_attr) / 10
    data.edge_attr[::3] = -10.0
    data.x[0] *= size
    return data


@kernels
@pytest.mark.parametrize("num_layers", [1, 2])
@pytest.mark.parametrize("wavefront", ["never", "always"])
def test_predecessors_without_weight(
    wavefront: str, num_layers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is measured relative to their states, which may be large."""
    monkeypatch.setenv("DAGNN_WAVEFRONT", wavefront)
    model = make_model("attention-features", "linear", HIDDEN, num_layers=num_layers)
    with torch.no_grad():
        for layer in [*model.forward_layers, *model.reverse_layers]:
            layer.aggregator.edge.weight.fill_(1.0)
            layer.aggregator.edge_projection.weight.fill_(1.0)
            layer.aggregator.key.weight.zero_()
    data = switched_off(1e4)
    found = run(on_device(model), data)
    measured = errors(found, in_float64(model, data))
    names = [n for n in measured if n.startswith("forward_layers.0.cell") or "states" in n]
    assert names
    assert all(measured[name] < BARS["fp32"] for name in names), measured


@kernels
def test_weights_of_equal_large_scores() -> None:
    """A logarithm of their sum would have no bits left for it."""
    model = make_model("attention-features", "gru", HIDDEN)
    data = make_graph([(u, v) for v in (3, 4, 5) for u in (0, 1, 2)], 6)
    data.edge_attr = torch.ones_like(data.edge_attr)
    with torch.no_grad():
        for layer in [*model.forward_layers, *model.reverse_layers]:
            layer.aggregator.key.weight.zero_()
            layer.aggregator.edge_projection.weight.fill_(1.0)
            layer.aggregator.edge.weight.fill_(1e5)
    measured = errors(run(on_device(model), data), in_float64(model, data))
    names = ["x", "forward_layers.0.cell.weight_ih", "forward_layers.0.cell.weight_hh"]
    assert all(measured[name] < BARS["fp32"] for name in names), measured


@kernels
def test_a_large_message_part_behind_a_shut_gate() -> None:
    """It may be beyond fp16's numbers, and tanh not flat."""
    model = make_model("attention", "gru", HIDDEN)
    with torch.no_grad():
        for layer in [*model.forward_layers, *model.reverse_layers]:
            layer.cell.weight_hh[2 * HIDDEN :].mul_(2.0**20)
            layer.cell.bias_ih[:HIDDEN] = -20 * math.log(2)
    check(on_device(model), example())


# What runs when


@kernels
@TWO
def test_backward_twice(aggregator: str, cell: str) -> None:
    """Gradients take the place of buffers, but of none that autograd keeps."""
    model, data = on_device(make_model(aggregator, cell, HIDDEN, num_layers=2)), example()
    data.x = data.x.float().requires_grad_()
    out = projection(model.embed_nodes(data.to(DEVICE)).forward)
    variables = [data.x, *model.forward_layers.parameters()]
    first = torch.autograd.grad(out, variables, retain_graph=True)
    with poisoned_buffers():
        second = torch.autograd.grad(out, variables)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@kernels
@pytest.mark.parametrize("cell", ["gru", "linear"])
def test_an_attention_keeps_its_states_and_scores_alone(cell: str) -> None:
    model, data = on_device(make_model("attention", cell, HIDDEN, num_layers=2)), example()
    data = data.to(DEVICE)
    data.x = data.x.float()
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if tensor.is_floating_point():
            kept[storage.data_ptr()] = storage.nbytes() // 4
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        schedule = LevelSchedule.from_data(data)
        states = model.embed_nodes(data.x, schedule=schedule)  # noqa: F841 (it keeps them)
    layers, sweeps = 2, 2
    most = data.x.numel() + sum(p.numel() for p in model.parameters())
    most += layers * sweeps * (data.num_nodes * HIDDEN + schedule.num_edges)  # states and scores
    assert sum(kept.values()) <= most


@kernels
def test_gates_of_wide_levels_are_left_alone() -> None:
    """The level loop has turned them into gradients already, after the loop others follow."""
    from dagnn.ops.triton.gather import Messages, launch_finish

    widths, hidden = [3, 20, 2, 5], 5
    schedule = LevelSchedule.from_data(layered(widths, degree=1).to(DEVICE))
    graph = Graph(*(getattr(schedule, name) for name in Graph._fields))
    nodes, edges = schedule.num_nodes, schedule.num_edges

    def finished(widest: int) -> Tensor:
        generator = torch.Generator().manual_seed(0)

        def tensor(*shape: int) -> Tensor:
            return torch.randn(2, *shape, generator=generator).to(DEVICE)

        gates = tensor(nodes, 4 * hidden)
        messages = Messages(
            tensor(nodes, hidden), tensor(nodes, hidden), graph.pred[:, :0], tensor(edges)
        )
        launch_finish(
            tensor(nodes, hidden), gates, messages, tensor(1, hidden), tensor(nodes), graph, widest
        )
        return gates

    none, narrow, every = finished(0), finished(3), finished(nodes)
    assert not (none == every).any()
    for d in range(2):
        for low, high in pairwise(schedule.level_ptr[d].tolist()):
            expected = every if high - low <= 3 else none
            assert torch.equal(narrow[d, low:high], expected[d, low:high])


@kernels
@TWO
def test_two_runs_are_identical(aggregator: str, cell: str) -> None:
    """To the last bit, whatever the buffers hold before."""
    model, data = on_device(make_model(aggregator, cell, HIDDEN)), example()
    first = run(model, data)
    with poisoned_buffers():
        assert_identical(first, run(model, data))


@kernels
@TWO
def test_inference_equals_training_and_saves_nothing(
    aggregator: str, cell: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import dagnn.ops.triton

    saved = []
    forward = dagnn.ops.triton.forward

    def spy(*args: Any, **kwargs: Any) -> Any:
        out = forward(*args, **kwargs)
        saved.append(len(out[1]))
        return out

    monkeypatch.setattr(dagnn.ops.triton, "forward", spy)
    model, data = on_device(make_model(aggregator, cell, HIDDEN)), example().to(DEVICE)
    data.x = data.x.float()
    trained = model.embed_nodes(data)
    for inference in (torch.no_grad, torch.inference_mode):
        with inference(), poisoned_buffers():
            out = model.embed_nodes(data)
        for expected, found in zip(trained, out, strict=True):
            assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))
    assert saved == [1, 0, 0]  # layers that keep something for the backward pass


@kernels
def test_gradients_that_nobody_asked_for() -> None:
    """Neither of x, nor of frozen parameters; the others do not change."""
    model, data = on_device(make_model("attention-types", "gru", HIDDEN)), example()
    expected = run(model, data)
    for parameter in model.forward_layers[0].get_submodule("cell").parameters():
        parameter.requires_grad_(False)
    found = run(model, data, inputs_need_gradients=False)
    assert len(found.gradients) == len(expected.gradients) - 5  # a GRU's four, and x
    gradients = {name: expected.gradients[name] for name in found.gradients}
    assert_identical(found, Run(expected.states, gradients))


@kernels
@TWO
@pytest.mark.parametrize("layer", [0, 1])
def test_a_loss_that_sees_one_layer_alone(aggregator: str, cell: str, layer: int) -> None:
    """The other's states have no gradient, and that of a sum is a single number, expanded."""
    model = make_model(aggregator, cell, HIDDEN, num_layers=2, bidirectional=False)
    data = small_or_large(lambda: make_graph([(1, 0), (2, 0)], 3), lambda: random_dag(300, 600))
    check(on_device(model), data, loss=lambda states: states[layer].sum())


@cuda
@pytest.mark.parametrize(
    ("aggregator", "cell", "precision"),
    [*((a, c, "fp32") for a, c in EACH), *(("gated_sum", c, "bf16") for c in ("gru", "linear"))],
)
def test_one_launch_per_level_does_the_same(
    aggregator: str, cell: str, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dagnn.ops.triton import launch

    model = on_device(make_model(aggregator, cell, 64, num_layers=2))
    data = layered([40, 3000, 17, 1, 500], degree=3)
    with products_in(precision, DEVICE):
        persistent = run(model, data)
    with monkeypatch.context() as patch:
        patch.setenv("DAGNN_LAUNCH", "per-level")
        launch.processors.cache_clear()
        with products_in(precision, DEVICE):
            per_level = run(model, data)
        assert launch.processors(data.x.cuda().device) == 0
    launch.processors.cache_clear()
    assert launch.processors(data.x.cuda().device) > 0
    assert_near(per_level, persistent, precision)


# The operator


def operator_arguments(aggregator: str, cell: str, precision: str, save: bool) -> tuple[Any, ...]:
    model, data = on_device(make_model(aggregator, cell, 5)), make_graph([(0, 1), (2, 1)], 3)
    schedule = LevelSchedule.from_data(data.to(DEVICE))
    layers = [model.forward_layers[0], model.reverse_layers[0]]

    def stacked(part: str, name: str) -> Tensor:
        tensors = [getattr(layer, part).get_parameter(name).detach() for layer in layers]
        return torch.stack(tensors).requires_grad_(save)

    parameters = [stacked("cell", name) for name in CELL_PARAMETERS[cell]]
    parameters += [stacked("aggregator", name) for name in AGGREGATOR_PARAMETERS[aggregator]]
    graph = [getattr(schedule, name) for name in Graph._fields]
    scores = [torch.randn(2, 2, device=DEVICE, requires_grad=save)]
    scores = scores if aggregator == "attention" else []
    x = data.x.float().to(DEVICE).requires_grad_(save)
    return (x, graph, parameters, scores, aggregator, cell, 1, "triton", precision, save)


@kernels
@pytest.mark.parametrize(("aggregator", "cell"), [("attention", "gru"), ("gated_sum", "linear")])
@pytest.mark.parametrize("precision", ["fp32", LOWER[1]])
@pytest.mark.parametrize("save", [False, True])
def test_schema_and_fake(aggregator: str, cell: str, precision: str, save: bool) -> None:
    checks: tuple[str, ...] = ("test_schema", "test_autograd_registration", "test_faketensor")
    if not INTERPRETED:
        checks += ("test_aot_dispatch_dynamic",)
    torch.library.opcheck(
        torch.ops.dagnn.recurrence.default,
        operator_arguments(aggregator, cell, precision, save),
        test_utils=checks,
        atol=BARS[precision],
        rtol=BARS[precision],
    )


@kernels
@pytest.mark.parametrize("aggregator", ["attention", "gated_sum"])
@pytest.mark.parametrize("cell", ["gru", "linear"])
@pytest.mark.parametrize("precision", ["fp32", LOWER[1]])
def test_schema_and_fake_of_backward(aggregator: str, cell: str, precision: str) -> None:
    """Strides too: half precision and a hidden size of 5 have padded buffers inside."""
    *given, _ = operator_arguments(aggregator, cell, precision, False)
    outputs = torch.ops.dagnn.recurrence(*given, True)
    arguments = ([torch.ones_like(outputs[0])], *given[:4], outputs, *given[4:], True)
    torch.library.opcheck(
        torch.ops.dagnn.recurrence_backward.default,
        arguments,
        test_utils=("test_schema", "test_faketensor"),
    )


@cuda
@TWO
def test_compiles_without_a_break(aggregator: str, cell: str) -> None:
    model = on_device(make_model(aggregator, cell, HIDDEN, num_layers=2, readout="mean"))
    compiled = torch.compile(model, fullgraph=True)
    for data in (random_dag(60, 90), random_dag(70, 120)):
        data = data.to(DEVICE)
        data.x = data.x.float()
        arguments = (data.x, data.edge_index, data.edge_type)
        expected, out = model(*arguments), compiled(*arguments)
        assert_close(out, expected)
        variables = list(model.parameters())
        slope = torch.randn_like(expected)
        wanted = torch.autograd.grad((expected * slope).sum(), variables, allow_unused=True)
        found = torch.autograd.grad((out * slope).sum(), variables, allow_unused=True)
        for a, b in zip(found, wanted, strict=True):
            assert (a is None) == (b is None)
            if a is not None:
                assert_close(a, b)


# Refusals


@pytest.mark.skipif(INTERPRETED, reason="the interpreter runs on the CPU")
def test_without_the_interpreter_the_cpu_is_refused() -> None:
    model, data = make_model("attention", "gru", 4), make_graph([(0, 1)], 2)
    data.x = data.x.float()
    reason = "'triton' cannot run this: expected tensors on a CUDA device, got cpu.*TRITON_INTERP"
    with pytest.raises(ValueError, match=reason):
        model(data)


def test_float64_is_refused() -> None:
    model, data = make_model("attention", "gru", 4).double(), make_graph([(0, 1)], 2)
    with pytest.raises(ValueError, match=r"expected float32 tensors .*, got torch\.float64"):
        model(data)


def test_without_triton_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dagnn.ops.backends._HAS_TRITON", False)
    model, data = make_model("attention", "gru", 4), make_graph([(0, 1)], 2)
    data.x = data.x.float()
    with pytest.raises(ValueError, match="Triton is not installed"):
        model(data)


# Tiles


def power_of_two(number: int) -> bool:
    return number & (number - 1) == 0


def test_pieces_of_a_row() -> None:
    from dagnn.ops.triton.launch import pieces, rows_in_pieces

    for hidden in range(1, 2050):
        width, number = pieces(hidden)
        assert width * (number - 1) < hidden <= width * number  # they hold the row, and no more,
        assert 16 <= width <= 64  # a product can take them, and a warp has whole rows,
        assert power_of_two(width)
        assert rows_in_pieces(hidden)["G"] == bin(number).count("1")
    assert pieces(300) == (64, 5)


@pytest.mark.parametrize("precision", BARS)
def test_candidates(precision: str) -> None:
    from dagnn.ops.triton.launch import candidates

    sizes = [(hidden, 1) for hidden in (1, 7, 16, 20, 64, 300, 501, 512, 1024)]
    for hidden, phases in [*sizes, (7, 2), (300, 2), (512, 2)]:
        found = list(candidates(hidden, precision, phases))
        assert found
        one_launch = hidden < 500 or phases == 1 or precision in ("bf16", "fp16")
        assert any(tiles.resident for tiles in found) == one_launch
        for tiles in found:
            assert tiles.BN == 16 or hidden > tiles.BN // 2  # no more padding than need be
            assert min(tiles.BM, tiles.BN) >= 16  # a product's smallest operands
            assert all(power_of_two(size) for size in tiles[:3])


@pytest.mark.parametrize(("hidden", "units"), [(7, 16), (64, 64), (300, 64), (501, 32)])
def test_gated_sums_in_half_precision_have_large_blocks(hidden: int, units: int) -> None:
    """And so few programs for each tile of nodes."""
    from dagnn.ops.triton.launch import candidates

    first = next(candidates(hidden, "fp16", 2))
    assert first.resident
    assert units == first.BN


def test_the_first_tiles_that_fit_are_taken_and_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from triton.runtime.errors import OutOfResources

    from dagnn.ops.triton import launch
    from dagnn.ops.triton.forward import forward_kernel

    some = next(launch.candidates(7, "fp32", 1))
    candidates = [some._replace(BN=size) for size in (64, 32, 16)]
    tried = []

    def launch_tiles(*args: Any, **flags: Any) -> None:
        tiles = next(a for a in args if isinstance(a, launch.Tiles))
        tried.append(tiles.BN)
        if largest < tiles.BN:
            raise OutOfResources(300_000, 200_000, "shared memory")

    monkeypatch.setattr(launch, "candidates", lambda *_: iter(candidates))
    monkeypatch.setattr(launch, "_launch_tiles", launch_tiles)
    monkeypatch.setattr(launch, "_chosen", {})
    schedule = LevelSchedule.from_edge_index(torch.tensor([[0], [1]]))
    graph = Graph(*(getattr(schedule, name) for name in Graph._fields))
    arguments: Any = (forward_kernel, [], graph, 1)
    largest = 32
    launch._launch(*arguments, H=7, PRECISION="fp32")
    assert tried == [64, 32, 32]  # twice without work, then with it
    launch._launch(*arguments, H=7, PRECISION="fp32")
    assert tried == [64, 32, 32, 32]
    largest = 0
    with pytest.raises(ValueError, match="shared memory in fp32, got 8; use backend='reference'"):
        launch._launch(*arguments, H=8, PRECISION="fp32")
    assert tried == [64, 32, 32, 32, 64, 32, 16]

    empty = LevelSchedule.from_edge_index(torch.zeros(2, 0, dtype=torch.long), 0)
    nothing = Graph(*(getattr(empty, name) for name in Graph._fields))
    launch._launch(forward_kernel, [], nothing, 1, H=9, PRECISION="fp32")
    assert len(tried) == 7  # no levels, no launch
