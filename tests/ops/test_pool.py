"""Pooling against a loop over graphs, whose gradients are autograd's."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from dagnn.ops.pool import MODES, pool
from tests.interpreter import CUDA, check_in_interpreter, kernels, outside

BACKENDS = ["torch", "cpu", pytest.param("triton", marks=kernels)]


class Rows(NamedTuple):
    """Arguments of :func:`pool`."""

    x: Tensor | None
    states: list[Tensor]
    nodes: list[Tensor]
    rank: Tensor
    batch: Tensor | None
    batch_size: int

    def differentiable(self) -> list[Tensor]:
        return self.states if self.x is None else [self.x, *self.states]


def make(
    sizes: list[int] | None = None,
    directions: int = 2,
    layers: int = 2,
    width: int | None = 5,
    hidden: int = 3,
    every: bool = False,
    dtype: torch.dtype = torch.float32,
    backend: str = "torch",
) -> Rows:
    """Random rows of graphs with so many nodes each; without sizes, one graph and no batch."""
    device = "cuda" if backend == "triton" and CUDA else "cpu"
    num_nodes = sum(sizes) if sizes is not None else 7

    def rows(*shape: int) -> Tensor:
        # Few different values, so that maxima are often attained more than once.
        values = torch.randint(-3, 4, shape, device=device)
        return values.to(dtype).requires_grad_()

    batch = None
    if sizes is not None:
        batch = torch.repeat_interleave(torch.tensor(sizes)).to(device)
    rank = torch.stack([torch.randperm(num_nodes) for _ in range(directions)])
    nodes = [(torch.rand(num_nodes) < 0.6).nonzero().view(-1) for _ in range(directions)]
    return Rows(
        None if width is None else rows(num_nodes, width),
        [rows(directions, num_nodes, hidden) for _ in range(layers)],
        [] if every else [node.to(device) for node in nodes],
        rank.to(device),
        batch,
        1 if sizes is None else len(sizes),
    )


def oracle(given: Rows, mode: str) -> Tensor:
    """Graph by graph and direction by direction."""
    out = []
    for graph in range(given.batch_size):
        for d, rank in enumerate(given.rank):
            listed = given.nodes[d].tolist() if given.nodes else range(len(rank))
            own = [
                v for v in listed if (0 if given.batch is None else int(given.batch[v])) == graph
            ]
            pieces = [] if given.x is None else [given.x[own]]
            rows = torch.cat(pieces + [h[d][rank[own]] for h in given.states], 1)
            if not own:
                out.append(rows.new_zeros(rows.size(1)))
            else:
                out.append({"max": rows.amax, "mean": rows.mean, "sum": rows.sum}[mode](0))
    return torch.stack(out).view(given.batch_size, -1)


def check(given: Rows, mode: str, backend: str) -> None:
    """Values and gradients, the latter of both signs."""
    out, expected = pool(*given, mode, backend), oracle(given, mode)
    assert_close(out, expected)
    grad = torch.randn_like(out)
    inputs = given.differentiable()
    expected = expected + 0 * sum(tensor.sum() for tensor in inputs)
    for found, right in zip(
        torch.autograd.grad(out, inputs, grad),
        torch.autograd.grad(expected, inputs, grad),
        strict=True,
    ):
        assert_close(found, right)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("every", [False, True])
@pytest.mark.parametrize("sizes", [None, [4, 1, 6], [3, 0, 5, 0, 0], [0, 2], [0, 0]])
def test_pool_is_the_loop_over_graphs(
    sizes: list[int] | None, every: bool, directions: int, mode: str, backend: str
) -> None:
    check(make(sizes, directions, every=every, backend=backend), mode, backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("width", "hidden", "layers"), [(None, 4, 1), (None, 3, 2), (1, 70, 1), (70, 1, 3), (65, 66, 2)]
)
def test_any_width_and_states_alone(
    width: int | None, hidden: int, layers: int, mode: str, backend: str
) -> None:
    check(make([5, 9], 2, layers, width, hidden, backend=backend), mode, backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("sizes", [[700, 0, 401], [1, 2] * 15])
def test_many_nodes_and_many_graphs(sizes: list[int], mode: str, backend: str) -> None:
    # Graphs of hundreds of rows are split between programs, and put together again.
    check(make(sizes, every=True, backend=backend), mode, backend)
    check(make(sizes, every=False, backend=backend), mode, backend)
    if len(sizes) < 9:
        check(make(sizes, every=True, backend=backend)._replace(batch=None), mode, backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("length", [3, 600])
def test_nan_and_infinity(length: int, backend: str) -> None:
    given = make([length], 1, 1, 2, 2, every=True, backend=backend)
    assert given.x is not None
    with torch.no_grad():
        given.x[:, 0] = -torch.inf
        given.x[1, 1] = torch.nan
        given.states[0][0, 0, 0] = torch.inf
    out = pool(*given, "max", backend)
    assert_close(out, oracle(given, "max"), equal_nan=True)
    (grad,) = torch.autograd.grad(out.sum(), [given.x])
    assert_close(grad[:, 0], torch.full_like(grad[:, 0], 1 / length))
    assert grad[:, 1].tolist() == [0.0, 1.0, *[0.0] * (length - 2)]


@pytest.mark.parametrize("backend", BACKENDS)
def test_ties_share_a_gradient_of_either_sign(backend: str) -> None:
    given = make([3], 1, 1, 2, 1, every=True, backend=backend)
    x = torch.tensor([[1.0, 2.0], [1.0, 2.0], [0.0, 2.0]], device=given.rank.device)
    x.requires_grad_()
    out = pool(x, given.states, *given[2:], "max", backend)[:, :2]
    out.backward(torch.tensor([[-1.0, 3.0]], device=x.device))
    assert x.grad is not None
    assert x.grad.tolist() == [[-0.5, 1.0], [-0.5, 1.0], [0.0, 1.0]]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("frozen", ["x", "states"])
def test_only_some_inputs_need_gradients(frozen: str, backend: str) -> None:
    given = make([4, 2], backend=backend)
    assert given.x is not None
    rest = given.states if frozen == "x" else [given.x]
    for tensor in [given.x] if frozen == "x" else given.states:
        tensor.requires_grad_(False)
    grad = torch.randn(2, 22, device=given.rank.device)
    for found, right in zip(
        torch.autograd.grad(pool(*given, "max", backend), rest, grad),
        torch.autograd.grad(oracle(given, "max"), rest, grad),
        strict=True,
    ):
        assert_close(found, right)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("mode", MODES)
def test_features_of_another_dtype_are_promoted(mode: str, backend: str) -> None:
    given = make([3, 4], backend=backend)
    assert given.x is not None
    half = given._replace(x=given.x.detach().bfloat16().requires_grad_())
    assert half.x is not None
    out, right = pool(*half, mode, backend), pool(*given, mode, backend)
    assert out.dtype == torch.float32
    assert_close(out, right)
    out.sum().backward()
    right.sum().backward()
    assert half.x.grad is not None
    assert half.x.grad.dtype == torch.bfloat16
    assert_close(half.x.grad, given.x.grad, check_dtype=False, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("every", [False, True])
def test_threads_share_graphs(every: bool, count: int, mode: str) -> None:
    """Fewer graphs than threads, more of them, and a gradient whose rows are not contiguous."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        for sizes in ([9], [3, 0, 50, 1, 7], [2] * 40):
            given = make(sizes, every=every)
            check(given, mode, "cpu")
            out = pool(*given, mode, "cpu")
            grad = torch.randn(out.size(1), out.size(0)).t()
            found, right = (
                torch.autograd.grad(out, given.differentiable(), g, retain_graph=True)
                for g in (grad, grad.contiguous())
            )
            assert all(torch.equal(a, b) for a, b in zip(found, right, strict=True))
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("backend", BACKENDS)
def test_equal_inputs_give_equal_bits(backend: str) -> None:
    given = make([40, 900], every=True, backend=backend)
    given = given._replace(
        x=torch.randn(940, 5, device=given.rank.device, requires_grad=True),
        states=[torch.randn_like(h).requires_grad_() for h in given.states],
    )

    def step() -> list[Tensor]:
        out = pool(*given, "mean", backend)
        return [out, *torch.autograd.grad(out.square().sum(), given.differentiable())]

    assert all(torch.equal(a, b) for a, b in zip(step(), step(), strict=True))


@pytest.mark.parametrize("backend", ["torch", "cpu"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("sizes", [None, [3, 0, 2, 0]])
def test_gradcheck(sizes: list[int] | None, mode: str, backend: str) -> None:
    given = make(sizes, dtype=torch.float64)
    # Without ties, where the maximum is differentiable.
    count = sum(tensor.numel() for tensor in given.differentiable())
    values = torch.randperm(count, dtype=torch.float64)
    inputs = [
        part.view_as(tensor).clone().requires_grad_()
        for part, tensor in zip(
            values.split([tensor.numel() for tensor in given.differentiable()]),
            given.differentiable(),
            strict=True,
        )
    ]

    def run(x: Tensor, *states: Tensor) -> Tensor:
        return pool(x, list(states), *given[2:], mode, backend)

    assert torch.autograd.gradcheck(run, inputs)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("sizes", [None, [3, 0, 2, 0]])
def test_opcheck(sizes: list[int] | None, mode: str, backend: str) -> None:
    given = make(sizes, backend=backend)
    torch.library.opcheck(torch.ops.dagnn.pool, (*given, mode, backend, True))
    alone = given._replace(x=None, nodes=[])
    torch.library.opcheck(torch.ops.dagnn.pool, (*alone, mode, backend, True))


@pytest.mark.parametrize("backend", ["torch", "cpu"])
@pytest.mark.parametrize("mode", MODES)
def test_compile_and_export_without_breaks(mode: str, backend: str) -> None:
    given = make([3, 0, 2])
    compiled = torch.compile(pool, fullgraph=True, backend="aot_eager", dynamic=True)
    for one in (given, make([4, 4, 1, 0])):
        inputs = one.differentiable()
        out, right = compiled(*one, mode, backend), pool(*one, mode, backend)
        assert_close(out, right)
        grad = torch.randn_like(out)
        found = torch.autograd.grad(out, inputs, grad)
        assert_close(found, torch.autograd.grad(right, inputs, grad))

    class Pool(torch.nn.Module):
        def forward(self, x: Tensor, states: list[Tensor]) -> Tensor:
            return pool(x, states, *given[2:], mode, backend)

    with torch.no_grad():
        arguments = (given.x, given.states)
        program = torch.export.export(Pool(), arguments)
        assert_close(program.module()(*arguments), pool(*given, mode, backend))


def test_a_call_that_is_differentiated_must_have_been_told() -> None:
    given = make([3])
    with pytest.raises(RuntimeError, match="expected save=True"):
        torch.ops.dagnn.pool(*given, "max", "torch", False)


@outside
def test_kernels_in_the_interpreter() -> None:
    check_in_interpreter(__file__, "-k", "triton")
