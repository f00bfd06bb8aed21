import threading
from itertools import chain

import pytest
import torch
from torch.utils.data import BatchSampler, SequentialSampler
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader

from dagnn import AddLevels, DepthBucketSampler, FlatGraphs, FlatLoader, LevelSchedule
from tests.graph.test_flat import assert_same, assert_same_schedule, needs_cuda, path_graph

GRAPHS = [path_graph(1 + n % 5, x=torch.full((1 + n % 5, 2), n), y=n) for n in range(23)]


@pytest.fixture(scope="module")
def flat() -> FlatGraphs:
    return FlatGraphs.from_data_list(GRAPHS)


def order(loader: FlatLoader) -> list[list[int]]:
    return [batch.y.tolist() for batch in loader]


@pytest.mark.parametrize("prefetch", [0, 1, 3])
@pytest.mark.parametrize("drop_last", [False, True])
def test_it_loads_what_pyg_loads(flat: FlatGraphs, prefetch: int, drop_last: bool) -> None:
    graphs = [AddLevels()(graph) for graph in GRAPHS]
    loader = FlatLoader(flat, 4, drop_last=drop_last, prefetch=prefetch)
    reference = DataLoader(graphs, 4, drop_last=drop_last)
    assert len(loader) == len(reference)
    for batch, expected in zip(loader, reference, strict=True):
        assert_same_schedule(batch.schedule, LevelSchedule.from_data(expected))
        del batch.schedule
        assert_same(batch, expected)


def test_without_schedule(flat: FlatGraphs) -> None:
    (batch,) = FlatLoader(flat, 23, schedule=False)
    assert "schedule" not in batch


@pytest.mark.parametrize("prefetch", [0, 2])
def test_an_epoch_is_a_function_of_seed_and_number(flat: FlatGraphs, prefetch: int) -> None:
    loader = FlatLoader(flat, 4, shuffle=True, seed=3, prefetch=prefetch)
    epochs = [order(loader) for _ in range(3)]
    assert all(sorted(chain.from_iterable(epoch)) == list(range(23)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]
    again = FlatLoader(flat, 4, shuffle=True, seed=3)
    for number in (2, 0, 1):
        again.set_epoch(number)
        assert order(again) == epochs[number]
    assert order(FlatLoader(flat, 4, shuffle=True, seed=4)) != epochs[0]


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("sampler", [False, True])
def test_it_goes_on_where_it_was_stopped(flat: FlatGraphs, prefetch: int, sampler: bool) -> None:
    def make() -> FlatLoader:
        if sampler:
            buckets = DepthBucketSampler(flat.depths, 4, pool=2)
            return FlatLoader(flat, batch_sampler=buckets, prefetch=prefetch)
        return FlatLoader(flat, 4, shuffle=True, prefetch=prefetch)

    whole = make()
    epochs = [order(whole), order(whole)]
    for stop in range(7):  # after so many batches of the first epoch
        loader = make()
        taken = []
        if stop:
            for batch in loader:
                taken.append(batch.y.tolist())
                if len(taken) == stop:
                    break
        state = loader.state_dict()
        resumed = make()
        resumed.load_state_dict(state)
        assert resumed.state_dict() == state
        if state["epoch"] == 0:
            assert taken + order(resumed) == epochs[0]
        assert order(resumed) == epochs[1]
    assert state == {"epoch": 1, "batch": 0}


def test_a_stopped_iteration_starts_again(flat: FlatGraphs) -> None:
    loader = FlatLoader(flat, 4, shuffle=True, prefetch=2)
    first = next(iter(loader)).y
    assert loader.epoch == 0
    assert order(loader)[0] == first.tolist()
    assert loader.epoch == 1


def test_lightning_finds_set_epoch(flat: FlatGraphs) -> None:
    loader = FlatLoader(flat, 4)
    loader.sampler.set_epoch(5)
    assert loader.epoch == 5
    assert DepthBucketSampler([1], 1).sampler.epoch == 0


def test_any_batch_sampler_will_do(flat: FlatGraphs) -> None:
    loader = FlatLoader(flat, batch_sampler=BatchSampler(SequentialSampler(GRAPHS), 5, False))
    assert len(loader) == 5
    assert order(loader)[-1] == order(loader)[-1] == [20, 21, 22]


@pytest.mark.parametrize("prefetch", [0, 2])
def test_errors_reach_the_caller(flat: FlatGraphs, prefetch: int) -> None:
    loader = FlatLoader(flat, batch_sampler=[[0], [99], [1]], prefetch=prefetch)
    batches = iter(loader)
    assert next(batches).y.tolist() == [0]
    with pytest.raises(IndexError, match="got 99"):
        next(batches)


def test_no_thread_outlives_its_iteration(flat: FlatGraphs) -> None:
    before = set(threading.enumerate())  # a test that was interrupted may have left one

    def threads() -> list[str]:
        new = set(threading.enumerate()) - before
        return [t.name for t in new if t.name == "FlatLoader"]

    iterator = iter(FlatLoader(flat, 2, prefetch=1))
    next(iterator)
    assert threads()
    iterator.close()  # type: ignore[attr-defined]
    assert not threads()
    list(FlatLoader(flat, 2, prefetch=1))
    assert not threads()


def test_bad_arguments(flat: FlatGraphs) -> None:
    for arguments, match in (
        ({}, "either batch_size or batch_sampler"),
        ({"batch_size": 2, "batch_sampler": [[0]]}, "either batch_size or batch_sampler"),
        ({"batch_sampler": [[0]], "shuffle": True}, "as arguments of the batch_sampler"),
        ({"batch_size": 0}, "batch_size >= 1, got 0"),
        ({"batch_size": 2, "prefetch": -1}, "prefetch >= 0, got -1"),
    ):
        with pytest.raises(ValueError, match=match):
            FlatLoader(flat, **arguments)
    with pytest.raises(ValueError, match="epoch >= 0, got -1"):
        FlatLoader(flat, 2).set_epoch(-1)


def test_what_is_no_data_set(flat: FlatGraphs, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TypeError, match=r"expected a FlatGraphs, got list; make one with"):
        FlatLoader([flat[0]], 2)  # type: ignore[arg-type]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="expected a device that is there, got 'cuda'"):
        FlatLoader(flat, 2, device="cuda")


def test_repr() -> None:
    flat = FlatGraphs.from_data_list([Data(edge_index=torch.tensor([[0], [1]]), num_nodes=2)])
    assert repr(FlatLoader(flat, 2)) == (
        "FlatLoader(FlatGraphs(num_graphs=1, num_nodes=2, num_edges=1, attributes=[]), 1 batches, "
        "device=cpu, schedule=True, prefetch=0)"
    )


@needs_cuda
@pytest.mark.cuda
@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("resident", [False, True])
def test_on_a_gpu(flat: FlatGraphs, prefetch: int, resident: bool) -> None:
    graphs = flat.to("cuda") if resident else flat
    loader = FlatLoader(graphs, 4, shuffle=True, device="cuda", prefetch=prefetch)
    plain = FlatLoader(flat, 4, shuffle=True)
    for _ in range(20):  # memory is reused
        for batch, expected in zip(loader, plain, strict=True):
            torch.cuda._sleep(100_000)  # let the loader run ahead
            assert_same_schedule(batch.schedule.to("cpu"), expected.schedule)
            moved = batch.cpu()
            moved.schedule = expected.schedule
            assert_same(moved, expected)


@needs_cuda
@pytest.mark.cuda
def test_nothing_waits_for_the_gpu(flat: FlatGraphs) -> None:
    loader = FlatLoader(flat.to("cuda"), 4, prefetch=0)
    list(loader)  # allocates
    torch.cuda.set_sync_debug_mode("error")
    try:
        assert len(list(loader)) == 6
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_graphs_of_a_batch_are_told_without_making_it() -> None:
    flat = FlatGraphs.from_data_list(
        [Data(edge_index=torch.empty(2, 0, dtype=torch.long), num_nodes=1, y=i) for i in range(9)]
    )
    loader = FlatLoader(flat, batch_size=2, shuffle=True, seed=4)
    told = [[loader.graphs_of(epoch, i) for i in range(len(loader))] for epoch in range(2)]
    assert [[batch.y.tolist() for batch in loader] for _ in range(2)] == told
