"""Batches that a GPU merges from stored sweeps are those that the CPU makes, number by number.

On a GPU, if there is one; and one test starts this file again in a process in which the kernels run
in Triton's interpreter, on the CPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Batch, Data

from dagnn import DAGNN, AddLevels, FlatGraphs, FlatLoader, LevelSchedule
from dagnn.graph import flat_batch, stored_sweeps
from dagnn.graph.padding import Room
from dagnn.graph.stored_sweeps import StoredSweeps, can_be_merged, make_sweeps, there_is_room
from tests.graph.strategies import dags
from tests.graph.test_flat import Operations, assert_same_schedule, graph_lists, path_graph
from tests.interpreter import CUDA, INTERPRETED, check_in_interpreter, kernels, outside

pytest.importorskip("triton", reason="Triton comes with PyTorch on Linux")

from tests.ops.compiler import Compiler

DEVICE = torch.device("cuda", 0) if CUDA else torch.device("cpu")
POISON = 1_000_000_007
EMPTY = Data(edge_index=torch.empty(2, 0, dtype=torch.long), num_nodes=0)
NODE = path_graph(1)
# Node 2 waits for the last level, and its reverse has more levels.
WAITING = Data(
    edge_index=torch.tensor([[0], [1]]),
    num_nodes=3,
    level=torch.tensor([0, 1, 1]),
    reverse_level=torch.tensor([2, 1, 0]),
)


def merged(test: Callable[..., Any]) -> Callable[..., Any]:
    """In the interpreter, and on a GPU."""
    return kernels(test) if INTERPRETED else pytest.mark.cuda(kernels(test))


def sweeps_of(flat: FlatGraphs) -> StoredSweeps:
    tables = flat._tables
    node_ptr, edge_ptr = tables.pointers["node"], tables.pointers["edge"]
    return make_sweeps(node_ptr, edge_ptr, tables.edges, tables.levels, tables.depths)


def with_sweeps(flat: FlatGraphs) -> FlatGraphs:
    """The data set on a GPU, or with the CPU in its place."""
    if CUDA:
        return flat.to(DEVICE)
    return flat._with(replace(flat._tables, sweeps=sweeps_of(flat)))


def path_and(count: int, length: int) -> list[Data]:
    return [path_graph(length)] + [NODE] * count


def no_host(*_: Any, **__: Any) -> None:
    raise AssertionError("the structure was made on the host")


def merge(flat: FlatGraphs, indices: Sequence[int], **options: Any) -> Batch:
    """A batch whose structure does not come from the host, and has no entry that is not written."""
    empty = torch.empty

    def poisoned(*args: Any, **kwargs: Any) -> Tensor:
        return empty(*args, **kwargs).fill_(POISON)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "empty", poisoned)
        patch.setattr(flat_batch, "_lay_out", no_host)
        return flat.batch(indices, **options)


def assert_equal(found: Batch, expected: Batch) -> None:
    assert set(found.keys()) == set(expected.keys())
    for key, wanted in expected:
        value = found[key]
        if isinstance(wanted, LevelSchedule):
            assert value.device == DEVICE
            assert_same_schedule(value.to("cpu"), wanted)
        elif isinstance(wanted, Tensor):
            assert value.device == DEVICE
            assert value.dtype == wanted.dtype, key
            assert value.cpu().equal(wanted), key
        else:
            assert value == wanted, key
    assert found.num_graphs == expected.num_graphs
    for name in ("_slice_dict", "_inc_dict"):
        one, other = (getattr(batch, name, {}) for batch in (found, expected))
        assert one.keys() == other.keys()
        for key in one:
            assert (one[key] is other[key] is None) or one[key].equal(other[key]), key


def check(flat: FlatGraphs, indices: Sequence[int], **options: Any) -> None:
    assert_equal(merge(with_sweeps(flat), indices, **options), flat.batch(indices, **options))


@outside
def test_everything_in_the_interpreter() -> None:
    check_in_interpreter("tests/graph/test_device_batch.py", "-m", "not cuda")


@merged
@settings(max_examples=25)
@given(graph_lists(), st.data())
def test_any_graphs_and_attributes(graphs: list[Data], data: st.DataObject) -> None:
    flat = FlatGraphs.from_data_list(graphs)
    indices = data.draw(st.lists(st.integers(-1, len(graphs) - 1), min_size=1, max_size=8))
    check(flat, indices, schedule=data.draw(st.booleans()))


@merged
@settings(max_examples=40)
@given(st.lists(dags(max_nodes=8), min_size=1, max_size=6), st.data())
def test_any_filler(graphs: list[Data], data: st.DataObject) -> None:
    """Also such as no padding asks for."""
    flat = FlatGraphs.from_data_list([path_graph(3), *graphs])
    indices = data.draw(st.lists(st.integers(0, len(graphs)), min_size=1, max_size=8))
    nodes, edges, more = (data.draw(st.integers(a, b)) for a, b in ((2, 70), (0, 150), (0, 3)))

    def room_for(*room: int) -> Room:
        free = nodes - min(edges, nodes // 2)
        return Room(
            room[0] + nodes,
            room[1] + edges,
            max(room[2], 2) + more,
            room[3] + free + 9 * more,
            room[4] + free + more,
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flat_batch, "room_for", room_for)
        check(flat, indices, schedule=data.draw(st.booleans()), padded=True)


@merged
@pytest.mark.parametrize("padded", [False, True])
def test_attributes_of_padded_batches(padded: bool) -> None:
    graphs = [
        path_graph(
            n,
            x=torch.randn(n, 2),
            parent_index=torch.arange(n),
            edge_head_index=torch.arange(1, n),
            root_index=torch.tensor([0]),
            y=n,
        )
        for n in (3, 1, 5)
    ]
    check(FlatGraphs.from_data_list(graphs), [2, 0, 1, 2], schedule=True, padded=padded)


@merged
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize(
    ("graphs", "indices"),
    [
        pytest.param([NODE], [0], id="one node"),
        pytest.param([NODE], [0] * 256, id="nodes"),
        pytest.param([EMPTY, NODE], [0, 0, 1, 0], id="graphs without nodes"),
        pytest.param([EMPTY], [0, 0], id="nothing"),
        pytest.param([path_graph(2)], [0] * 129, id="one graph many times"),
        pytest.param([path_graph(300)], [0], id="one graph"),
        pytest.param(path_and(6, 40), [1, 2, 0, 3, 4, 5, 6], id="a path among nodes"),
        pytest.param([WAITING, path_graph(4)], [0, 1, 0], id="levels of one's own"),
        pytest.param([path_graph(n) for n in range(1, 60)], range(59), id="paths"),
    ],
)
def test_shapes(graphs: list[Data], indices: list[int], padded: bool) -> None:
    graphs = [*graphs, path_graph(2)]  # without any edge, none can be padded
    graphs = [graph if "level" in graph else AddLevels()(graph.clone()) for graph in graphs]
    check(FlatGraphs.from_data_list(graphs), indices, schedule=True, padded=padded)


@merged
def test_a_very_deep_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    if INTERPRETED:  # which takes about as long for a program of any size
        monkeypatch.setattr("dagnn.graph.device_batch.BLOCK", 16384)
    check(FlatGraphs.from_data_list(path_and(3, 36_000)), [1, 0, 2], schedule=True, padded=True)


@merged
def test_many_levels_of_many_graphs() -> None:
    """The sums for them would be larger than the batch: the host makes it."""
    flat = FlatGraphs.from_data_list(path_and(150, 100))
    moved = with_sweeps(flat)
    indices = list(range(151))
    with pytest.raises(AssertionError, match="made on the host"):
        merge(moved, indices, schedule=True)
    assert_equal(moved.batch(indices, schedule=True), flat.batch(indices, schedule=True))
    check(flat, indices, schedule=False)  # without a schedule there are none


@merged
@pytest.mark.parametrize(("table", "kind", "row"), [("of_node", "node", 5), ("of_edge", "edge", 5)])
def test_offsets_of_more_than_31_bits(table: str, kind: str, row: int, tmp_path: Path) -> None:
    """A graph stored behind so many others that a row of its numbers begins beyond 2**31."""
    flat = FlatGraphs.from_data_list([path_graph(4)])
    tables, sweeps = flat._tables, sweeps_of(flat)
    own = getattr(sweeps, table)
    before = 2**31 // row
    shape = (*own.shape[:-1], before + own.size(-1))
    size = math.prod(shape)
    if CUDA and 5 * size > torch.cuda.mem_get_info()[0]:
        pytest.skip("needs more memory than this GPU has")
    if CUDA:
        stored = torch.empty(size, dtype=torch.int32, device=DEVICE)
    else:  # a file of which only what is written takes room
        stored = torch.from_file(str(tmp_path / "table"), True, size, dtype=torch.int32)
    stored = stored.view(shape)
    stored[..., before:] = own.to(DEVICE)
    behind = replace(sweeps.to(DEVICE), **{table: stored})
    pointers = tables.pointers | {kind: tables.pointers[kind] + before}
    moved = flat._with(replace(tables, device=DEVICE, sweeps=behind, pointers=pointers))
    expected = flat.batch([0, 0], schedule=True, padded=True)
    assert_equal(moved.batch([0, 0], schedule=True, padded=True), expected)


@merged
@settings(max_examples=10)
@given(graph_lists(), st.data())
def test_selections_keep_their_sweeps(graphs: list[Data], data: st.DataObject) -> None:
    flat = FlatGraphs.from_data_list(graphs)
    numbers = st.lists(st.integers(0, len(graphs) - 1), min_size=1, max_size=6)
    chosen = data.draw(numbers)
    some = with_sweeps(flat).select(chosen)
    if flat.keys():
        some, flat = some.without(flat.keys()[0]), flat.without(flat.keys()[0])
    indices = data.draw(st.lists(st.integers(0, len(chosen) - 1), min_size=1, max_size=6))
    found = merge(some, indices, schedule=True)
    assert_equal(found, flat.select(chosen).batch(indices, schedule=True))


@merged
def test_models_run_on_them() -> None:
    torch.manual_seed(0)
    graphs = [path_graph(n, x=torch.randn(n, 4)) for n in (3, 1, 5)]
    flat = FlatGraphs.from_data_list(graphs)
    model = DAGNN(4, 8, bidirectional=True, backend="reference")
    expected = model(flat.batch([2, 0, 2], schedule=True))
    found = model.to(DEVICE)(with_sweeps(flat).batch([2, 0, 2], schedule=True))
    torch.testing.assert_close(found.cpu(), expected)


@merged
@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("padded", [False, True])
def test_loaders(prefetch: int, padded: bool) -> None:
    graphs = [path_graph(1 + n % 5, x=torch.full((1 + n % 5, 2), n), y=n) for n in range(9)]
    flat = FlatGraphs.from_data_list(graphs)
    loader = FlatLoader(with_sweeps(flat), 4, shuffle=True, padded=padded, prefetch=prefetch)
    plain = FlatLoader(flat, 4, shuffle=True, padded=padded)
    for _ in range(20 if CUDA else 1):  # memory is reused
        for batch, expected in zip(loader, plain, strict=True):
            if CUDA:
                torch.cuda._sleep(100_000)  # let the loader run ahead
            assert_equal(batch, expected)


@pytest.mark.cuda
@pytest.mark.skipif(not CUDA, reason="needs a CUDA device")
def test_what_is_freed_early_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loader that is left while its stream is behind: memory that comes after it stays whole."""
    flat = FlatGraphs.from_data_list([path_graph(n % 50 + 2) for n in range(400)])
    cut = FlatGraphs.batch_and_buffers

    def late(self: FlatGraphs, *given: Any) -> Any:
        torch.cuda._sleep(200_000_000)
        return cut(self, *given)

    flat.to("cuda").batch(range(200), schedule=True)  # compiled
    torch.cuda.synchronize()
    monkeypatch.setattr(FlatGraphs, "batch_and_buffers", late)
    for _ in range(3):
        batches = iter(FlatLoader(flat.to("cuda"), 200, prefetch=2))
        next(batches)
        del batches
        taken = [torch.full((n,), 2**30, device="cuda") for n in (10_000, 100_000, 1_000_000)]
        torch.cuda.synchronize()
        assert all(bool((values == 2**30).all()) for values in taken)


@outside
@pytest.mark.parametrize("padded", [False, True])
def test_a_batch_takes_few_operations(padded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host's time for them, and for launches, is what a merged batch costs."""
    launched: list[Any] = []
    monkeypatch.setattr("dagnn.graph.device_batch.call", lambda *given: launched.append(given[0]))
    flat = with_sweeps(FlatGraphs.from_data_list([path_graph(n) for n in range(1, 21)]))
    asked = []
    for count in (2, 20):
        launched.clear()
        with Operations() as operations:
            flat.batch(range(count), schedule=True, padded=padded)
        assert len(launched) == 2
        asked.append(operations.names)
    assert asked[0] == asked[1]
    assert len(asked[0]) <= 20  # versions of PyTorch differ by a few


@outside
def test_the_compiler_takes_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The interpreter does not tell what it refuses; no GPU is needed."""
    compiler = Compiler()
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr("dagnn.graph.device_batch.call", compiler)
    flat = with_sweeps(FlatGraphs.from_data_list([path_graph(3), NODE]))
    for schedule in (False, True):
        for padded in (False, True):
            merge(flat, [1, 0], schedule=schedule, padded=padded)
    names = [kernel.name.split(".")[-1] for kernel in compiler.compiled]
    assert names == ["write_batch"] * 2 + ["place_levels", "write_batch"] * 2
    assert not any(kernel.spilled for kernel in compiler.compiled)
    assert all(kernel.shared < 2**12 for kernel in compiler.compiled)


def leave_free(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the GPU's memory, whatever the tests before left to PyTorch's allocator."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (size, 0))
    for kept in ("memory_reserved", "memory_allocated"):
        monkeypatch.setattr(torch.cuda, kept, lambda _: 0)


@pytest.mark.cuda
@pytest.mark.skipif(not CUDA, reason="needs a CUDA device")
def test_where_sweeps_are_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    flat = FlatGraphs.from_data_list([path_graph(3), NODE])
    assert not flat.stores_schedules
    moved = flat.to("cuda")
    assert moved.stores_schedules
    assert moved._tables.sweeps is not None
    assert moved._tables.sweeps.device == DEVICE
    assert moved.to("cuda")._tables.sweeps is moved._tables.sweeps
    assert moved.to("cpu")._tables.sweeps is None
    leave_free(100, monkeypatch)
    crowded = flat.to("cuda")
    assert crowded._tables.sweeps is None
    assert moved.select([0])._tables.sweeps is None
    expected = flat.batch([0, 1], schedule=True)
    assert_equal(crowded.batch([0, 1], schedule=True), expected)


def test_they_must_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    sweeps = sweeps_of(
        FlatGraphs.from_data_list([path_graph(3), NODE])
    )  # 3 levels and 1, in each direction
    numbers = sum(t.numel() for t in (sweeps.of_node, sweeps.of_edge, sweeps.of_level))
    depths = np.array([[3, 1], [3, 1]])  # in both directions
    for free, fits in ((8 * numbers, True), (8 * numbers - 1, False)):
        leave_free(free, monkeypatch)
        assert there_is_room(4, 2, depths, torch.device("cuda")) == fits
    assert there_is_room(10**15, 0, depths, torch.device("cpu"))


def test_only_gpus_merge(monkeypatch: pytest.MonkeyPatch) -> None:
    assert can_be_merged(torch.device("cuda"))
    assert not can_be_merged(torch.device("cpu"))
    monkeypatch.setattr(stored_sweeps, "find_spec", lambda _: None)
    assert not can_be_merged(torch.device("cuda"))
