import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch_geometric.data import Batch, Data

from dagnn import AddLevels, CycleError
from dagnn.graph.jsonl import read_jsonl, write_jsonl
from tests.graph.strategies import dags

EDGE = Data(edge_index=torch.tensor([[0], [1]]), num_nodes=2)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "graphs.jsonl"


def test_schema(file: Path) -> None:
    file.write_text(
        '{"num_nodes": 3, "edges": [[0, 1], [2, 1]], "x": [[0.5], [1], [2]], "edge_type": [1, 0],'
        ' "edge_attr": [0.25, 4], "y": 3, "node_names": ["a", "b", 7]}\n'
        "\n"
        '{"edges": [], "num_nodes": 1}'
    )
    first, second = read_jsonl(file)
    assert first.num_nodes == 3
    assert first.edge_index.tolist() == [[0, 2], [1, 1]]
    assert first.x.equal(torch.tensor([[0.5], [1.0], [2.0]]))
    assert first.edge_type.equal(torch.tensor([1, 0]))
    assert first.edge_attr.equal(torch.tensor([0.25, 4.0]))
    assert first.y.equal(torch.tensor(3))
    assert first.node_names == ["a", "b", 7]
    assert second.num_nodes == 1
    assert second.edge_index.shape == (2, 0)
    assert second.edge_index.dtype == torch.long
    assert set(second.keys()) == {"edge_index", "num_nodes"}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(graphs=st.lists(dags(max_nodes=6), max_size=4))
def test_round_trip(file: Path, graphs: list[Data]) -> None:
    for graph in graphs:
        n, e = graph.num_nodes, graph.edge_index.size(1)
        graph.x = torch.randn(n, 2)
        graph.edge_type = torch.randint(9, (e,))
        graph.edge_attr = torch.rand(e, 3)
        graph.y = torch.randint(9, (1,))
        graph.node_names = [f"{v} \n\udc80é" for v in range(n)]
    stored = [AddLevels()(graph) for graph in graphs]
    write_jsonl(stored, file)
    read = list(read_jsonl(file))
    assert len(read) == len(file.read_text().splitlines()) == len(stored)
    for before, after in zip(stored, read, strict=True):
        assert set(before.keys()) == set(after.keys())
        assert before.node_names == after.node_names
        assert before.num_nodes == after.num_nodes
        for key in ("edge_index", "x", "edge_type", "edge_attr", "level", "reverse_level", "y"):
            assert before[key].dtype == after[key].dtype
            assert before[key].flatten().equal(after[key].flatten())
            if before[key].numel():  # a list cannot tell the width of nothing
                assert before[key].shape == after[key].shape


def test_graphs_without_edges_can_be_batched(file: Path) -> None:
    typed = Data(**EDGE.to_dict(), edge_type=torch.tensor([3]), edge_attr=torch.rand(1, 2))
    single = Data(
        edge_index=torch.empty(2, 0, dtype=torch.long),
        num_nodes=1,
        edge_type=torch.empty(0, dtype=torch.long),
        edge_attr=torch.empty(0, 2),
    )
    write_jsonl([single, typed, single], file)
    batch = Batch.from_data_list(list(read_jsonl(file)))
    assert batch.edge_type.equal(torch.tensor([3]))
    assert batch.edge_attr.equal(typed.edge_attr)
    assert batch.edge_index.tolist() == [[1], [2]]


def test_reading_is_streaming(file: Path) -> None:
    file.write_text('{"num_nodes": 1, "edges": []}\nnot read yet\n')
    graphs = read_jsonl(str(file))
    assert next(graphs).num_nodes == 1
    with pytest.raises(ValueError, match="line 2: Expecting value"):
        next(graphs)


GOOD = {"num_nodes": 3, "edges": [[0, 1], [1, 2]]}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "Expecting"),
        ("[1, 2]", "expected a JSON object, got list"),
        ("{}", "expected the keys num_nodes and edges, .* got none"),
        ({"num_nodes": 3}, "expected the keys num_nodes and edges, .* got num_nodes"),
        ({**GOOD, "edge_types": [0, 0]}, "optionally edge_attr, edge_type, .*, edge_types"),
        ({**GOOD, "__class__": 1}, "got num_nodes, edges, __class__"),
        ({**GOOD, "num_nodes": -1}, "num_nodes as an integer >= 0, got -1"),
        ({**GOOD, "num_nodes": 3.0}, "num_nodes as an integer >= 0, got 3.0"),
        ({**GOOD, "num_nodes": True}, "num_nodes as an integer >= 0, got True"),
        ({**GOOD, "num_nodes": "3"}, "num_nodes as an integer >= 0, got '3'"),
        ({**GOOD, "num_nodes": 10**30}, "."),
        ({**GOOD, "num_nodes": 2}, r"from 0 to 2 \(exclusive\) in edge_index, got 2"),
        ({**GOOD, "edges": [[0, -1]]}, "got -1"),
        ({**GOOD, "edges": [[0, 1, 2]]}, r"pairs of integers, got torch.int64 of shape \[1, 3\]"),
        ({**GOOD, "edges": [0, 1]}, r"pairs of integers, got torch.int64 of shape \[2\]"),
        ({**GOOD, "edges": [[0, 1.5]]}, "pairs of integers, got torch.float32"),
        ({**GOOD, "edges": [[0, 1], [2]]}, "lists of equal length in edges"),
        ({**GOOD, "edges": [["0", "1"]]}, "expected numbers .* in edges"),
        ({**GOOD, "edges": [[0, 10**30]]}, "in edges: "),
        ({**GOOD, "edges": None}, "in edges: "),
        ({**GOOD, "x": [1.0, 2.0]}, r"x with one row per node, 3 in all, got shape \[2\]"),
        ({**GOOD, "x": 1.0}, r"got shape \[\]"),
        ({**GOOD, "x": [[1], [2, 3], [4]]}, "lists of equal length in x"),
        ({**GOOD, "x": ["a", "b", "c"]}, "expected numbers .* in x"),
        ({**GOOD, "x": [1.0, float("nan"), 2.0]}, "expected finite numbers, got NaN"),
        ({**GOOD, "y": float("-inf")}, "expected finite numbers, got -Infinity"),
        ({**GOOD, "edge_type": [0]}, "edge_type with one row per edge, 2 in all"),
        ({**GOOD, "edge_type": [0, 0.5]}, "edge_type of dtype torch.int64, got torch.float32"),
        ({**GOOD, "node_names": ["a", "b"]}, "a list of 3 names, got 2"),
        ({**GOOD, "node_names": ["a", "b", ["c"]]}, r"strings or numbers .*, got \['c'\]"),
        ({**GOOD, "node_names": ["a", "b", "b"]}, "different node_names"),
        (b'{"num_nodes": 0, "edges": "\xff"}', "can't decode byte 0xff"),
        ("[" * 100_000, "recursion"),
    ],
)
def test_bad_line(file: Path, line, message: str) -> None:
    text = line if isinstance(line, str | bytes) else json.dumps(line)
    text = text if isinstance(text, bytes) else text.encode()
    file.write_bytes(json.dumps(GOOD).encode() + b"\n" + text + b"\n")
    with pytest.raises(ValueError, match=rf"graphs\.jsonl, line 2: .*{message}"):
        list(read_jsonl(file))


def test_cycle(file: Path) -> None:
    file.write_text(json.dumps({"num_nodes": 2, "edges": [[0, 1], [1, 0]]}))
    with pytest.raises(CycleError, match=r"graphs\.jsonl, line 1: .* 0 -> 1 -> 0") as caught:
        list(read_jsonl(file))
    assert caught.value.cycle == [0, 1]
    (data,) = read_jsonl(file, allow_cycles=True)
    assert data.edge_index.tolist() == [[0, 1], [1, 0]]


@pytest.mark.parametrize(
    ("extra", "error", "message"),
    [
        ({"pos": torch.zeros(2)}, ValueError, "no attributes but x, .* got pos; delete them"),
        ({"x": torch.tensor([0.0, torch.nan])}, ValueError, "finite numbers in x, got NaN"),
        ({"x": torch.zeros(3)}, ValueError, "x with one row per node, 2 in all"),
        ({"node_names": [("a", 1), "b"]}, TypeError, "strings or numbers in node_names, got "),
        ({"edge_index": torch.tensor([[0], [9]])}, ValueError, "got 9"),
        ({"y": "label"}, ValueError, "expected numbers .* in y"),
    ],
)
def test_bad_graph_leaves_the_old_file(file: Path, extra, error, message) -> None:
    write_jsonl([EDGE], file)
    before = file.read_text()
    with pytest.raises(error, match=f"graph 1: .*{message}"):
        write_jsonl([EDGE, Data(**(EDGE.to_dict() | extra))], file)
    assert file.read_text() == before
    assert os.listdir(file.parent) == [file.name]


def test_new_file_replaces_the_old_one(file: Path) -> None:
    write_jsonl([EDGE], file)
    with file.open() as old:  # a reader keeps the file it opened, whole
        write_jsonl([EDGE, EDGE], file)
        assert len(old.readlines()) == 1
    assert len(list(read_jsonl(file))) == 2


def test_batch_is_not_one_graph(file: Path) -> None:
    with pytest.raises(TypeError, match=r"graph 0: .* to_data_list"):
        write_jsonl([Batch.from_data_list([EDGE, EDGE])], file)


def test_interrupted_writing_leaves_nothing(file: Path) -> None:
    def graphs() -> Iterator[Data]:
        yield EDGE
        assert not file.exists()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_jsonl(graphs(), file)
    assert os.listdir(file.parent) == []


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX permissions")
def test_permissions_are_those_of_any_new_file(file: Path) -> None:
    write_jsonl([EDGE], file)
    other = file.with_name("other")
    other.touch()
    assert stat.S_IMODE(file.stat().st_mode) == stat.S_IMODE(other.stat().st_mode)
