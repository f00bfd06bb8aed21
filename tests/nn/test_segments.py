"""Sums, products and softmaxes over rows that share an index."""

from __future__ import annotations

import shutil

import pytest
import torch
import torch._inductor.config
from torch.testing import assert_close

from dagnn import DAGNN
from dagnn.nn.aggregators import AGGREGATORS, make_aggregator
from dagnn.nn.readout import READOUTS, Readout
from dagnn.nn.segments import segment_product, segment_softmax, segment_sum

INDEX = torch.tensor([0, 0, 2, 2, 2, 4])  # rows 1 and 3 receive nothing
MANY = 3000
HALF = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])


@pytest.mark.parametrize("scale", [1e3, -1e3, 1e30])
def test_large_scores_stay_finite(scale: float) -> None:
    score = (torch.arange(6.0) * scale).requires_grad_()
    alpha = segment_softmax(score, INDEX, 5)
    assert_close(segment_sum(alpha, INDEX, 5), torch.tensor([1.0, 0.0, 1.0, 0.0, 1.0]))
    (alpha * torch.arange(6.0)).sum().backward()
    assert score.grad is not None
    assert bool(score.grad.isfinite().all())


def test_a_product_with_zeros_has_the_right_gradient() -> None:
    value = torch.tensor([[0.0], [2.0], [3.0], [0.0], [0.0], [5.0]]).double().requires_grad_()
    out = segment_product(value, INDEX, 5)
    assert out.flatten().tolist() == [0.0, 0.0, 0.0, 0.0, 5.0]
    (grad,) = torch.autograd.grad(out.sum(), value)
    assert grad.flatten().tolist() == [2.0, 0.0, 0.0, 0.0, 0.0, 1.0]


@pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")
@pytest.mark.parametrize("readout", ["attention", "gated_sum"])
def test_one_graph_compiled(readout: str) -> None:
    """Its batch vector is a constant, by which inductor fails to scatter with several threads."""
    torch.compiler.reset()
    model = DAGNN(16, 32, readout=readout, readout_nodes="all")
    x, edge_index = torch.randn(4, 16), torch.tensor([[0, 0, 1, 2], [1, 2, 3, 3]])
    with torch._inductor.config.patch({"cpp.threads": 2}):
        assert_close(torch.compile(model)(x, edge_index), model(x, edge_index))


def test_one_set_is_as_several() -> None:
    score, value = torch.randn(5, dtype=torch.float64), torch.randn(5, 2, dtype=torch.float64)
    index = torch.zeros(5, dtype=torch.long)
    assert_close(segment_sum(value, index, 1), segment_sum(value, index, 2)[:1])
    assert_close(segment_softmax(score, index, 1), segment_softmax(score, index, 2))
    none = index[:0]
    assert torch.equal(segment_sum(value[:0], none, 1), torch.zeros(1, 2, dtype=torch.float64))
    assert segment_softmax(score[:0], none, 1).shape == (0,)


@HALF
def test_many_terms_in_half_precision(dtype: torch.dtype) -> None:
    """A sum of bfloat16 would end at 256, one of float16 at 2048."""
    ones, index = torch.ones(MANY, 1, dtype=dtype), torch.zeros(MANY, dtype=torch.long)
    total = segment_sum(ones, index, 2)
    assert total.dtype == dtype
    assert_close(total.float(), torch.tensor([[MANY], [0.0]]), rtol=4e-3, atol=0)
    weights = segment_softmax(ones.squeeze(), index, 2)
    assert weights.dtype == dtype
    assert float(weights.float().sum()) == pytest.approx(1, rel=4e-3)


# But for those that add nothing up.
@pytest.mark.parametrize("name", sorted({*AGGREGATORS} - {"max", "mul", "concat"}))
def test_messages_of_many_predecessors_under_autocast(name: str) -> None:
    types = 2 if name == "gated_edge_sum" else None
    aggregator = make_aggregator(name, 8, 8, edge_types=types)
    query, value = torch.randn(2, 8), 1 + torch.rand(MANY, 8)  # of two, since one has no scatter
    edge = aggregator.embed_edges(torch.arange(MANY) % 2, None)
    index = torch.zeros(MANY, dtype=torch.long)
    with torch.no_grad():
        exact = aggregator(query, value, index, edge)
        with torch.autocast("cpu", torch.bfloat16):
            found = aggregator(query, value, index, edge)
    assert (found - exact).norm() < 0.02 * exact.norm()


@pytest.mark.parametrize("mode", READOUTS)
def test_readouts_of_many_nodes_under_autocast(mode: str) -> None:
    readout, rows = Readout(8, mode), 1 + torch.rand(MANY, 8)
    index = torch.zeros(MANY, dtype=torch.long)
    with torch.no_grad():
        exact = readout(rows, index, 2)  # of two graphs, since one has no scatter
        with torch.autocast("cpu", torch.bfloat16):
            found = readout(rows, index, 2)
            half = readout(rows.bfloat16(), index, 2)
    assert (found - exact).norm() < 0.02 * exact.norm()
    assert (half - exact).norm() < 0.02 * exact.norm()
