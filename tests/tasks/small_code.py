"""A data set of small functions whose names follow from what they do."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dagnn.datasets.code_dataset import CodeDataset, graphs_of
from dagnn.datasets.code_vocabulary import CodeVocabulary, sub_tokens
from dagnn.datasets.functions import NODE_TYPES, FunctionGraph, functions_of

VERBS = {"get": "return {x}", "print": "print({x})", "count": "return len({x})", "del": "del {x}"}
NOUNS = ("name", "user", "file", "row", "node", "key")
SHAPES = ("{b}", "if {x}:\n        {b}", "for i in {x}:\n        if i:\n            {b}")


@cache
def functions() -> list[FunctionGraph]:
    out = []
    for (verb, body), noun, shape in product(VERBS.items(), NOUNS, SHAPES):
        text = shape.format(x=noun, b=body.format(x=noun))
        out += functions_of(f"def {verb}_{noun}({noun}):\n    {text}\n    pass")
    return [out[i] for i in np.random.default_rng(0).permutation(len(out))]


@cache
def vocabulary() -> CodeVocabulary:
    words = Counter(word for f in functions() for word in f.attribute if word is not None)
    tokens = Counter(token for f in functions() for token in sub_tokens(f.name))
    return CodeVocabulary.of(NODE_TYPES, words, tokens)


def dataset(edges: str = "full") -> CodeDataset:
    parts = [graphs_of(part, vocabulary(), edges) for part in
             (functions()[:48], functions()[48:60], functions()[60:])]  # fmt: skip
    return CodeDataset("small", *parts, vocabulary(), edges, "0" * 64)


def write_parquet(path: Path) -> None:
    """The data set as a file of the corpus's schema."""
    splits = ["train"] * 48 + ["valid"] * 12 + ["test"] * (len(functions()) - 60)
    table = pa.table(
        {
            "project": [f"owner/{split}" for split in splits],
            "split": splits,
            "name": [f.name for f in functions()],
            "node_type": pa.array([list(f.node_type) for f in functions()], pa.list_(pa.uint8())),
            "parent_offset": pa.array(
                [list(f.parent_offset) for f in functions()], pa.list_(pa.int16())
            ),
            "attribute": pa.array([f.attribute for f in functions()], pa.list_(pa.string())),
        }
    )
    pq.write_table(table.replace_schema_metadata({"node_types": json.dumps(NODE_TYPES)}), path)
