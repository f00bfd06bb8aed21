from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from dagnn.datasets.code_dataset import CodeVocabulary, graphs_of, load_code_dataset
from dagnn.datasets.functions import NODE_TYPES, functions_of

ROWS = [
    # split, name, parents' offsets, attributes
    ("train", "get_item", [-1, 1, 1, 2], [None, "_mask_", "self", "item"]),
    ("valid", "setItem", [-1, 1, 1], [None, "_mask_", "new"]),
    ("train", "get", [-1, 1, 1, 1, 1], [None, "_mask_", None, "self", "__RARE__"]),
    ("test", "load", [-1, 1], [None, "_mask_"]),
]


def table(rows: list[Any] = ROWS, **replaced: Any) -> pyarrow.Table:
    columns = {
        "split": pyarrow.array([r[0] for r in rows]).dictionary_encode(),
        "name": pyarrow.array([r[1] for r in rows], pyarrow.string()),
        "node_type": pyarrow.array(
            [[i % 3 for i in range(len(r[2]))] for r in rows], pyarrow.list_(pyarrow.uint8())
        ),
        "parent_offset": pyarrow.array([r[2] for r in rows], pyarrow.list_(pyarrow.int16())),
        "attribute": pyarrow.array([r[3] for r in rows], pyarrow.list_(pyarrow.string())),
        "note": pyarrow.array(["ignored"] * len(rows)),
    }
    columns = {name: c for name, c in (columns | replaced).items() if c is not None}
    metadata = {"node_types": json.dumps(["Module", "FunctionDef", "Name"])}
    return pyarrow.table(columns).replace_schema_metadata(metadata)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "few.parquet"
    pyarrow.parquet.write_table(table(), path)
    return path


def test_splits_and_vocabulary(file: Path) -> None:
    data = load_code_dataset(file)
    assert (data.name, data.edges) == ("few", "full")
    assert [len(s) for s in (data.train, data.valid, data.test)] == [2, 1, 1]
    assert data.vocabulary.node_types == ["Module", "FunctionDef", "Name", "__UNK__"]
    assert data.vocabulary.attributes == ["_mask_", "self", "item", "__UNK__", "__NONE__"]
    assert data.vocabulary.tokens == ["get", "item", "__UNK__", "__EOS__"]
    assert data.fingerprint == hashlib.sha256(file.read_bytes()).hexdigest()
    assert data.train[1].attribute.tolist() == [4, 0, 4, 1, 3]
    assert data.train[0].edge_index.tolist() == [[0, 1, 1, 1, 2], [1, 2, 3, 2, 3]]
    assert data.valid[0].tokens.tolist() == [[2, 1, 3, 3, 3]]
    assert data.valid[0].name_tokens.tolist() == [-1, 1]


def test_ast_edges_alone(file: Path) -> None:
    data = load_code_dataset(file, edges="ast")
    assert data.train[0].edge_type.tolist() == [0, 0, 0]
    assert data.train.column("longest_path").tolist() == [3, 5]
    assert load_code_dataset(file).train.column("longest_path").tolist() == [4, 5]


def test_part_of_the_training_split_with_the_whole_vocabulary(tmp_path: Path) -> None:
    rows = [("train", f"name{i}", [-1, 1], [None, f"word{i}"]) for i in range(40)]
    path = tmp_path / "many.parquet"
    pyarrow.parquet.write_table(table(rows), path)

    def sample(seed: int) -> list[int]:
        data = load_code_dataset(path, train_share=0.15, seed=seed)
        assert len(data.train) == 6
        assert len(data.vocabulary.attributes) == 42
        return data.train.column("second_attribute").tolist()

    assert sample(0) == sample(0) != sample(1)
    assert len(set(sample(0))) == 6


def test_given_vocabulary(file: Path) -> None:
    known = CodeVocabulary.of(["Name", "Module"], {"item": 1}, {"set": 1})
    data = load_code_dataset(file, vocabulary=known)
    assert data.vocabulary is known
    assert data.train[0].attribute.tolist() == [2, 1, 1, 0]
    assert data.train[0].node_type.tolist() == [1, 2, 0, 1]
    assert data.valid[0].tokens.tolist() == [[0, 1, 2, 2, 2]]


@pytest.mark.parametrize("share", [0, -1, 1.5])
def test_bad_share_is_refused(file: Path, share: float) -> None:
    with pytest.raises(ValueError, match="share of the training split"):
        load_code_dataset(file, train_share=share)


def without_type_names() -> pyarrow.Table:
    return table().replace_schema_metadata({})


LISTS = pyarrow.list_(pyarrow.int16())
DAMAGED = {
    "no column": lambda: table(parent_offset=None),
    "no type names": without_type_names,
    "no lists": lambda: table(node_type=pyarrow.array([1, 2, 3, 4])),
    "missing list": lambda: table(parent_offset=pyarrow.array([None, [1], [1], [1]], LISTS)),
    "unequal lists": lambda: table(parent_offset=pyarrow.array([[-1, 1]] * 4, LISTS)),
    "missing number": lambda: table([("train", "f", [-1, None], [None, None])]),
    "missing name": lambda: table([("train", None, [-1, 1], [None, None])]),
    "unknown split": lambda: table([("dev", "f", [-1, 1], [None, None])]),
    "parent outside": lambda: table([("train", "f", [-1, 2], [None, None])]),
    "unknown type": lambda: table(
        [("train", "f", [-1, 1], [None, None])], node_type=pyarrow.array([[0, 9]], LISTS)
    ),
    "negative type": lambda: table(
        [("train", "f", [-1, 1], [None, None])], node_type=pyarrow.array([[0, -1]], LISTS)
    ),
    "one node": lambda: table([("train", "f", [-1], [None])]),
    "no functions": lambda: table([]),
    "no training functions": lambda: table([("test", "f", [-1, 1], [None, None])]),
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_damaged_files_are_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "damaged.parquet"
    pyarrow.parquet.write_table(DAMAGED[kind](), path)
    with pytest.raises(ValueError, match="expected"):
        load_code_dataset(path)


@pytest.mark.parametrize("content", [b"", b"no parquet at all", b"PAR1" * 20])
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other.parquet"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"other\.parquet"):
        load_code_dataset(path)


def test_truncated_file_is_refused(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-30])
    with pytest.raises(ValueError, match=r"few\.parquet"):
        load_code_dataset(file)


def test_missing_source_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="dagnn data code"):
        load_code_dataset(tmp_path)


def test_graphs_of_parsed_functions() -> None:
    functions = functions_of("def get(self): return self.x\nasync def put(y): await y")
    known = CodeVocabulary.of(NODE_TYPES, {"self": 2}, {"get": 1})
    flat = graphs_of(functions, known)
    assert len(flat) == 2
    assert flat.column("tokens")[:, 0].tolist() == [0, 1]
    assert flat[0].node_type.tolist() == list(functions[0].node_type)
    assert flat[0].attribute.tolist().count(0) == 2
    assert flat.num_edges > graphs_of(functions, known, "ast").num_edges == flat.num_nodes - 2
    assert len(graphs_of([], known)) == 0


def test_benchmark_corpus() -> None:
    """The figures that the data set is known by."""
    folder = Path(os.environ.get("DAGNN_DATA", Path(__file__).parents[3] / "shared" / "data"))
    path = folder / "github_functions.parquet"
    if not path.exists():
        pytest.skip(f"needs {path.name} in $DAGNN_DATA, the corpus of the reported results")
    data = load_code_dataset(path, edges="ast")
    splits = data.train, data.valid, data.test
    assert [len(split) for split in splits] == [202_346, 20_000, 22_000]
    assert sum(split.num_nodes for split in splits) / 244_346 == pytest.approx(119, abs=0.1)
    depths = np.concatenate([split.depths.numpy() for split in splits])
    assert depths.mean() == pytest.approx(9.6, abs=0.05)
    assert [len(getattr(data.vocabulary, n)) for n in ("attributes", "tokens")] == [10_002, 5_002]
    best = 0.0
    for g in range(len(data.test)):
        name = data.test[g].name_tokens
        known = min(5, int((name >= 0).sum()))
        best += 2 * known / (known + len(name)) if known else 0
    assert 100 * best / len(data.test) == pytest.approx(90.98, abs=0.005)
