"""The CPU's level loop against the reference: states and every gradient, in both precisions."""

import copy
import math
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data

from dagnn import DAGNN, LevelSchedule
from dagnn.ops import cpu
from tests.graph.strategies import dags
from tests.nn.configurations import make_graph
from tests.ops.triton_cases import (
    SHAPES,
    Run,
    assert_identical,
    chain,
    check,
    errors,
    in_float64,
    layered,
    make_model,
    poisoned_buffers,
    random_dag,
    reachable,
    run,
)

EDGES = ("attention", "attention-types", "attention-features", "attention-tied")
COMBINATIONS = list(product((*EDGES, "gated_sum"), ("gru", "linear")))
every_combination = pytest.mark.parametrize(("aggregator", "cell"), COMBINATIONS)
# Between them, both aggregators and both cells, for what does not depend on the combination.
two_combinations = pytest.mark.parametrize(
    ("aggregator", "cell"), [("attention-types", "gru"), ("gated_sum", "linear")]
)


@contextmanager
def threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small graphs gain nothing from more, and the tests themselves run side by side."""
    with threads(1):
        yield


def make_cpu_model(aggregator: str, cell: str, hidden: int = 7, **options: Any) -> DAGNN:
    return make_model(aggregator, cell, hidden, "cpu", **{"num_layers": 2, **options})


def run_poisoned(model: DAGNN, data: Data) -> Run:
    with poisoned_buffers():
        return run(model, data)


def assert_exact(model: DAGNN, data: Data) -> None:
    """In double precision, nothing but the order of sums may differ."""
    found = run_poisoned(model.double(), data)
    wrong = {name: e for name, e in errors(found, in_float64(model, data)).items() if not e < 1e-10}
    assert not wrong, f"expected errors below 1e-10, got {wrong}"


def assert_single(model: DAGNN, data: Data) -> None:
    """In single precision: the bar, except for gradients that even the reference cannot reach."""
    check(model, data, most=math.inf)


@two_combinations
@pytest.mark.parametrize("shape", SHAPES)
def test_the_order_of_nodes_changes_nothing_but_rounding(
    shape: str, aggregator: str, cell: str
) -> None:
    """Else a bar that follows the reference's errors in several orders would hide others."""
    data = SHAPES[shape][0]()
    model = make_cpu_model(aggregator, cell).double()
    drawn = torch.get_rng_state()
    limits = reachable(model, data, in_float64(model, data))
    assert max(limits.values()) < 1e-11
    assert torch.equal(torch.get_rng_state(), drawn)


def wide_and_narrow() -> Data:
    """Every way through the loop: wide levels first and last, long and short runs of narrow ones
    between them; more rows in a level than are shared, and rows left over by four and by two."""
    widths = [70, 150, 3, 5, 130, *[1, 2, 3, 4, 6, 7, 11, 64], 65, 2, 140]
    return layered(widths, degree=2)


@every_combination
@pytest.mark.parametrize("bidirectional", [False, True])
def test_every_combination(aggregator: str, cell: str, bidirectional: bool) -> None:
    model = make_cpu_model(aggregator, cell, bidirectional=bidirectional)
    assert_exact(model, random_dag(60, 120))


@two_combinations
@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape(shape: str, aggregator: str, cell: str) -> None:
    small, large = SHAPES[shape]
    model = make_cpu_model(aggregator, cell)
    for data in (small(), large()):
        assert_exact(model, data)


@every_combination
@settings(max_examples=10)
@given(graph=dags(max_nodes=20))
def test_random_dags(graph: Data, aggregator: str, cell: str) -> None:
    data = make_graph(graph.edge_index.t().tolist(), graph.num_nodes)
    assert_exact(make_cpu_model(aggregator, cell, hidden=5), data)


@two_combinations
@pytest.mark.parametrize("hidden", [1, 7, 15, 16, 17, 64, 300, 501])
def test_every_width(hidden: int, aggregator: str, cell: str) -> None:
    data = wide_and_narrow()
    model = make_cpu_model(aggregator, cell, hidden, num_layers=1 if hidden > 64 else 2)
    assert_single(model, data)
    assert_exact(model, data)


@two_combinations
def test_single_precision_on_deep_graphs(aggregator: str, cell: str) -> None:
    model = make_cpu_model(aggregator, cell, 20)
    for data in (chain(300), random_dag(1000, 2000)):
        assert_single(model, data)


@two_combinations
@pytest.mark.parametrize("count", [1, 2])
def test_two_runs_are_identical(count: int, aggregator: str, cell: str) -> None:
    model, data = make_cpu_model(aggregator, cell, 20), wide_and_narrow()
    with threads(count):
        assert_identical(run(model, data), run(model, data))


@two_combinations
@pytest.mark.parametrize("count", [2, 3])
def test_several_threads(count: int, aggregator: str, cell: str) -> None:
    with threads(count):
        assert_exact(make_cpu_model(aggregator, cell, 20), wide_and_narrow())


def test_scores_far_apart_do_not_overflow() -> None:
    model = make_cpu_model("attention-types", "gru")
    data = random_dag(60, 200)
    with torch.no_grad():
        for layers in (model.forward_layers, model.reverse_layers):
            for layer in layers:
                layer.aggregator.edge_embedding.weight.mul_(1e3)
    assert_exact(model, data)


def test_values_that_are_not_numbers_are_not_hidden() -> None:
    model = make_cpu_model("attention", "gru")
    data = make_graph([(0, 1), (1, 2), (3, 2)], 5)
    data.x[1] = math.nan
    forward = model.embed_nodes(data.x.float(), data.edge_index).forward[-1]
    assert forward.isnan().any(1).tolist() == [False, True, True, False, False]


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_no_number_at_an_edge_is_seen(value: float) -> None:
    """Also where a node has a single predecessor, whose weight is 1 whatever its score."""
    model = make_cpu_model("attention-features", "gru")
    data = make_graph([(0, 1), (1, 2)], 4)
    data.edge_attr[0, 0] = value
    plain = copy.deepcopy(model)
    plain.backend = "reference"
    found, expected = run(model, data), run(plain, data)
    for a, b in zip(found.states, expected.states, strict=True):
        assert torch.equal(a.isnan(), b.isnan())
    assert found.states[0].isnan().any(1).tolist() == [False, True, True, False]
    assert bool(found.gradients["edge_attr"].isnan().any())


@given(widths=st.lists(st.integers(0, 2 * cpu.NARROW), max_size=60), split=st.integers(0, 60))
def test_turns_visit_every_level_once_and_in_order(widths: list[int], split: int) -> None:
    """Two directions of different depth; the shallower one ends in empty levels."""
    other = widths[:split] + [0] * (len(widths) - len(widths[:split]))
    level_ptr = torch.tensor([[0, *np.cumsum(row).tolist()] for row in (widths, other)])
    visited: list[list[int]] = [[], []]
    for turn in cpu._turns(level_ptr):
        for d, level, lo, hi in turn.wide:
            assert [lo, hi] == level_ptr[d, level : level + 2].tolist()
            visited[d].append(level)
        for d in range(2):
            run_levels = range(turn.first[d], turn.last[d])
            assert all((widths, other)[d][level] <= cpu.NARROW for level in run_levels)
            visited[d] += run_levels
    assert visited == [list(range(len(widths)))] * 2


def test_a_long_path_takes_one_turn() -> None:
    schedule = LevelSchedule.from_edge_index(chain(5000).edge_index)
    assert len(cpu._turns(schedule.level_ptr)) == 1
