"""Functions are what :mod:`ast` says they are, found by an independent, recursive walk."""

from __future__ import annotations

import argparse
import ast
import asyncio.base_events
import dataclasses
import enum
import inspect
import pickle
import sys
import typing
from types import ModuleType

import pytest

from dagnn.datasets.functions import (
    MASK,
    NODE_TYPES,
    FunctionGraph,
    SourceError,
    decode_source,
    functions_of,
)


def word_of(node: ast.AST) -> str | None:
    for field in ("name", "arg", "value", "id", "attr"):
        value = getattr(node, field, None)
        if isinstance(value, str):
            return value[:48]
        if value is not None and not isinstance(value, ast.AST):
            return repr(value)[:48]
    return None


def tree_of(function: ast.AST) -> tuple[list[str], list[int], list[str | None]]:
    """Types, parents and attributes in pre-order, by recursion."""
    types: list[str] = []
    parents: list[int] = []
    words: list[str | None] = []

    def visit(node: ast.AST, parent: int) -> None:
        index = len(types)
        types.append(type(node).__name__)
        parents.append(parent)
        word = word_of(node)
        same_name = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (
            node.name == function.name  # type: ignore[attr-defined]
        )
        words.append(MASK if same_name else word)
        for child in ast.iter_child_nodes(node):
            visit(child, index)

    visit(ast.Module([function], []), -1)
    return types, parents, words


def parents_of(function: FunctionGraph) -> list[int]:
    return [-1, *(i - offset for i, offset in enumerate(function.parent_offset) if i)]


@pytest.mark.parametrize("module", [argparse, asyncio.base_events, dataclasses, enum, typing])
def test_functions_are_those_of_a_recursive_walk(module: ModuleType) -> None:
    source = inspect.getsource(module)
    found = functions_of(source, "module.py")
    expected = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    assert len(found) == len(expected) > 20
    by_place = {(node.lineno, node.name): node for node in expected}
    assert [f.line for f in found] == sorted(f.line for f in found)
    for function in found:
        types, parents, words = tree_of(by_place[function.line, function.name])
        assert [NODE_TYPES[i] for i in function.node_type] == types
        assert parents_of(function) == parents
        assert function.attribute == words
        assert function.parent_offset[0] == -1


def test_node_types_are_all_that_python_has() -> None:
    ours = set(NODE_TYPES)
    assert len(ours) == len(NODE_TYPES) <= 256
    abstract = {"AST", "mod", "stmt", "expr", "expr_context", "boolop", "operator", "unaryop"}
    abstract |= {"cmpop", "excepthandler", "pattern", "type_ignore", "type_param", "slice"}
    old = {"Interactive", "Expression", "FunctionType", "TypeIgnore", "Suite", "Param", "AugLoad"}
    old |= {"AugStore", "Num", "Str", "Bytes", "NameConstant", "Ellipsis", "Index", "ExtSlice"}
    python = {name for name, kind in vars(ast).items() if isinstance(kind, type) and name[0] != "_"}
    classes = {name for name in python if issubclass(getattr(ast, name), ast.AST)}
    assert classes - abstract - old <= ours


def test_qualified_names() -> None:
    source = """
class Outer:
    class Inner:
        async def method(self):
            def helper(): pass
            return lambda: helper()
    def last(self): pass
def top(): pass
"""
    assert [f.qualified_name for f in functions_of(source)] == [
        "Outer.Inner.method",
        "Outer.Inner.method.<locals>.helper",
        "Outer.last",
        "top",
    ]
    assert [f.name for f in functions_of(source)] == ["method", "helper", "last", "top"]


def test_own_name_is_masked_where_it_is_defined_not_where_it_is_called() -> None:
    source = "def walk(n):\n    def walk(m): return walk(m)\n    class other: pass\n    walk(n)"
    outer, inner = functions_of(source)
    assert outer.attribute.count(MASK) == 2
    assert outer.attribute.count("walk") == 2
    assert inner.attribute.count(MASK) == 1


@pytest.mark.parametrize(
    ("literal", "word"),
    [
        ("'text'", "text"),
        ("'" + "x" * 60 + "'", "x" * 48),
        ("b'ab'", "b'ab'"),
        ("1.50", "1.5"),
        ("2j", "2j"),
        ("True", "True"),
        ("...", "Ellipsis"),
        ("None", None),
        ("0x" + "f" * 10_000, "0x" + "f" * 46),
        (r"'a\ud800b'", "a\ufffdb"),
        ("''", ""),
    ],
)
def test_constants(literal: str, word: str | None) -> None:
    [function] = functions_of(f"def f(): return {literal}")
    assert NODE_TYPES[function.node_type[-1]] == "Constant"
    assert function.attribute[-1] == word


def test_attributes_of_other_nodes() -> None:
    source = "def f(a, **b):\n    import c.d as e\n    try: pass\n    except X as y: g(k=a, **b).h"
    [function] = functions_of(source)
    types = [NODE_TYPES[i] for i in function.node_type]
    words = list(zip(types, function.attribute, strict=True))
    assert [pair for pair in words if pair[0] in ("arg", "alias", "ExceptHandler", "keyword")] == [
        ("arg", "a"),
        ("arg", "b"),
        ("alias", "c.d"),
        ("ExceptHandler", "y"),
        ("keyword", "k"),
        ("keyword", None),
    ]
    assert ("Attribute", "h") in words


def test_digest_knows_the_dag_and_not_the_name() -> None:
    first, renamed, other_word, other_tree = functions_of(
        "def a(x): return x\ndef b(x): return x\ndef c(x): return y\ndef d(x): return x,"
    )
    assert first.digest() == renamed.digest()
    assert len({f.digest() for f in (first, other_word, other_tree)}) == 3


def test_digest_tells_no_attribute_from_the_word_none() -> None:
    none, word = functions_of("def a(): return None\ndef b(): return 'None'")
    assert none.node_type == word.node_type
    assert none.digest() != word.digest()


def test_trees_deeper_than_the_stack() -> None:
    limit = sys.getrecursionlimit()
    [function] = functions_of("def f(): return x" + "." + ".".join(["a"] * (limit + 100)))
    assert len(function) > limit


@pytest.mark.skipif(sys.version_info < (3, 12), reason="type parameters are new in Python 3.12")
def test_type_parameters_come_last() -> None:
    [plain] = functions_of("def f(x): return x")
    [generic] = functions_of("def f[T: int](x): return x")
    assert generic.node_type[: len(plain)] == plain.node_type
    assert NODE_TYPES[generic.node_type[len(plain)]] == "TypeVar"


@pytest.mark.parametrize(
    ("source", "reason", "line", "column"),
    [
        ("x = 1\ndef f(:\n    pass", "syntax error", 2, 7),
        ("x = 1\ny = '\0'", "null bytes", 2, 6),
        ("x = " + "-" * 100_000 + "1", "nested too deeply", None, None),
        ("x = 1\r\nx = '\ud800'", "undecodable", 2, 6),
        ("x = " + "9" * 10_000, "syntax error", 1, 1),
    ],
)
def test_errors_have_a_place(
    source: str, reason: str, line: int | None, column: int | None
) -> None:
    with pytest.raises(SyntaxError) as caught:
        functions_of(source, "some.py")
    error = caught.value
    assert isinstance(error, SourceError)
    assert (error.reason, error.filename, error.lineno) == (reason, "some.py", line)
    assert error.offset == column


@pytest.mark.parametrize(
    ("content", "line", "column"),
    [
        (b"x = '\xe9'\n", 1, 6),
        (b"x = 1\n\ny = '\xc3\xa9\xe9'\n", 3, 7),
        (b"x = 1\r\ry = '\xe9'\r", 3, 6),
        (b"\xef\xbb\xbfx = 1\n\ny\xff", 3, 2),
        (b"# coding: ascii\nx = '\xc3\xa9'\n", 2, 6),
        (b"# coding: klingon\nx = 1\ny = '\xe9'\n", None, None),
    ],
)
def test_bytes_that_are_no_text_have_a_place(
    content: bytes, line: int | None, column: int | None
) -> None:
    with pytest.raises(SourceError) as caught:
        decode_source(content, "some.py")
    error = caught.value
    assert (error.reason, error.filename) == ("undecodable", "some.py")
    assert (error.lineno, error.offset) == (line, column)


def test_text_is_decoded_as_declared() -> None:
    assert decode_source(b"# coding: latin-1\r\nx = '\xe9'") == "# coding: latin-1\nx = '\u00e9'"


def test_warnings_of_the_source_are_not_ours(recwarn: pytest.WarningsRecorder) -> None:
    functions_of("def f(): return '\\d' is 1")
    assert not recwarn.list


def test_nothing_is_executed() -> None:
    functions_of("import does_not_exist\nraise SystemExit\ndef f(x=exit()): pass")


def test_errors_can_leave_their_process() -> None:
    error = SourceError("syntax error", "not like this", "a.py", 3, 7)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is SourceError
    words = ("reason", "msg", "filename", "lineno", "offset")
    assert [getattr(again, w) for w in words] == [getattr(error, w) for w in words]
    assert str(again) == str(error)
