"""Baselines against loops over Python sets."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dagnn.datasets.code_dataset import graphs_of
from dagnn.datasets.code_vocabulary import CodeVocabulary, sub_tokens
from dagnn.datasets.functions import MASK, NODE_TYPES, FunctionGraph, functions_of
from dagnn.tasks.simple_baselines import (
    best_achievable_f1,
    majority_in_valid,
    node_to_token,
    simple_baselines,
    target_in_graph,
)
from tests.tasks.small_code import dataset

SOURCE = """
def read_file_name(file): return open(file).name
def f(x): return x
def a_b_c_d_e_f_file(read_name): return read_name
def mask_rows(rows): return rows
"""
FUNCTIONS = functions_of(SOURCE)
TOKENS = {"read": 3, "file": 2, "name": 2, "mask": 1, "a": 1, "b": 1, "f": 1}
VOCABULARY = CodeVocabulary.of(
    NODE_TYPES, {"file": 2, "read_name": 1, "name": 1, "_mask_": 1}, TOKENS
)
GRAPHS = graphs_of(FUNCTIONS, VOCABULARY)


def f1(predicted: set[str], true: set[str]) -> float:
    return 2 * len(predicted & true) / (len(predicted) + len(true)) if predicted else 0.0


def _unmasked(function: FunctionGraph) -> list[str | None]:
    return [function.name if word == MASK else word for word in function.attribute]


def test_best_achievable() -> None:
    expected = []
    for f in FUNCTIONS:
        words = sub_tokens(f.name)
        expected.append(f1({w for w in words[:5] if w in TOKENS}, set(words)))
    assert best_achievable_f1(GRAPHS, VOCABULARY) == pytest.approx(sum(expected) / 4)


def test_target_in_graph() -> None:
    expected = []
    for f in FUNCTIONS:
        known = [w for w in f.attribute if w in VOCABULARY.attributes[:-2] and w != "_mask_"]
        present = {token for word in known for token in sub_tokens(word) if token in TOKENS}
        true = set(sub_tokens(f.name))
        expected.append(f1(present & true, true))
    assert 0 < sum(expected) < 4
    assert target_in_graph(GRAPHS, VOCABULARY) == pytest.approx(sum(expected) / 4)


def test_node_to_token_finds_nothing_behind_a_mask() -> None:
    """Which is no word: `mask_rows` has none of its own either."""
    assert node_to_token(GRAPHS, VOCABULARY) == 0.0
    open_names = [replace(f, attribute=_unmasked(f)) for f in FUNCTIONS]
    words = {f.name: 1 for f in FUNCTIONS}
    vocabulary = CodeVocabulary.of(NODE_TYPES, words, TOKENS)
    expected = [f1(set(sub_tokens(f.name)) & {*TOKENS}, {*sub_tokens(f.name)}) for f in FUNCTIONS]
    found = node_to_token(graphs_of(open_names, vocabulary), vocabulary)
    assert found == pytest.approx(sum(expected) / 4)


def test_majority() -> None:
    data = dataset("ast")
    valid, test = (part.column("longest_path").tolist() for part in (data.valid, data.test))
    most = max(sorted(set(valid)), key=valid.count)
    assert majority_in_valid(data.valid, data.test) == pytest.approx(test.count(most) / len(test))


def test_all_of_a_task() -> None:
    data = dataset()
    tok = simple_baselines("tok", data.valid, data.test, data.vocabulary)
    assert list(tok) == ["Node2Token", "TargetInGraph", "best achievable"]
    assert tok["best achievable"] == pytest.approx(1.0)
    assert list(simple_baselines("lp", data.valid, data.test, data.vocabulary)) == [
        "MajorityInValid"
    ]
