"""From Python source to the syntax trees of its functions. Nothing is imported or executed.

A function's tree is listed in depth-first pre-order, from a ``Module`` on, as :mod:`ast` lists the
children of a node. Trees are the same in all versions of Python that can parse the source: where
one knows more fields (``type_params`` since 3.12), these come last and are empty in older code, and
types of nodes are numbered by :data:`NODE_TYPES`, not by what this Python has.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import re
import textwrap
import warnings
from array import array
from dataclasses import dataclass
from typing import Any

__all__ = [
    "MASK",
    "NODE_TYPES",
    "FunctionGraph",
    "SourceError",
    "decode_source",
    "functions_of",
    "functions_of_snippet",
]

MASK = "_mask_"  # in place of the function's own name
ATTRIBUTE_FIELDS = ("name", "arg", "value", "id", "attr")  # the first that holds a word counts
NEVER_NODES = {"arg", "attr", "conversion", "id", "kind", "module", "type_comment"}
MAX_ATTRIBUTE = 48  # characters
LARGEST_DECIMAL = 10_000  # bits; Python refuses to write much larger numbers in decimal digits
LONE_SURROGATE = re.compile("[\ud800-\udfff]")  # valid in strings of Python, but not in UTF-8

# Python 3.11 to 3.14; what comes later is an unknown type until it is added, at the end.
NODE_TYPES = (
    *("Module", "FunctionDef", "AsyncFunctionDef", "ClassDef", "Lambda", "arguments", "arg"),
    *("Return", "Delete", "Assign", "AugAssign", "AnnAssign", "TypeAlias", "For", "AsyncFor"),
    *("While", "If", "With", "AsyncWith", "withitem", "Match", "match_case", "Raise", "Try"),
    *("TryStar", "ExceptHandler", "Assert", "Import", "ImportFrom", "alias", "Global", "Nonlocal"),
    *("Expr", "Pass", "Break", "Continue", "BoolOp", "NamedExpr", "BinOp", "UnaryOp", "IfExp"),
    *("Dict", "Set", "ListComp", "SetComp", "DictComp", "GeneratorExp", "comprehension", "Await"),
    *("Yield", "YieldFrom", "Compare", "Call", "keyword", "FormattedValue", "Interpolation"),
    *("JoinedStr", "TemplateStr", "Constant", "Attribute", "Subscript", "Starred", "Name", "List"),
    *("Tuple", "Slice", "Load", "Store", "Del", "And", "Or", "Add", "Sub", "Mult", "MatMult"),
    *("Div", "Mod", "Pow", "LShift", "RShift", "BitOr", "BitXor", "BitAnd", "FloorDiv", "Invert"),
    *("Not", "UAdd", "USub", "Eq", "NotEq", "Lt", "LtE", "Gt", "GtE", "Is", "IsNot", "In"),
    *("NotIn", "MatchValue", "MatchSingleton", "MatchSequence", "MatchMapping", "MatchClass"),
    *("MatchStar", "MatchAs", "MatchOr", "TypeVar", "ParamSpec", "TypeVarTuple", "__UNK__"),
)
_TYPE_INDEX = {name: i for i, name in enumerate(NODE_TYPES)}
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DEFINITIONS = (*_FUNCTIONS, ast.ClassDef)
_DEFINITION_TYPES = frozenset(_TYPE_INDEX[kind.__name__] for kind in _DEFINITIONS)
_FUNCTION_TYPES = frozenset(_TYPE_INDEX[kind.__name__] for kind in _FUNCTIONS)
_MODULE = bytes([_TYPE_INDEX["Module"]])


class SourceError(SyntaxError):
    """Source that cannot be parsed, with a word on why, the file, and line and column where the
    error has a place."""

    def __init__(
        self,
        reason: str,
        message: str,
        filename: str,
        line: int | None = None,
        column: int | None = None,
    ) -> None:
        super().__init__(message, (filename, line, column, None))
        self.reason = reason

    def __reduce__(self) -> tuple[Any, ...]:
        # As it is made, which is not as SyntaxError is: else it cannot leave its process.
        return SourceError, (self.reason, self.msg, self.filename, self.lineno, self.offset)


@dataclass(frozen=True, slots=True)
class FunctionGraph:
    """One function: who it is, and its syntax tree in depth-first pre-order.

    Node 0 is a ``Module``, node 1 the function.

    Args:
        name: The function's own name; in the tree it is masked.
        qualified_name: With the classes and functions around it, as ``Class.method`` or
            ``outer.<locals>.inner``.
        line: Where ``def`` stands, counted from 1.
        node_type: Indices into :data:`NODE_TYPES`. ``[N]``
        parent_offset: Index of the node minus index of its parent, -1 for node 0. ``[N]``
        attribute: The name, argument, value or identifier that a node carries, if any. ``[N]``
    """

    name: str
    qualified_name: str
    line: int
    node_type: bytes
    parent_offset: array[int]
    attribute: list[str | None]

    def __len__(self) -> int:
        return len(self.node_type)

    def digest(self) -> bytes:
        """A hash that is equal where the DAGs are, whatever the functions are called."""
        words = repr(self.attribute).encode()
        tree = self.node_type + self.parent_offset.tobytes()
        return hashlib.blake2b(tree + words, digest_size=16).digest()


def functions_of(source: str, filename: str = "<string>") -> list[FunctionGraph]:
    """All functions of some source code, in the order in which they begin.

    Methods, functions inside of functions and ``async`` ones are functions of their own, and part
    of the function around them. A ``lambda`` has no name, and is only part of what is around it.

    Args:
        source: The text of a module.
        filename: For error messages.

    Raises:
        SourceError: A :class:`SyntaxError` with file, line and column; source that is nested too
            deeply has no place.

    Example:
        >>> [f] = functions_of("class A:\\n    def half(self):\\n        return self.x / 2")
        >>> f.qualified_name, f.line, len(f)
        ('A.half', 2, 12)
        >>> [NODE_TYPES[i] for i in f.node_type[:4]], f.attribute[:4]
        (['Module', 'FunctionDef', 'arguments', 'arg'], [None, '_mask_', None, 'self'])
    """
    tree = _parse(source, filename)
    node_type = bytearray()
    parent_offset = array("i")
    attribute: list[str | None] = []
    found: list[tuple[int, str, str, int]] = []  # index, names and line of each function
    end: dict[int, int] = {}  # index behind the last node of each function
    scope = [""]
    stack: list[tuple[ast.AST | None, int]] = [(tree, 0)]  # nodes to come, and their parents
    while stack:
        node, parent = stack.pop()
        index = len(node_type)
        if node is None:  # all of a definition has been visited
            end[parent] = index
            scope.pop()
            continue
        number, fields, attribute_fields = _LAYOUTS[type(node)]
        node_type.append(number)
        parent_offset.append(index - parent)
        attribute.append(_attribute(node, attribute_fields) if attribute_fields else None)
        if not fields:
            continue
        if number in _DEFINITION_TYPES:
            assert isinstance(node, _DEFINITIONS)
            name = scope[-1] + node.name
            is_function = isinstance(node, _FUNCTIONS)
            if is_function:
                found.append((index, node.name, name, node.lineno))
            scope.append(name + (".<locals>." if is_function else "."))
            stack.append((None, index))
        first = len(stack)
        for field in fields:
            value = getattr(node, field, None)
            if isinstance(value, list):
                stack += [(child, index) for child in value if isinstance(child, ast.AST)]
            elif isinstance(value, ast.AST):
                stack.append((value, index))
        if len(stack) > first + 1:
            stack[first:] = reversed(stack[first:])
    # In pre-order, a function is a contiguous part of its module.
    return [
        FunctionGraph(
            _valid(name),
            _valid(qualified),
            line,
            _MODULE + node_type[index : end[index]],
            array("i", [-1, 1]) + parent_offset[index + 1 : end[index]],
            _masked(node_type[index : end[index]], attribute[index : end[index]]),
        )
        for index, name, qualified, line in found
    ]


def functions_of_snippet(source: str, filename: str = "<string>") -> list[FunctionGraph]:
    """As :func:`functions_of`, also of lines that are all indented, as a method that was copied."""
    is_indented = source.lstrip("\r\n")[:1] in (" ", "\t")
    return functions_of(textwrap.dedent(source) if is_indented else source, filename)


def decode_source(content: bytes, filename: str = "<string>") -> str:
    """The text of a module, by its coding declaration or else in UTF-8.

    Raises:
        SourceError: At the first byte that cannot be decoded, or without a place if the encoding
            is unknown.
    """
    try:
        return importlib.util.decode_source(content)
    except (SyntaxError, UnicodeError, LookupError, ValueError) as error:
        place = _place_of_bad_byte(content, error)
        raise SourceError("undecodable", str(error), filename, *place) from error


def _place_of_bad_byte(content: bytes, error: Exception) -> tuple[int, ...]:
    if not isinstance(error, UnicodeDecodeError):
        # In the lines that may declare an encoding, Python does not tell where UTF-8 ends.
        try:
            b"\n".join(content.split(b"\n", 2)[:2]).decode()
        except UnicodeDecodeError as found:
            error = found
        else:
            return ()
    return _place_after(error.object[: error.start].decode(error.encoding, "replace"))


def _place_after(text: str) -> tuple[int, int]:
    """Line and column, counted from 1."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return len(lines), len(lines[-1]) + 1


def _masked(node_type: bytearray, attribute: list[str | None]) -> list[str | None]:
    """A function's attributes, with its own name masked, also where functions inside of it have
    the same one; and before them that of a ``Module``."""
    own = attribute[0]
    return [
        None,
        *(
            MASK if word == own and kind in _FUNCTION_TYPES else word
            for word, kind in zip(attribute, node_type, strict=True)
        ),
    ]


def _parse(source: str, filename: str) -> ast.Module:
    if "\0" in source:
        place = _place_after(source[: source.index("\0")])
        raise SourceError("null bytes", "source code with null bytes", filename, *place)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what the source does, such as "\d"
            return ast.parse(source, filename)
    except SyntaxError as error:
        line, column = error.lineno or 1, error.offset or 1
        raise SourceError("syntax error", error.msg, filename, line, column) from error
    except (RecursionError, MemoryError) as error:
        message = "source code nested too deeply to be parsed"
        raise SourceError("nested too deeply", message, filename) from error
    except UnicodeEncodeError as error:
        place = _place_after(error.object[: error.start])
        raise SourceError("undecodable", str(error), filename, *place) from error
    except ValueError as error:
        raise SourceError("unparsable", str(error), filename) from error


def _layout(kind: type[ast.AST]) -> tuple[int, tuple[str, ...], tuple[str, ...]]:
    """The number of a type of nodes, the fields that may hold nodes, and those for a word."""
    number = _TYPE_INDEX.get(kind.__name__, _TYPE_INDEX["__UNK__"])
    nodes = tuple(name for name in kind._fields if name not in NEVER_NODES)
    return number, nodes, tuple(name for name in ATTRIBUTE_FIELDS if name in kind._fields)


_LAYOUTS = {
    kind: _layout(kind)
    for kind in vars(ast).values()
    if isinstance(kind, type) and issubclass(kind, ast.AST)
}


def _attribute(node: ast.AST, fields: tuple[str, ...]) -> str | None:
    for field in fields:
        value = getattr(node, field, None)
        if value is None or isinstance(value, ast.AST):
            continue
        if isinstance(value, str):
            return _valid(value[:MAX_ATTRIBUTE])
        if isinstance(value, bytes):
            value = value[:MAX_ATTRIBUTE]
        if isinstance(value, int) and value.bit_length() > LARGEST_DECIMAL:
            return hex(value)[:MAX_ATTRIBUTE]
        return repr(value)[:MAX_ATTRIBUTE]
    return None


def _valid(text: str) -> str:
    return text if text.isascii() else LONE_SURROGATE.sub("\ufffd", text)
