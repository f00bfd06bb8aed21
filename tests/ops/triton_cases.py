"""What the tests of the GPU kernels run: DAGs of all shapes, and float64 to compare with."""

import copy
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from dagnn import DAGNN
from tests.nn.configurations import AGGREGATORS, IN, example_batch, make_graph, relabel

# Relative error, in the norm of each tensor, that the kernels must stay under.
BARS = {"fp32": 1e-5, "tf32": 1e-3, "bf16": 1e-2, "fp16": 1e-2}

# In which the reference computes what cancels.
ORDERS = 16

# A gradient this small beside all others together is zero but for float64's own rounding.
ZERO = 1e-12


def chain(nodes: int) -> Data:
    return make_graph([(v, v + 1) for v in range(nodes - 1)], nodes)


def star_in(leaves: int) -> Data:
    return make_graph([(u, leaves) for u in range(leaves)], leaves + 1)


def star_out(leaves: int) -> Data:
    return make_graph([(0, v) for v in range(1, leaves + 1)], leaves + 1)


def random_dag(nodes: int, edges: int) -> Data:
    """Edges of all lengths, labels out of order; some nodes may be isolated, some edges double."""
    ends = torch.randint(nodes, (edges, 2)).sort(1).values
    ends = ends[ends[:, 0] < ends[:, 1]]
    ends = torch.randperm(nodes)[ends]
    return make_graph([(int(u), int(v)) for u, v in ends], nodes)


def degrees() -> Data:
    """Nodes with 1 to 6 predecessors side by side, and predecessors with as many successors."""
    sources = 6
    edges = [(u, sources + d - 1) for d in range(1, sources + 1) for u in range(d)]
    return make_graph(edges, 2 * sources)


def layered(widths: list[int], degree: int) -> Data:
    """Levels of given widths; every node has random predecessors in the level before."""
    edges = []
    low = 0
    for width, next_width in pairwise(widths):
        pred = torch.randint(low, low + width, (next_width, degree)).tolist()
        low += width
        edges += [(u, low + v) for v, row in enumerate(pred) for u in row]
    return make_graph(edges, sum(widths))


def with_gaps() -> Data:
    """Levels given by the caller: later than need be, gaps between them, apart in depth."""
    data = make_graph([(0, 1), (1, 3), (0, 3), (2, 3), (4, 3)], 6)
    data.level = torch.tensor([0, 5, 2, 9, 7, 3])
    data.reverse_level = torch.tensor([6, 4, 1, 0, 1, 0])
    return data


# By name: a small graph for the interpreter, and one for a GPU.
SHAPES: dict[str, tuple[Callable[[], Data], Callable[[], Data]]] = {
    "chain": (lambda: chain(5), lambda: chain(150)),
    "star-in": (lambda: star_in(40), lambda: star_in(3000)),
    "star-out": (lambda: star_out(40), lambda: star_out(3000)),
    "random": (lambda: random_dag(16, 18), lambda: random_dag(3000, 6000)),
    "several-graphs": (example_batch, example_batch),
    "degrees": (degrees, degrees),
    "isolated-nodes": (lambda: make_graph([(4, 1)], 6), lambda: make_graph([(40, 1)], 600)),
    "one-node": (lambda: make_graph([], 1), lambda: make_graph([], 1)),
    "no-edges": (lambda: make_graph([], 3), lambda: make_graph([], 700)),
    "empty": (lambda: make_graph([], 0), lambda: make_graph([], 0)),
    "duplicate-edges": (
        lambda: make_graph([(1, 0)] * 3 + [(2, 0), (2, 1), (2, 1)], 3),
        lambda: make_graph([(1, 0)] * 301 + [(2, 0), (2, 1), (2, 1)], 3),
    ),
    "gaps-in-levels": (with_gaps, with_gaps),
}


def make_model(
    aggregator: str, cell: str, hidden: int, backend: str = "triton", **options: Any
) -> DAGNN:
    settings = {"num_layers": 1, "bidirectional": True, **AGGREGATORS[aggregator], **options}
    return DAGNN(IN, hidden, cell=cell, backend=backend, **settings)


class Run(NamedTuple):
    """All states of all layers and directions, and all gradients of a projection of them."""

    states: list[Tensor]
    gradients: dict[str, Tensor]


def projection(states: list[Tensor]) -> Tensor:
    """A fixed random one."""
    generator = torch.Generator().manual_seed(1)
    terms = [(h * torch.randn(h.shape, generator=generator).to(h)).sum() for h in states]
    return torch.stack(terms).sum()


def run(
    model: DAGNN,
    data: Data,
    loss: Callable[[list[Tensor]], Tensor] = projection,
    inputs_need_gradients: bool = True,
) -> Run:
    parameter = next(model.parameters())
    data = copy.copy(data).to(parameter.device)
    variables = {name: p for name, p in model.named_parameters() if p.requires_grad}
    for name in ("x", "edge_attr"):
        data[name] = data[name].detach().to(parameter.dtype).requires_grad_(inputs_need_gradients)
        if inputs_need_gradients and (name == "x" or model.edge_channels is not None):
            variables[name] = data[name]
    out = model.embed_nodes(data)
    states = [*out.forward[1:], *out.reverse[1:]]
    # Without nodes or edges, the reference's states may not depend on any of the variables.
    total = loss(states) + sum(variable.sum() * 0 for variable in variables.values())
    gradients = torch.autograd.grad(total, list(variables.values()))
    return Run([h.detach() for h in states], dict(zip(variables, gradients, strict=True)))


def in_float64(model: DAGNN, data: Data, **options: Any) -> Run:
    """The same by the reference."""
    exact = copy.deepcopy(model).double()
    exact.backend = "reference"
    return run(exact, data, **options)


def errors(found: Run, expected: Run) -> dict[str, float]:
    """Relative errors of all states and gradients, each in its norm.

    The gradients of one attention's parameters are measured against their common norm. They are
    all sums of the scores' gradients, which cancel within each softmax: the query's is exactly
    zero, and others can be small beside their own terms, and so beside their rounding.
    """
    out = {}
    for i, (a, b) in enumerate(zip(found.states, expected.states, strict=True)):
        out[f"states {i}"] = _relative(a, b, _norm([b]))
    total = _norm(list(expected.gradients.values()))
    for name, gradient in expected.gradients.items():
        layer, inside, _ = name.partition(".aggregator.")
        owner = layer + inside
        together = [gradient]
        if inside and f"{owner}key.weight" in expected.gradients:
            together = [g for key, g in expected.gradients.items() if key.startswith(owner)]
        norm = _norm(together)
        scale = total if norm < ZERO * total else norm
        out[name] = _relative(found.gradients[name], gradient, scale)
    return out


def reachable(
    model: DAGNN,
    data: Data,
    expected: Run,
    loss: Callable[[list[Tensor]], Tensor] = projection,
    **options: Any,
) -> dict[str, float]:
    """The largest errors of the reference, in the model's own precision, with the nodes and edges
    in any of several orders.

    Scores' gradients cancel within each softmax, and a parameter that is a single number may
    cancel in its sum over all nodes, so that little but rounding is left. How much is left is
    chance: it differs from order to order, and from one CPU's matrix products to another's.
    """
    plain = copy.deepcopy(model)
    plain.backend = "reference"
    out = errors(run(plain, data, loss, **options), expected)
    with torch.random.fork_rng(devices=[]):  # what a test draws next depends on no CPU's rounding
        torch.manual_seed(0)
        orders = [relabel(data) for _ in range(ORDERS - 1)]
    for other, name, edge_name in orders:

        def original(states: list[Tensor], name: Tensor = name) -> Tensor:
            return loss([h[name.to(h.device)] for h in states])

        found = run(plain, other, original, **options)
        for key, names in (("x", name), ("edge_attr", edge_name)):
            if key in found.gradients:
                gradient = found.gradients[key]
                found.gradients[key] = gradient[names.to(gradient.device)]
        states = [h[name.to(h.device)] for h in found.states]
        measured = errors(Run(states, found.gradients), expected)
        out = {key: max(e, measured[key]) for key, e in out.items()}
    return out


def _norm(tensors: list[Tensor]) -> float:
    return math.hypot(*(float(tensor.double().norm()) for tensor in tensors))


def _relative(found: Tensor, expected: Tensor, scale: float) -> float:
    difference = float((found.double() - expected.double()).norm())
    return difference / scale if scale else difference


def assert_near(found: Run, expected: Run, precision: str = "fp32") -> None:
    measured = errors(found, expected)
    # Not below the bar: so NaN fails too.
    failed = {name: e for name, e in measured.items() if not e < BARS[precision]}
    assert not failed, f"expected errors below {BARS[precision]}, got {failed}"


def assert_identical(a: Run, b: Run) -> None:
    assert all(torch.equal(x, y) for x, y in zip(a.states, b.states, strict=True))
    for name, gradient in a.gradients.items():
        assert torch.equal(gradient, b.gradients[name]), name


@contextmanager
def poisoned_buffers() -> Iterator[None]:
    """Uninitialised memory holds NaN."""

    def poisoned(make: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def wrapper(*args: Any, **kwargs: Any) -> Tensor:
            tensor = make(*args, **kwargs)
            return tensor.fill_(math.nan) if tensor.is_floating_point() else tensor

        return wrapper

    with pytest.MonkeyPatch.context() as patch:
        for owner, name in [
            (torch, "empty"), (torch, "empty_like"),
            (torch.Tensor, "new_empty"), (torch.Tensor, "new_empty_strided"),
        ]:  # fmt: skip
            patch.setattr(owner, name, poisoned(getattr(owner, name)))
        yield


@contextmanager
def products_in(precision: str, device: str) -> Iterator[None]:
    """PyTorch's own settings; they say nothing about the CPU, where the interpreter is told."""
    half = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision)
    if device == "cpu":
        with pytest.MonkeyPatch.context() as patch, torch.autocast("cpu", half, half is not None):
            patch.setattr("dagnn.nn.fused.product_precision", lambda _: precision)
            yield
        return
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    try:
        with torch.autocast(device, half, enabled=half is not None):
            yield
    finally:
        torch.set_float32_matmul_precision(before)


def check(
    model: DAGNN, data: Data, precision: str = "fp32", most: float = 2.0, **options: Any
) -> None:
    """States and every gradient against float64, with all buffers poisoned.

    Some gradients are sums that cancel until little but rounding is left, in whichever order they
    are added: where the reference in float32 comes near the bar, twice its error is allowed (see
    `reachable`), up to `most` times the bar.
    """
    device = next(model.parameters()).device.type
    with products_in(precision, device), poisoned_buffers():
        found = run(model, data, **options)
    expected = in_float64(model, data, **options)
    measured = errors(found, expected)
    bars = dict.fromkeys(measured, BARS[precision])
    if precision == "fp32" and not all(e < bars[name] for name, e in measured.items()):
        with products_in("fp32", device):
            limits = reachable(model, data, expected, **options)
        cancelling = {name: min(2 * limits[name], most * bars[name]) for name in found.gradients}
        bars |= {name: max(bars[name], limit) for name, limit in cancelling.items()}
    # Not below the bar: so NaN fails too.
    failed = {name: (e, bars[name]) for name, e in measured.items() if not e < bars[name]}
    assert not failed, f"expected errors below bars of {precision}, got (error, bar): {failed}"
