from collections import Counter
from itertools import chain

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader

from dagnn import DepthBucketSampler, GraphBatchSampler


def samplers(kind: str, depths: list[int], world_size: int, **options: int) -> list:
    if kind == "depth":
        made = [DepthBucketSampler, depths]
    else:
        made = [GraphBatchSampler, len(depths)]
    return [made[0](made[1], rank=r, world_size=world_size, **options) for r in range(world_size)]


kinds = st.sampled_from(["depth", "random"])
depth_lists = st.lists(st.integers(0, 9), max_size=60)


@given(kinds, depth_lists, st.integers(1, 8), st.integers(1, 7), st.integers(1, 5))
def test_ranks_share_every_graph_once(
    kind: str, depths: list[int], world_size: int, batch_size: int, pool: int
) -> None:
    options = {"pool": pool} if kind == "depth" else {}
    ranks = samplers(kind, depths, world_size, batch_size=batch_size, **options)
    batches = [list(sampler) for sampler in ranks]
    assert {len(b) for b in batches} == {len(ranks[0])}
    assert all(1 <= len(batch) <= batch_size for b in batches for batch in b)
    count = Counter(graph for b in batches for batch in b for graph in batch)
    assert set(count) == set(range(len(depths)))
    repeated = sum(count.values()) - len(depths)
    left = len(depths) % (batch_size * world_size)
    assert repeated == (world_size - left if 0 < left < world_size else 0)
    for step in zip(*batches, strict=True):  # the work of a round is shared evenly
        sizes = [len(batch) for batch in step]
        assert max(sizes) - min(sizes) <= 1


@given(kinds, depth_lists, st.integers(1, 8), st.integers(1, 7))
def test_drop_last_keeps_full_batches_only(
    kind: str, depths: list[int], world_size: int, batch_size: int
) -> None:
    ranks = samplers(kind, depths, world_size, batch_size=batch_size, drop_last=True)
    batches = [list(sampler) for sampler in ranks]
    expected = len(depths) // (batch_size * world_size)
    assert [len(b) for b in batches] == [len(s) for s in ranks] == [expected] * world_size
    graphs = [graph for b in batches for batch in b for graph in batch]
    assert all(len(batch) == batch_size for b in batches for batch in b)
    assert len(set(graphs)) == len(graphs)


@pytest.mark.parametrize("kind", ["depth", "random"])
def test_an_epoch_is_a_function_of_seed_and_number(kind: str) -> None:
    depths = list(range(200))

    def epoch(seed: int, number: int) -> list[list[int]]:
        (sampler,) = samplers(kind, depths, 1, batch_size=10, seed=seed)
        sampler.set_epoch(number)
        return list(sampler)

    assert epoch(0, 0) == epoch(0, 0)
    assert epoch(0, 0) != epoch(0, 1)
    assert epoch(0, 0) != epoch(1, 0)
    assert epoch(0, 1) != epoch(1, 0)
    (sampler,) = samplers(kind, depths, 1, batch_size=10)
    assert [list(sampler) for _ in range(3)] == [epoch(0, n) for n in range(3)]
    next(iter(sampler))  # an epoch that is not finished does not count
    assert list(sampler) == epoch(0, 3)


def test_batches_without_shuffling() -> None:
    sampler = GraphBatchSampler(7, 3, shuffle=False)
    assert list(sampler) == list(sampler) == [[0, 1, 2], [3, 4, 5], [6]]


def test_batches_hold_similar_depths_and_change_every_epoch() -> None:
    depths = np.random.default_rng(0).geometric(0.03, 20_000)
    sampler = DepthBucketSampler(torch.from_numpy(depths), 80)
    mates: list[set[int]] = []
    deepest = int(depths.argmax())
    for _ in range(3):
        batches = list(sampler)
        levels = sum(int(depths[batch].max()) for batch in batches)
        mates.append(next(set(batch) for batch in batches if deepest in batch))
        at_random = sum(int(depths[batch].max()) for batch in GraphBatchSampler(20_000, 80))
        assert at_random > 3.5 * levels
        first = [int(depths[batch].max()) for batch in batches[:50]]
        assert sorted(first) not in (first, first[::-1])  # deep and shallow batches are mixed
    assert len(mates[0] & mates[1]) < 70  # with one pool it would always be the same 80


def test_ranks_work_on_similar_depths_at_the_same_time() -> None:
    depths = list(range(400))
    ranks = samplers("depth", depths, 4, batch_size=5, pool=80)
    for step in zip(*ranks, strict=True):
        graphs = [graph for batch in step for graph in batch]
        assert max(graphs) - min(graphs) == 19


def test_the_process_group_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    sampler = GraphBatchSampler(8, 2, shuffle=False)
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 1)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    assert len(sampler) == 2
    assert list(sampler) == [[2, 3], [6, 7]]


@pytest.mark.parametrize("workers", [0, 1])
def test_pyg_loads_with_it(workers: int) -> None:
    graphs = [Data(num_nodes=n + 1, x=torch.full((n + 1,), n)) for n in range(10)]
    sampler = DepthBucketSampler(range(1, 11), 3)
    loader = DataLoader(graphs, batch_sampler=sampler, num_workers=workers)
    seen = [sorted(batch.x.unique().tolist()) for batch in loader]
    assert len(loader) == 4
    assert sorted(chain.from_iterable(seen)) == list(range(10))
    assert sampler.epoch == 1


def test_bad_arguments() -> None:
    for changed, match in (
        ({"batch_size": 0}, "batch_size >= 1, got 0"),
        ({"seed": -1}, "seed >= 0, got -1"),
        ({"rank": 0}, "both rank and world_size"),
        ({"rank": 2, "world_size": 2}, "0 <= rank < world_size, got rank=2"),
        ({"pool": 0}, "pool >= 1, got 0"),
        ({"depths": [[1, 2]]}, r"one depth per graph, got int64 of shape \[1, 2\]"),
        ({"depths": ["a"]}, "one depth per graph"),
    ):
        with pytest.raises(ValueError, match=match):
            DepthBucketSampler(**{"depths": [1, 2], "batch_size": 2, **changed})
    with pytest.raises(ValueError, match="num_graphs >= 0, got -1"):
        GraphBatchSampler(-1, 2)
    with pytest.raises(ValueError, match="epoch >= 0, got -1"):
        GraphBatchSampler(1, 2).set_epoch(-1)
