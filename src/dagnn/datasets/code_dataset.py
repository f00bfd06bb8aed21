"""Data sets of code graphs, whatever they come from."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dagnn.datasets.code_columns import SPLITS, CodeColumns
from dagnn.datasets.code_parquet import read_parquet
from dagnn.datasets.code_vocabulary import CodeVocabulary, sub_tokens
from dagnn.datasets.corpus_writer import CORPUS_FILE
from dagnn.datasets.functions import NODE_TYPES, FunctionGraph
from dagnn.datasets.ogbg_code2 import is_ogbg_code2, read_ogbg_code2
from dagnn.graph.flat import FlatGraphs

__all__ = ["CodeDataset", "CodeVocabulary", "graphs_of", "load_code_dataset"]


@dataclass(frozen=True)
class CodeDataset:
    """Functions as DAGs: syntax trees, with the next-token edges or without them.

    Every graph has integers

    * of the nodes: ``node_type`` and ``attribute`` (indices into the vocabulary's lists) and
      ``depth`` in the syntax tree (20 from there on), ``[N]`` each;
    * of the edges: ``edge_type``, ``[E]``, 0 from parent to child, 1 from token to token;
    * of the graphs: ``tokens``, ``[G, 5]``, the sub-tokens of the function's name (``__UNK__``
      outside of the vocabulary, ``__EOS__`` behind the last one); ``longest_path``, ``[G]``, the
      number of levels over all edges that are there; ``second_attribute``, ``[G]``, of node 1;
    * ``name_tokens``, ragged: the distinct sub-tokens of the whole name, -1 for each that is
      outside of the vocabulary.
    """

    name: str
    train: FlatGraphs
    valid: FlatGraphs
    test: FlatGraphs
    vocabulary: CodeVocabulary
    edges: str
    fingerprint: str  # sha256 of what was read
    train_share: float = 1.0  # of the training split that was taken


def load_code_dataset(
    source: str | os.PathLike[str],
    *,
    edges: str = "full",
    train_share: float = 1.0,
    seed: int = 0,
    vocabulary: CodeVocabulary | None = None,
) -> CodeDataset:
    """Read a data set of code graphs.

    Args:
        source: A folder made by ``dagnn data code``, a Parquet file of the same schema (see
            :mod:`dagnn.datasets.code_parquet`), or a folder with ogbg-code2.
        edges: ``"full"`` for syntax tree and next-token edges, ``"ast"`` for the tree alone.
        train_share: Which part of the training split to take: a random sample of the functions.
        seed: Of that sample.
        vocabulary: The words to know; by default the most frequent of the whole training split.
    """
    if not 0 < train_share <= 1:
        raise ValueError(
            f"expected a share of the training split above 0 and up to 1, got {train_share}"
        )
    path = Path(source)
    columns, split, fingerprint = _read(path)
    members = [np.flatnonzero(split == i) for i in range(len(SPLITS))]
    train = columns.select(members[0])
    if vocabulary is None:
        if len(train) == 0:
            raise ValueError(f"expected functions of the split train in {path}, got none")
        vocabulary = train.vocabulary()
    if train_share < 1:
        count = max(1, round(train_share * len(train)))
        sample = np.random.default_rng(seed).choice(len(train), count, replace=False)
        train = train.select(np.sort(sample))
    return CodeDataset(
        path.stem,
        train.graphs(vocabulary, edges),
        columns.select(members[1]).graphs(vocabulary, edges),
        columns.select(members[2]).graphs(vocabulary, edges),
        vocabulary,
        edges,
        fingerprint,
        train_share,
    )


def graphs_of(
    functions: Sequence[FunctionGraph], vocabulary: CodeVocabulary, edges: str = "full"
) -> FlatGraphs:
    """Parsed functions as graphs, with the attributes of a :class:`CodeDataset`.

    Example:
        >>> from dagnn.datasets.functions import functions_of
        >>> vocabulary = CodeVocabulary.of(["Module", "Name"], {"self": 2}, {"half": 1})
        >>> graphs_of(functions_of("def half(x): return x / 2"), vocabulary).num_nodes
        10
    """
    words = list(dict.fromkeys(word for f in functions for word in f.attribute if word is not None))
    number = {word: i for i, word in enumerate(words)} | {None: -1}
    return CodeColumns(
        np.cumsum([0, *map(len, functions)], dtype=np.int64),
        np.frombuffer(b"".join(f.node_type for f in functions), np.uint8),
        np.concatenate([np.empty(0, np.int32), *(f.parent_offset for f in functions)]),
        np.array([number[word] for f in functions for word in f.attribute], dtype=np.int32),
        NODE_TYPES,
        words,
        [sub_tokens(f.name) for f in functions],
    ).graphs(vocabulary, edges)


def _read(path: Path) -> tuple[CodeColumns, np.ndarray, str]:
    if is_ogbg_code2(path):
        return read_ogbg_code2(path)
    file = path / CORPUS_FILE if path.is_dir() else path
    if not file.is_file():
        raise FileNotFoundError(
            f"expected a Parquet file, a corpus folder or an ogbg-code2 folder, got {path}; make "
            "a corpus with `dagnn data code`, or get one with `dagnn data get code2`"
        )
    with file.open("rb") as opened:
        fingerprint = hashlib.file_digest(opened, "sha256").hexdigest()
    return *read_parquet(file), fingerprint
