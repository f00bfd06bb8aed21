import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Batch, Data

from dagnn import AddLevels, CycleError, LevelSchedule, topological_levels
from dagnn.graph.schedule import Sweep
from tests.graph.strategies import dags

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
DIAMOND = torch.tensor([[0, 1, 0, 2], [1, 3, 2, 3]])
NO_EDGES = torch.empty(2, 0, dtype=torch.long)
TENSORS = Sweep.__dataclass_fields__.keys()


def check(sweep: Sweep, edge_index: Tensor, levels: Tensor) -> None:
    """Compare a sweep with its definition, read off node by node and edge by edge."""
    edges, levels = edge_index.t().tolist(), levels.tolist()
    n = len(levels)
    lists = {name: getattr(sweep, name).tolist() for name in TENSORS}
    assert all(getattr(sweep, name).dtype == torch.long for name in TENSORS)
    assert (sweep.num_nodes, sweep.num_edges) == (n, len(edges))

    order = sorted(range(n), key=lambda v: (levels[v], v))
    assert lists["order"] == order
    assert [order[p] for p in lists["rank"]] == list(range(n))

    used = sorted(set(levels))
    starts = [sum(level < i for level in levels) for i in used] + [n]
    assert lists["level_ptr"][: len(starts)] == starts
    assert set(lists["level_ptr"][len(starts) :]) <= {n}  # as deep as the other direction

    assert sorted(lists["pred_edge"]) == list(range(len(edges)))
    assert sorted(lists["succ_slot"]) == list(range(len(edges)))
    for p, v in enumerate(order):
        slots = range(lists["pred_ptr"][p], lists["pred_ptr"][p + 1])
        incoming = [e for e, (_, head) in enumerate(edges) if head == v]
        assert [lists["pred_edge"][s] for s in slots] == incoming
        assert [order[lists["pred"][s]] for s in slots] == [edges[e][0] for e in incoming]

        places = range(lists["succ_ptr"][p], lists["succ_ptr"][p + 1])
        outgoing = [e for e, (tail, _) in enumerate(edges) if tail == v]
        found = [lists["pred_edge"][lists["succ_slot"][k]] for k in places]
        assert sorted(found) == outgoing
        assert [order[lists["succ"][k]] for k in places] == [edges[e][1] for e in found]
        in_order = [lists["succ"][k] for k in places]
        assert in_order == sorted(in_order)  # successors are listed in level-major order
    for name in ("pred_ptr", "succ_ptr"):
        assert lists[name][0] == 0
        assert lists[name][-1] == len(edges)

    assert lists["sinks"] == [v for v in range(n) if all(tail != v for tail, _ in edges)]


def same(a: LevelSchedule, b: LevelSchedule) -> bool:
    def equal(one: Sweep | None, other: Sweep | None) -> bool:
        if one is None or other is None:
            return one is other
        return all(getattr(one, name).equal(getattr(other, name)) for name in TENSORS)

    return equal(a.forward, b.forward) and equal(a.reverse, b.reverse)


@given(dags())
def test_both_sweeps(data: Data) -> None:
    edges, n = data.edge_index, data.num_nodes
    schedule = LevelSchedule.from_edge_index(edges, n)
    assert schedule.reverse is not None
    check(schedule.forward, edges, topological_levels(edges, n))
    check(schedule.reverse, edges.flip(0), topological_levels(edges.flip(0), n))
    assert (schedule.num_nodes, schedule.num_edges) == (n, edges.size(1))
    # The longest path is as long backwards as it is forwards.
    assert schedule.num_levels == schedule.forward.num_levels == schedule.reverse.num_levels
    assert schedule.num_levels == (int(topological_levels(edges, n).max()) + 1 if n else 0)


@given(dags())
def test_one_direction(data: Data) -> None:
    edges, n = data.edge_index, data.num_nodes
    schedule = LevelSchedule.from_edge_index(edges, n, reverse=False)
    check(schedule.forward, edges, topological_levels(edges, n))
    assert schedule.reverse is None
    with pytest.raises(ValueError, match=r"both directions, .* build it with reverse=True"):
        schedule.flip()


@given(dags())
def test_flip_is_the_schedule_of_the_reverse_dag(data: Data) -> None:
    schedule = LevelSchedule.from_data(data)
    flipped = LevelSchedule.from_edge_index(data.edge_index.flip(0), data.num_nodes)
    assert same(schedule.flip(), flipped)
    assert same(schedule.flip().flip(), schedule)


@given(dags(), st.data())
def test_levels_of_the_caller(data: Data, draw: st.DataObject) -> None:
    """Any integers that rise along every edge, with gaps and in any integer dtype."""
    edges, n = data.edge_index, data.num_nodes
    given_levels = []
    for flip in (edges, edges.flip(0)):
        levels = topological_levels(flip, n)
        step = draw.draw(st.integers(1, 5))
        slack = torch.tensor(draw.draw(st.lists(st.integers(0, step - 1), min_size=n, max_size=n)))
        dtype = draw.draw(st.sampled_from([torch.long, torch.int32, torch.uint8]))
        given_levels.append((levels * step + slack.long()).to(dtype))
    schedule = LevelSchedule.from_edge_index(edges, n, *given_levels)
    assert schedule.reverse is not None
    check(schedule.forward, edges, given_levels[0])
    check(schedule.reverse, edges.flip(0), given_levels[1])


def test_levels_may_be_far_apart() -> None:
    schedule = LevelSchedule.from_edge_index(DIAMOND, levels=torch.tensor([0, 7, 9, 2**60]))
    check(schedule.forward, DIAMOND, torch.tensor([0, 7, 9, 2**60]))
    assert schedule.num_levels == 4


def test_levels_say_how_many_nodes_there_are() -> None:
    levels = torch.tensor([0, 1, 1, 2, 0])
    assert LevelSchedule.from_edge_index(DIAMOND, levels=levels).num_nodes == 5


@given(st.lists(dags(max_nodes=6), min_size=1, max_size=5))
def test_batch_lays_levels_side_by_side(graphs: list[Data]) -> None:
    """Level i of a batch holds its graphs' levels i, graph after graph."""
    batch = Batch.from_data_list(graphs)
    schedule = LevelSchedule.from_data(batch)
    levels: list[list[int]] = [[] for _ in range(schedule.num_levels)]
    offset = 0
    for graph in graphs:
        sweep = LevelSchedule.from_data(graph).forward
        for i in range(sweep.num_levels):
            nodes = sweep.order[sweep.level_ptr[i] : sweep.level_ptr[i + 1]] + offset
            levels[i] += nodes.tolist()
        offset += graph.num_nodes
    sweep = schedule.forward
    for i, nodes in enumerate(levels):
        assert sweep.order[sweep.level_ptr[i] : sweep.level_ptr[i + 1]].tolist() == nodes


@given(st.lists(dags(max_nodes=6), min_size=1, max_size=5))
def test_stored_levels_give_the_same_schedule(graphs: list[Data]) -> None:
    stored = Batch.from_data_list([AddLevels()(g) for g in graphs])
    assert same(
        LevelSchedule.from_data(stored), LevelSchedule.from_data(Batch.from_data_list(graphs))
    )


def test_stored_levels_are_used_and_checked() -> None:
    data = Data(edge_index=torch.tensor([[0], [1]]), num_nodes=3, level=torch.tensor([0, 2, 1]))
    assert LevelSchedule.from_data(data).forward.order.tolist() == [0, 2, 1]
    data.level = torch.tensor([1, 1, 0])
    with pytest.raises(ValueError, match="got level 1 -> 1 on edge 0 -> 1"):
        LevelSchedule.from_data(data)
    data.level = torch.tensor([0, 1, 0])
    data.reverse_level = torch.tensor([0, 1, 0])
    with pytest.raises(ValueError, match="got level 1 -> 0 on edge 1 -> 0"):
        LevelSchedule.from_data(data)


@pytest.mark.parametrize("n", [0, 1, 4])
def test_without_edges(n: int) -> None:
    schedule = LevelSchedule.from_edge_index(NO_EDGES, n)
    assert schedule.reverse is not None
    check(schedule.forward, NO_EDGES, torch.zeros(n, dtype=torch.long))
    check(schedule.reverse, NO_EDGES, torch.zeros(n, dtype=torch.long))
    assert schedule.num_levels == (n > 0)


def test_duplicate_edges_are_kept() -> None:
    schedule = LevelSchedule.from_edge_index(torch.tensor([[0, 1, 0], [2, 2, 2]]))
    assert schedule.forward.pred.tolist() == [0, 1, 0]
    assert schedule.forward.pred_edge.tolist() == [0, 1, 2]
    assert schedule.forward.succ_ptr.tolist() == [0, 2, 3, 3]


def test_to_and_device() -> None:
    schedule = LevelSchedule.from_edge_index(DIAMOND)
    assert schedule.device == torch.device("cpu")
    assert same(schedule.to("cpu"), schedule)
    moved = schedule.to("meta")
    assert moved.device.type == "meta"
    assert moved.reverse is not None
    for sweep in (moved.forward, moved.reverse):
        assert all(getattr(sweep, name).is_meta for name in TENSORS)
    one = LevelSchedule.from_edge_index(DIAMOND, reverse=False)
    assert one.to("meta").reverse is None


def test_repr() -> None:
    schedule = LevelSchedule.from_edge_index(DIAMOND, reverse=False)
    assert repr(schedule) == (
        "LevelSchedule(num_nodes=4, num_edges=4, num_levels=3, reverse=False)"
    )


def test_bad_input() -> None:
    build = LevelSchedule.from_edge_index
    with pytest.raises(CycleError, match="0 -> 1 -> 0"):
        build(torch.tensor([[0, 1], [1, 0]]))
    with pytest.raises(ValueError, match=r"from 0 to 3 .* got 3"):
        build(DIAMOND, 3)
    with pytest.raises(ValueError, match=r"from 0 to 3 .* got 3"):
        build(DIAMOND, levels=torch.tensor([0, 1, 1]))
    with pytest.raises(TypeError, match=r"int64, got torch.int32"):
        build(DIAMOND.int())
    with pytest.raises(TypeError, match="with NaN in it"):
        build(DIAMOND, levels=torch.tensor([0.0, 1.0, torch.nan, 2.0]))
    with pytest.raises(ValueError, match="rise along every edge"):
        build(DIAMOND, levels=torch.tensor([0, 1, 1, 1]))
    with pytest.raises(ValueError, match="rise along every edge"):
        build(DIAMOND, reverse_levels=torch.tensor([0, 1, 1, 2]))
    with pytest.raises(ValueError, match=r"one level per node, shape \[4\], got \[5\]"):
        build(DIAMOND, 4, torch.tensor([0, 1, 1, 2, 0]))
    with pytest.raises(ValueError, match="edge_index on cpu, levels on meta"):
        build(DIAMOND, levels=torch.empty(4, dtype=torch.long, device="meta"))
    with pytest.raises(TypeError, match="got list"):
        build(DIAMOND, levels=[0, 1, 1, 2])


@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize(("edges", "n"), [(DIAMOND, 6), (NO_EDGES, 3)])
def test_operator(edges: Tensor, n: int, directions: int) -> None:
    levels = [topological_levels(e, n) for e in (edges, edges.flip(0))][:directions]
    torch.library.opcheck(torch.ops.dagnn.level_sort.default, (edges, torch.stack(levels)))


def test_compile() -> None:
    """A schedule is built inside a compiled function, for graphs of any size and depth."""

    def sweeps(edges: Tensor, n: int) -> tuple[Sweep, Sweep | None]:
        schedule = LevelSchedule.from_edge_index(edges, n)
        return schedule.forward, schedule.reverse

    compiled = torch.compile(sweeps, fullgraph=True, backend="aot_eager", dynamic=True)
    path = torch.stack([torch.arange(6), torch.arange(1, 7)])
    for edges, n in [(DIAMOND, 4), (path, 9), (torch.cat([DIAMOND, path + 4], 1), 11)]:
        for found, expected in zip(compiled(edges, n), sweeps(edges, n), strict=True):
            for name in TENSORS:
                assert getattr(found, name).equal(getattr(expected, name))


def test_compile_with_given_levels() -> None:
    def build(edges: Tensor, levels: Tensor) -> LevelSchedule:
        return LevelSchedule.from_edge_index(edges, 4, levels, reverse=False)

    compiled = torch.compile(build, fullgraph=True, backend="aot_eager", dynamic=True)
    levels = torch.tensor([0, 1, 1, 2])
    assert same(compiled(DIAMOND, levels), build(DIAMOND, levels))
    for edges, wrong, message in [
        (DIAMOND, levels * 0, "levels that rise along every edge, got level 0 -> 0"),
        (DIAMOND, levels - 1, "levels >= 0, got -1"),
        (DIAMOND + 10**8, levels, r"from 0 to 4 \(exclusive\) in edge_index, got 100000003"),
    ]:
        for run in (build, compiled):
            with pytest.raises(ValueError, match=message):
                run(edges, wrong)


@pytest.mark.cuda
@needs_cuda
def test_cuda_gives_the_same() -> None:
    generator = torch.Generator().manual_seed(0)
    low, high = torch.randint(0, 1000, (2, 5000), generator=generator).sort(0).values
    edges = torch.stack([low, high])[:, low < high]
    schedule = LevelSchedule.from_edge_index(edges, 1000)
    on_device = LevelSchedule.from_edge_index(edges.cuda(), 1000)
    assert on_device.device.type == "cuda"
    assert same(on_device.to("cpu"), schedule)
    levels = topological_levels(edges, 1000)
    with pytest.raises(ValueError, match="edge_index on cuda:0, levels on cpu"):
        LevelSchedule.from_edge_index(edges.cuda(), 1000, levels)
