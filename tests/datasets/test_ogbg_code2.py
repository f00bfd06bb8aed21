"""A small data set in the layout of ogbg-code2, made from functions that are parsed here."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from dagnn.datasets.code_dataset import graphs_of, load_code_dataset
from dagnn.datasets.functions import NODE_TYPES, FunctionGraph, functions_of

SOURCE = """
def get_item(self, key):
    return self.items[key]
def nan(x):
    if x: return None
    return "NULL"
def is_null(y): return y is None
async def put(queue, item): await queue.put(item)
"""
SPLIT = {"train": [0, 3], "valid": [2], "test": [1]}
LABELS = ["get item", "nan", "is null", "put"]


def write(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode()))


def write_code2(root: Path, order: Callable[[int, int], int] = lambda v, size: v) -> None:
    """:obj:`order` gives the row of the node that is v-th in pre-order."""
    functions = functions_of(SOURCE)
    words = sorted({word for f in functions for word in f.attribute if word is not None})
    attributes = [*words, "__UNK__", "__NONE__"]
    raw: dict[str, list[str]] = {
        name: []
        for name in (
            *("edge", "num-node-list", "num-edge-list", "node-feat", "node_dfs_order"),
            *("node_depth", "node_is_attributed"),
        )
    }
    for function in functions:
        size = len(function)
        row = [order(v, size) for v in range(size)]
        raw["num-node-list"].append(str(size))
        raw["num-edge-list"].append(str(size - 1))
        raw["edge"] += [
            f"{row[v - offset]},{row[v]}" for v, offset in enumerate(function.parent_offset) if v
        ]
        for v in sorted(range(size), key=row.__getitem__):
            word = function.attribute[v]
            index = attributes.index("__NONE__" if word is None else word)
            raw["node-feat"].append(f"{function.node_type[v]},{index}")
            raw["node_dfs_order"].append(str(v))
            raw["node_depth"].append("0")  # follows from the edges
            raw["node_is_attributed"].append(str(int(word is not None)))
    for name, lines in raw.items():
        write(root / "raw" / f"{name}.csv.gz", lines)
    write(root / "raw" / "graph-label.csv.gz", LABELS)
    for name, graphs in SPLIT.items():
        write(root / "split" / "project" / f"{name}.csv.gz", [str(g) for g in graphs])
    types = [f"{i},{name}" for i, name in enumerate(NODE_TYPES)]
    write(root / "mapping" / "typeidx2type.csv.gz", ["type idx,type", *types])
    quoted = [f'{i},"{word}"' for i, word in enumerate(attributes)]
    write(root / "mapping" / "attridx2attr.csv.gz", ["attr idx,attr", *quoted])


def backwards_but_the_root(v: int, size: int) -> int:
    return size - v if v else 0


@pytest.mark.parametrize("order", [lambda v, size: v, backwards_but_the_root])
@pytest.mark.parametrize("edges", ["full", "ast"])
def test_graphs_are_those_of_the_parsed_functions(
    tmp_path: Path, order: Callable[[int, int], int], edges: str
) -> None:
    write_code2(tmp_path / "ogbg_code2", order)
    data = load_code_dataset(tmp_path / "ogbg_code2", edges=edges)
    functions = functions_of(SOURCE)
    for name, members in SPLIT.items():
        chosen: list[FunctionGraph] = [functions[g] for g in members]
        expected, found = graphs_of(chosen, data.vocabulary, edges), getattr(data, name)
        assert found.keys() == expected.keys()
        for key in expected.keys():  # noqa: SIM118 - not a dict
            assert torch.equal(found.column(key), expected.column(key)), key
        for g in range(len(chosen)):
            for key in ("edge_index", "level", "reverse_level"):
                assert torch.equal(found[g][key], expected[g][key])


def test_words_that_look_like_missing_values(tmp_path: Path) -> None:
    write_code2(tmp_path)
    data = load_code_dataset(tmp_path)
    assert data.vocabulary.tokens == ["get", "item", "put", "__UNK__", "__EOS__"]
    known = load_code_dataset(tmp_path).vocabulary
    assert data.test[0].name_tokens.tolist() == [-1]
    assert "self" in known.attributes


def test_folder_of_the_archive_is_found(tmp_path: Path) -> None:
    write_code2(tmp_path / "code2")
    assert len(load_code_dataset(tmp_path).train) == 2
    same = load_code_dataset(tmp_path / "code2")
    assert load_code_dataset(tmp_path).fingerprint == same.fingerprint


def test_fingerprint_changes_with_the_data(tmp_path: Path) -> None:
    write_code2(tmp_path)
    before = load_code_dataset(tmp_path).fingerprint
    write(tmp_path / "raw" / "graph-label.csv.gz", ["other", *LABELS[1:]])
    assert load_code_dataset(tmp_path).fingerprint != before


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("raw/edge", ["0,1"]),
        ("raw/edge", ["0"]),
        ("raw/num-node-list", ["-1", "5", "5", "5"]),
        ("raw/graph-label", ["one"]),
        ("raw/node_dfs_order", ["0"]),
        ("raw/node-feat", ["0,word"]),
        ("split/project/valid", ["99"]),
        ("split/project/valid", ["0"]),
        ("mapping/typeidx2type", ["type idx,type", "1,Module"]),
        ("mapping/attridx2attr", ["attr idx,attr", "0,one"]),
    ],
)
def test_damaged_data_is_refused(tmp_path: Path, name: str, lines: list[str]) -> None:
    write_code2(tmp_path)
    write(tmp_path / f"{name}.csv.gz", lines)
    with pytest.raises(ValueError, match="expected a complete ogbg-code2"):
        load_code_dataset(tmp_path)


@pytest.mark.parametrize("name", ["raw/edge", "raw/graph-label"])
def test_truncated_files_are_refused(tmp_path: Path, name: str) -> None:
    write_code2(tmp_path)
    path = tmp_path / f"{name}.csv.gz"
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(ValueError, match="expected a complete ogbg-code2"):
        load_code_dataset(tmp_path)


def test_cycle_in_the_order_is_refused(tmp_path: Path) -> None:
    write_code2(tmp_path)
    lines = gzip.decompress((tmp_path / "raw" / "edge.csv.gz").read_bytes()).decode().split()
    write(tmp_path / "raw" / "edge.csv.gz", ["1,0", *lines[1:]])
    with pytest.raises(ValueError, match="graph 0: expected a tree"):
        load_code_dataset(tmp_path)


def test_missing_file_is_named(tmp_path: Path) -> None:
    write_code2(tmp_path)
    (tmp_path / "raw" / "edge.csv.gz").unlink()
    with pytest.raises(FileNotFoundError, match=r"edge\.csv\.gz"):
        load_code_dataset(tmp_path)
