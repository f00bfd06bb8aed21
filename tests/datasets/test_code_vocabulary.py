from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagnn.datasets.code_vocabulary import CodeVocabulary, most_frequent, sub_tokens


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("get_item", ["get", "item"]),
        ("__init__", ["init"]),
        ("parseHTTPResponse", ["parse", "http", "response"]),
        ("HTTP", ["http"]),
        ("toUTF8String", ["to", "utf", "8", "string"]),
        ("x2", ["x", "2"]),
        ("ÄrgerLösen", ["ärger", "lösen"]),
        ("名前_取得", ["名前", "取得"]),
        ("_", ["_"]),
    ],
)
def test_sub_tokens(name: str, words: list[str]) -> None:
    assert list(sub_tokens(name)) == words


@given(st.from_regex(r"[^\W\d]\w*", fullmatch=True))
def test_sub_tokens_lose_nothing_but_underscores(name: str) -> None:
    words = sub_tokens(name)
    joined = name.replace("_", "")
    # Letter by letter: lower-casing may make two letters of one.
    assert "".join(words) == ("".join(letter.lower() for letter in joined) or name) or any(
        len(letter.lower()) != 1 or letter == "Σ" for letter in joined
    )


def test_most_frequent_breaks_ties_by_name() -> None:
    counts = {"b": 2, "a": 2, "c": 3, "never": 0, "__UNK__": 9, "__RARE__": 9}
    assert most_frequent(counts, 2) == ["c", "a"]
    assert most_frequent(counts, 9) == ["c", "a", "b"]


def vocabulary() -> CodeVocabulary:
    return CodeVocabulary.of(["Module", "Name"], {"self": 3, "x": 1}, {"get": 2, "set": 1})


def test_tables() -> None:
    known = vocabulary()
    assert known.node_type_table(["Name", "Walrus", "Module"]).tolist() == [1, 2, 0]
    words = ["x", "y", "__NONE__", "__RARE__", "__UNK__"]
    assert known.attribute_table(words).tolist() == [1, 2, 3, 2, 2, 3]
    assert known.token_ids(["set", "other", "__EOS__"]) == [1, -1, -1]


def test_json() -> None:
    known = vocabulary()
    assert CodeVocabulary.from_json(known.to_json()) == known


@pytest.mark.parametrize(
    "text",
    [
        "no json",
        "[]",
        '{"node_types": []}',
        json.dumps({"node_types": ["__UNK__"], "attributes": ["a"], "tokens": ["b"]}),
        json.dumps(
            {
                "node_types": ["a", "a", "__UNK__"],
                "attributes": ["__UNK__", "__NONE__"],
                "tokens": ["__UNK__", "__EOS__"],
            }
        ),
        json.dumps(
            {
                "node_types": [1, "__UNK__"],
                "attributes": ["__UNK__", "__NONE__"],
                "tokens": ["__UNK__", "__EOS__"],
            }
        ),
    ],
)
def test_bad_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        CodeVocabulary.from_json(text)
