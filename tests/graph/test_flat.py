from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch_geometric.data import Batch, Data

from dagnn import DAGNN, AddLevels, CycleError, FlatGraphs, LevelSchedule, without_filler
from dagnn.graph import flat_file
from dagnn.graph.flat_batch import cut_batch
from tests.graph.strategies import dags

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

# Every attribute of a graph with n nodes and e edges, by name.
ATTRIBUTES: dict[str, Callable[[int, int], Any]] = {
    "x": lambda n, e: torch.randn(n, 3),
    "pos": lambda n, e: torch.randint(9, (n, 2, 2), dtype=torch.int16),
    "mask": lambda n, e: torch.rand(n) < 0.5,
    "edge_type": lambda n, e: torch.randint(2, (e,)),
    "edge_attr": lambda n, e: torch.randn(e, 2, dtype=torch.float64),
    "y": lambda n, e: torch.randn(1, 4),
    "scalar": lambda n, e: torch.tensor(n * 1.5),
    "number": lambda n, e: n + 7,
    "fraction": lambda n, e: n / 7,
    "vector": lambda n, e: torch.randint(9, (5,), dtype=torch.uint8),
    "tokens": lambda n, e: torch.arange(n % 3),
    "root_index": lambda n, e: torch.arange(n).flip(0)[:2],
    "pair_index": lambda n, e: torch.randint(max(n, 1), (2, e % 4)),
}


@st.composite
def graph_lists(draw: st.DrawFn) -> list[Data]:
    """DAGs with the same attributes; some have no edges, one node or none at all."""
    names = draw(st.sets(st.sampled_from(sorted(ATTRIBUTES))))
    shapes = draw(st.lists(dags(max_nodes=6), min_size=1, max_size=6))
    stored = draw(st.booleans()) or "x" not in names
    graphs = []
    for shape in shapes:
        n, e = shape.num_nodes, shape.num_edges
        data = Data(edge_index=shape.edge_index)
        for name in sorted(names):
            data[name] = ATTRIBUTES[name](n, e)
        if stored:
            data.num_nodes = n
        graphs.append(data)
    return graphs


def assert_same(a: Data, b: Data) -> None:
    assert set(a.keys()) == set(b.keys())
    for key in a.keys():  # noqa: SIM118 - a Data is not a dict
        assert type(a[key]) is type(b[key]), key
        if isinstance(a[key], Tensor):
            assert a[key].dtype == b[key].dtype, key
            assert a[key].equal(b[key]), key
        else:
            assert a[key] == b[key], key


def assert_same_schedule(a: LevelSchedule, b: LevelSchedule) -> None:
    for name in LevelSchedule.__dataclass_fields__:
        one, other = getattr(a, name), getattr(b, name)
        assert one.dtype == other.dtype == torch.long
        assert one.equal(other), name


def path_graph(n: int, **attributes: Any) -> Data:
    edges = torch.stack([torch.arange(n - 1), torch.arange(1, n)])
    return Data(edge_index=edges, num_nodes=n, **attributes)


@given(graph_lists(), st.data())
def test_batches_equal_pyg_collation(graphs: list[Data], data: st.DataObject) -> None:
    flat = FlatGraphs.from_data_list(iter(graphs))
    assert len(flat) == len(graphs)
    indices = data.draw(st.lists(st.integers(0, len(graphs) - 1), min_size=1, max_size=8))
    levelled = [AddLevels()(graph) for graph in graphs]
    expected = Batch.from_data_list([levelled[i] for i in indices])

    batch = flat.batch(indices, schedule=True)
    assert type(batch) is type(expected)
    schedule = batch.schedule
    del batch.schedule
    assert_same(batch, expected)
    assert batch.num_graphs == len(batch) == len(indices)
    assert batch.num_nodes == expected.num_nodes
    assert_same_schedule(schedule, LevelSchedule.from_data(expected))
    for part, original in zip(batch.to_data_list(), expected.to_data_list(), strict=True):
        assert_same(part, original)

    assert_same(flat.batch(indices), expected)
    for form in (torch.tensor(indices), np.array(indices, dtype=np.int32)):
        assert_same(flat.batch(form), expected)
    assert_same(flat.batch([i - len(flat) for i in indices]), expected)


@given(graph_lists())
def test_graphs_come_back(graphs: list[Data]) -> None:
    flat = FlatGraphs.from_data_list(graphs)
    levelled = [AddLevels()(graph) for graph in graphs]
    every = list(range(len(flat)))
    again = Batch.from_data_list([flat[i] for i in every])
    assert_same(again, Batch.from_data_list(levelled))
    assert flat.depths.tolist() == [int(g.level.max()) + 1 if g.num_nodes else 0 for g in levelled]
    assert flat.num_nodes == flat.node_ptr[-1] == sum(g.num_nodes for g in graphs)
    assert flat.num_edges == flat.edge_ptr[-1] == sum(g.num_edges for g in graphs)
    assert_same(FlatGraphs.from_data_list(levelled).batch(every), flat.batch(every))


@given(graph_lists(), st.data())
def test_a_selection_is_the_data_set_of_its_graphs(graphs: list[Data], data: st.DataObject) -> None:
    indices = data.draw(st.lists(st.integers(0, len(graphs) - 1), min_size=1, max_size=8))
    chosen = FlatGraphs.from_data_list(graphs).select(indices)
    direct = FlatGraphs.from_data_list([graphs[i] for i in indices])
    every = list(range(len(indices)))
    assert chosen.depths.equal(direct.depths)
    a, b = chosen.batch(every, schedule=True), direct.batch(every, schedule=True)
    assert_same_schedule(a.schedule, b.schedule)
    del a.schedule, b.schedule
    assert_same(a, b)


@given(graph_lists())
@settings(max_examples=30)
def test_files(graphs: list[Data]) -> None:
    flat = FlatGraphs.from_data_list(graphs)
    flat.metadata["split"] = "train"
    with TemporaryDirectory() as folder:
        path = Path(folder, "graphs.safetensors")
        flat.save(path)
        loaded = FlatGraphs.load(path)
        assert [p.name for p in Path(folder).iterdir()] == [path.name]
        assert set(loaded.keys()) == set(flat.keys())
        assert loaded.metadata == {"split": "train"}
        every = list(range(len(flat)))
        assert_same(loaded.batch(every), flat.batch(every))
        loaded.save(path)  # over the file that is mapped into memory
        assert_same(loaded.batch(every), FlatGraphs.load(path).batch(every))


def test_from_tensors() -> None:
    flat = FlatGraphs(
        node_ptr=torch.tensor([0, 3, 3, 4]),
        edge_ptr=torch.tensor([0, 2, 2, 2]),
        edge_index=torch.tensor([[0, 1], [1, 2]], dtype=torch.int32),
        node={"x": torch.arange(4.0)},
        edge={"edge_type": torch.tensor([1, 0])},
        graph={"y": torch.tensor([3, 0, 1])},
        ragged={"tokens": (torch.tensor([0, 0, 2, 3]), torch.tensor([7, 8, 9]))},
    )
    assert flat.depths.tolist() == [3, 0, 1]
    assert "num_nodes" not in flat[0]
    assert_same(
        flat[0],
        Data(
            x=torch.arange(3.0),
            edge_index=torch.tensor([[0, 1], [1, 2]]),
            edge_type=torch.tensor([1, 0]),
            y=torch.tensor([3]),
            tokens=torch.empty(0, dtype=torch.long),
            level=torch.arange(3),
            reverse_level=torch.arange(3).flip(0),
        ),
    )
    assert flat.column("y").tolist() == [3, 0, 1]
    with pytest.raises(KeyError, match="expected one of x, edge_type, y, tokens, got 'z'"):
        flat.column("z")
    assert repr(flat) == (
        "FlatGraphs(num_graphs=3, num_nodes=4, num_edges=2, attributes=[x, edge_type, y, tokens])"
    )


def test_given_levels_are_used() -> None:
    late = path_graph(2, level=torch.tensor([0, 1]), reverse_level=torch.tensor([1, 0]))
    free = Data(  # node 2 waits for the last level
        edge_index=torch.tensor([[0], [1]]),
        num_nodes=3,
        level=torch.tensor([0, 1, 1]),
        reverse_level=torch.tensor([2, 1, 0]),
    )
    batch = FlatGraphs.from_data_list([late, free]).batch([1, 0], schedule=True)
    assert batch.level.tolist() == [0, 1, 1, 0, 1]
    assert_same_schedule(
        batch.schedule,
        LevelSchedule.from_edge_index(
            batch.edge_index, levels=batch.level, reverse_levels=batch.reverse_level
        ),
    )


def test_graphs_are_not_changed() -> None:
    graph = path_graph(3, x=torch.randn(3, 2, requires_grad=True))
    flat = FlatGraphs.from_data_list([graph])
    assert set(graph.keys()) == {"edge_index", "num_nodes", "x"}
    assert not flat.batch([0]).x.requires_grad
    flat.batch([0]).x.zero_()
    assert flat[0].x.equal(graph.x)


def test_the_schedule_travels_with_the_batch() -> None:
    batch = FlatGraphs.from_data_list([path_graph(3)]).batch([0, 0], schedule=True)
    assert batch.to("cpu").schedule.num_levels == 3
    assert batch.to("meta").schedule.device.type == "meta"
    assert "schedule=LevelSchedule(num_nodes=6" in repr(batch)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_the_model_uses_the_schedule(bidirectional: bool) -> None:
    graphs = [path_graph(n, x=torch.randn(n, 4)) for n in (3, 1, 5)]
    flat = FlatGraphs.from_data_list(graphs)
    model = DAGNN(4, 8, bidirectional=bidirectional)
    expected = model(flat.batch([0, 1, 2]))
    batch = flat.batch([0, 1, 2], schedule=True)
    assert model(batch).equal(expected)
    batch.schedule = flat.batch([0, 1], schedule=True).schedule
    with pytest.raises(ValueError, match="all 4 nodes of the schedule"):
        model(batch)


@given(graph_lists())
@settings(max_examples=30)
def test_rows_may_travel_with_the_structure(graphs: list[Data]) -> None:
    """What is done where the attributes are on an accelerator, with the CPU in its place."""
    flat = FlatGraphs.from_data_list(graphs)
    every = np.arange(len(flat))
    elsewhere = replace(flat._tables, device=torch.device("meta"))
    batch, _ = cut_batch(elsewhere, every, False, torch.device("cpu"))
    assert_same(batch, flat.batch(every))


class Operations(TorchDispatchMode):
    """The names of the operations that torch is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("padded", [False, True])
def test_a_batch_takes_few_operations(padded: bool) -> None:
    """The host's time for them is what a batch on an accelerator costs, beside compiled loops; and
    a thread that works ahead gives Python's lock away at each."""
    graphs = [
        path_graph(n, x=torch.arange(n), edge_type=torch.zeros(n - 1, dtype=torch.long))
        for n in range(1, 21)
    ]
    elsewhere = replace(
        FlatGraphs.from_data_list(graphs)._tables, device=torch.device("meta")
    )  # with the CPU in its place
    asked = []
    for count in (2, 20):
        with Operations() as operations:
            cut_batch(elsewhere, np.arange(count), True, torch.device("cpu"), padded)
        asked.append(operations.names)
    assert asked[0] == asked[1]
    assert len(asked[0]) <= 22
    assert asked[0].count("index_select") == 2
    assert not {"_local_scalar_dense", "nonzero", "repeat_interleave"} & {*asked[0]}


@needs_cuda
@pytest.mark.cuda
def test_batches_on_a_gpu() -> None:
    graphs = [path_graph(n, x=torch.randn(n, 4), root_index=0, y=n) for n in (3, 1, 5)]
    flat = FlatGraphs.from_data_list(graphs)
    expected = flat.batch([2, 0, 2], schedule=True)
    resident = flat.to("cuda")
    assert "device=cuda:0" in repr(resident)
    for batch in (
        flat.batch([2, 0, 2], schedule=True, device="cuda"),
        resident.batch([2, 0, 2], schedule=True),
        resident.select([2, 0]).batch([0, 1, 0], schedule=True),
    ):
        assert all(v.is_cuda for _, v in batch if isinstance(v, Tensor))
        assert batch.schedule.device.type == "cuda"
        assert_same_schedule(batch.schedule.to("cpu"), expected.schedule)
        moved = batch.cpu()
        moved.schedule = expected.schedule
        assert_same(moved, expected)
    assert resident[0].x.is_cuda
    assert resident[0].level.is_cuda
    with pytest.raises(ValueError, match="expected batches on cuda:0"):
        resident.batch([0], device="cpu")


EDGE = torch.tensor([[0], [1]])


@pytest.mark.parametrize(
    ("graphs", "error", "match"),
    [
        ([], ValueError, "at least one graph"),
        ([EDGE], TypeError, "graph 0: expected a torch_geometric.data.Data, got Tensor"),
        ([Data(num_nodes=1)], TypeError, "graph 0: expected edge_index"),
        ([path_graph(2), Data(edge_index=EDGE.t())], ValueError, r"graph 1: .*\[2, num_edges\]"),
        ([Data(edge_index=EDGE.int(), num_nodes=2)], TypeError, "got torch.int32"),
        ([path_graph(2), Data(edge_index=EDGE, num_nodes=1)], ValueError, "graph 1: .*0 -> 1"),
        ([Data(edge_index=-EDGE, num_nodes=2)], ValueError, "got -1"),
        ([path_graph(2), path_graph(3, y=1)], ValueError, "'y' .* graph 1 has one and graph 0"),
        ([path_graph(2, y=1), path_graph(3)], ValueError, "'y' .* but graph 1 has none"),
        ([path_graph(2, y=1), path_graph(2, y=0.5)], ValueError, "graph 1: expected 'y' as in"),
        (
            [path_graph(2, x=torch.ones(2, 3)), path_graph(2, x=torch.ones(2, 4))],
            ValueError,
            r"graph 1: expected 'x' .* got torch.float32, shape \[2, 4\]",
        ),
        ([path_graph(2, names=["a", "b"])], TypeError, r"got list; .*exclude=\['names'\]"),
        ([path_graph(2, w=torch.eye(2).to_sparse())], TypeError, "'w', got torch.sparse_coo"),
        ([path_graph(2, my_batch=torch.ones(2))], ValueError, "attribute 'my_batch'; rename it"),
        ([path_graph(2, level=torch.tensor([0, 1]))], ValueError, "got level alone"),
        (
            [path_graph(2, level=torch.tensor([0]), reverse_level=torch.tensor([1, 0]))],
            ValueError,
            r"graph 0: expected one level per node, shape \[2\], got \[1\]",
        ),
        (
            [path_graph(2, level=torch.tensor([0, 0]), reverse_level=torch.tensor([1, 0]))],
            ValueError,
            "graph 0: expected levels that rise",
        ),
        (
            [path_graph(2, level=torch.tensor([0, 1]), reverse_level=torch.tensor([0, 1]))],
            ValueError,
            "graph 0: expected levels that rise",
        ),
        (
            [path_graph(2, level=torch.tensor([0, 5]), reverse_level=torch.tensor([1, 0]))],
            ValueError,
            "graph 0: expected a node on every level",
        ),
        (
            [path_graph(2, level=torch.tensor([0, 2**40]), reverse_level=torch.tensor([1, 0]))],
            ValueError,
            "in levels, got 1099511627776",
        ),
        (
            [path_graph(2, level=torch.ones(2), reverse_level=torch.ones(2))],
            TypeError,
            "levels as a tensor of integers, got torch.float32",
        ),
    ],
)
def test_bad_graphs(graphs: list[Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        FlatGraphs.from_data_list(graphs)


def test_names_can_be_left_behind() -> None:
    flat = FlatGraphs.from_data_list([path_graph(2, names=["a", "b"])], exclude=["names"])
    assert flat.keys() == []


def test_one_row_is_the_graphs_also_where_it_has_one_edge() -> None:
    """Or else a padded batch would have rows of the filler among the labels."""
    graphs = [
        path_graph(2, x=torch.ones(2, 1), y=torch.tensor([float(i)]), edge_attr=torch.ones(1, 3))
        for i in range(9)
    ]
    batch = FlatGraphs.from_data_list(graphs).batch(range(9), padded=True)
    assert batch.y.tolist() == list(range(9))
    assert len(batch.edge_attr) == batch.edge_index.size(1) > 9
    lone = [path_graph(1, x=torch.ones(1, 2), node_id=torch.ones(1), y=torch.ones(1))]
    assert {n: c.kind for n, c in FlatGraphs.from_data_list(lone)._tables.columns.items()} == {
        "x": "node", "node_id": "node", "y": "graph",
    }  # fmt: skip


def test_kinds_can_be_told() -> None:
    graphs = [path_graph(3, x=torch.ones(3, 1), y=torch.arange(3.0) + i) for i in range(9)]
    for kinds in (None, {"y": "node"}):
        padded = FlatGraphs.from_data_list(graphs, kinds=kinds).batch(range(9), padded=True)
        assert len(padded.y) == padded.num_nodes
    with pytest.raises(ValueError, match="got 'y' with a number of rows of its own"):
        FlatGraphs.from_data_list(graphs, kinds={"y": "ragged"}).batch(range(9), padded=True)
    for kinds, match in (
        ({"y": "graph"}, r"expected a kind of 'y' .*\(node, ragged\), got 'graph'"),
        ({"z": "node"}, "expected kinds of attributes of the graphs, got one of 'z'"),
    ):
        with pytest.raises(ValueError, match=match):
            FlatGraphs.from_data_list(graphs, kinds=kinds)


def test_rows_without_the_filler() -> None:
    flat = FlatGraphs.from_data_list([path_graph(n, x=torch.ones(n, 1)) for n in (2, 3, 4)])
    for padded in (False, True):
        batch = flat.batch([0, 2], padded=padded)
        rows = torch.arange(batch.num_graphs)
        assert without_filler(rows, batch).tolist() == [0, 1]
    with pytest.raises(ValueError, match="expected a row for each of the batch's 3 graphs, got 2"):
        without_filler(rows[:2], batch)


def test_a_cycle_is_named_by_its_graph() -> None:
    loop = Data(edge_index=torch.tensor([[0, 1], [1, 0]]), num_nodes=2)
    with pytest.raises(CycleError, match=r"graph 1: .* 0 -> 1 -> 0") as caught:
        FlatGraphs.from_data_list([path_graph(3), loop])
    assert caught.value.cycle == [0, 1]


def test_other_rules_of_collation_are_refused() -> None:
    class Pair(Data):
        def __inc__(self, key: str, value: Any, *args: Any) -> Any:
            return 1

    with pytest.raises(TypeError, match="got a Pair with its own __inc__"):
        FlatGraphs.from_data_list([Pair(edge_index=EDGE, num_nodes=2)])


@pytest.mark.parametrize(
    ("changed", "error", "match"),
    [
        ({"node_ptr": torch.tensor([0.0, 2.0])}, TypeError, "node_ptr as a vector of integers"),
        ({"node_ptr": [0, 2]}, TypeError, "node_ptr as a vector of integers, got list"),
        ({"node_ptr": torch.tensor([], dtype=torch.long)}, ValueError, "at least 1, got 0"),
        ({"node_ptr": torch.tensor([1, 2])}, ValueError, "node_ptr to start at 0"),
        ({"edge_ptr": torch.tensor([0, 2, 1])}, ValueError, "edge_ptr than .* 2, got 3"),
        ({"edge_ptr": torch.tensor([0, -1])}, ValueError, "edge_ptr to start at 0"),
        ({"edge_ptr": torch.tensor([0, 2])}, ValueError, r"shape \[2, 2\], got \[2, 1\]"),
        ({"edge_index": EDGE.float()}, TypeError, "edge_index as a tensor of integers"),
        ({"edge_index": EDGE + 2**31}, ValueError, "in edge_index, got 2147483649"),
        ({"levels": torch.zeros(2, 3, dtype=torch.long)}, ValueError, r"levels of shape \[2, 2\]"),
        ({"node": {"x": torch.ones(3)}}, ValueError, "2 rows in 'x', one per node"),
        ({"node": {"x": torch.tensor(3)}}, ValueError, "2 rows in 'x'"),
        ({"edge": {"w": torch.ones(2)}}, ValueError, "1 rows in 'w', one per edge"),
        ({"graph": {"y": [3]}}, TypeError, "'y' as a dense torch.Tensor, got list"),
        ({"graph": {"y": EDGE[0]}, "node": {"y": EDGE.view(-1)}}, ValueError, "'y' twice"),
        ({"graph": {"ptr": EDGE[0]}}, ValueError, "attribute 'ptr'"),
        ({"graph": {"_y": EDGE[0]}}, ValueError, "attribute '_y'"),
        ({"ragged": {"t": (torch.tensor([0]), EDGE[0])}}, ValueError, "the pointers of 't'"),
    ],
)
def test_bad_tensors(changed: dict[str, Any], error: type[Exception], match: str) -> None:
    good = {
        "node_ptr": torch.tensor([0, 2]),
        "edge_ptr": torch.tensor([0, 1]),
        "edge_index": EDGE,
    }
    FlatGraphs(**good)
    with pytest.raises(error, match=match):
        FlatGraphs(**{**good, **changed})


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_device_that_is_not_there() -> None:
    flat = FlatGraphs.from_data_list([path_graph(2)])
    for ask in (flat.to, lambda device: flat.batch([0], device=device)):
        with pytest.raises(ValueError, match="got 'cuda:1', but torch finds no CUDA device"):
            ask("cuda:1")


def test_bad_indices() -> None:
    flat = FlatGraphs.from_data_list([path_graph(2), path_graph(3)])
    for indices, got in (
        ([], "an empty one"), (0, "0"), ([[0]], r"shape \[1, 1\]"), (slice(0, 2), "slice"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=f"at least one graph, got {got}"):
            flat.batch(indices)  # type: ignore[arg-type]
    for several in ([0, 1], slice(0, 2), "0"):
        with pytest.raises(TypeError, match=r"the index of one graph, got .*\.select\(indices\)"):
            flat[several]  # type: ignore[index]
    for index in (2, -3):
        with pytest.raises(IndexError, match=f"from 0 to 2 .*, got {index}"):
            flat.batch([0, index])
        with pytest.raises(IndexError, match=f"got {index}"):
            flat[index]
    with pytest.raises(TypeError, match="expected integers as indices of graphs, got bool"):
        flat.batch(torch.tensor([True, False]))
    assert [graph.num_nodes for graph in flat] == [2, 3]
    assert flat[torch.tensor(1)].num_nodes == flat[np.int32(-1)].num_nodes == 3


def test_an_interrupted_save_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "graphs.safetensors"
    FlatGraphs.from_data_list([path_graph(2)]).save(path)
    before = path.read_bytes()

    def interrupted(tensors: Any, target: Path, header: Any) -> None:
        target.write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(flat_file, "save_file", interrupted)
    with pytest.raises(KeyboardInterrupt):
        FlatGraphs.from_data_list([path_graph(3)]).save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_damaged_and_foreign_files(tmp_path: Path) -> None:
    path = tmp_path / "graphs.safetensors"
    FlatGraphs.from_data_list([path_graph(4, y=1)]).save(path)
    whole, tensors = path.read_bytes(), load_file(path)
    header = {"format": "dagnn.FlatGraphs", "version": "1"}

    for content in (whole[:-1], whole[:20], b"", b"PK\x03\x04 something else", whole + b"\0"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"graphs\.safetensors, got a file that is no"):
            FlatGraphs.load(path)

    def refused(match: str, header: dict[str, str], **changed: Tensor) -> None:
        save_file({**tensors, **changed}, path, header)
        with pytest.raises(ValueError, match=match):
            FlatGraphs.load(path)

    refused("got a file of the format None", {})
    refused("expected version 1 .* got '2'", {**header, "version": "2"})
    refused("with the tensors .*strange/x", header, **{"strange/x": EDGE})
    refused("with the tensors", header, **{"ragged/x": EDGE})
    for name, value in (
        ("edge_index", tensors["edge_index"] + 1),
        ("node_ptr", torch.tensor([0, 5])),
        ("levels", tensors["levels"].flip(0).contiguous()),
        ("graph/y", torch.ones(2)),
    ):
        refused("is damaged: ", header, **{name: value})
    with pytest.raises(FileNotFoundError):
        FlatGraphs.load(tmp_path / "none.safetensors")


def test_pointers_of_attributes() -> None:
    flat = FlatGraphs(
        torch.tensor([0, 2, 3]),
        torch.tensor([0, 1, 1]),
        torch.tensor([[0], [1]]),
        node={"x": torch.zeros(3, 1)},
        ragged={"words": (torch.tensor([0, 0, 4]), torch.arange(4))},
    )
    assert flat.pointer("x").tolist() == [0, 2, 3]
    assert flat.pointer("words").tolist() == [0, 0, 4]
    with pytest.raises(KeyError, match="expected one of x, words"):
        flat.pointer("y")


def test_without_some_attributes(tmp_path: Path) -> None:
    flat = FlatGraphs(
        torch.tensor([0, 2, 4]),
        torch.tensor([0, 1, 1]),
        torch.tensor([[0], [1]]),
        node={"x": torch.zeros(4, 1)},
        graph={"y": torch.tensor([5, 6])},
        ragged={"words": (torch.tensor([0, 0, 4]), torch.arange(4))},
    )
    rest = flat.without("words", "x")
    assert rest.keys() == ["y"]
    assert rest[1].num_nodes == 2  # which neither features nor edges tell
    assert rest.select([1, 0]).batch([1, 0]).y.tolist() == [5, 6]
    rest.save(tmp_path / "rest")
    assert FlatGraphs.load(tmp_path / "rest").keys() == ["y"]
    assert flat.keys() == ["x", "y", "words"]
    with pytest.raises(KeyError, match="expected one of x, y, words, got 'z'"):
        flat.without("z")
