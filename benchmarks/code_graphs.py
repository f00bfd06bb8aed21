"""Graphs of the functions of Python's standard library: data for benchmarks on every machine.

A graph is the syntax tree of one function in depth-first pre-order, from ``Module`` on. Edges lead
from parent to child and, if asked for, from each attributed node to the next one (next-token
edges). A node is attributed if it has a name, an argument, a value, an identifier or an attribute.
"""

import ast
import random
import sysconfig
from collections.abc import Iterator
from itertools import islice, pairwise
from pathlib import Path

import torch
from torch_geometric.data import Data

NODE_TYPES = sorted(
    name for name, kind in vars(ast).items() if isinstance(kind, type) and issubclass(kind, ast.AST)
)
TYPE_INDEX = {name: i for i, name in enumerate(NODE_TYPES)}
AST_EDGE, NEXT_TOKEN_EDGE = 0, 1
LEFT_OUT = {"site-packages", "dist-packages", "test", "tests", "idle_test", "lib2to3"}


def standard_library_graphs(count: int, seed: int, next_token: bool) -> list[Data]:
    """Graphs of :obj:`count` functions, drawn at random without replacement.

    Returns:
        Graphs with node types ``x`` (indices into :obj:`NODE_TYPES`), ``[N]``, and ``edge_type``,
        ``[E]``: 0 for edges of the tree, 1 for next-token edges.
    """
    rng = random.Random(seed)
    functions = list(islice(_functions(rng), 4 * count))  # parsing everything takes a while
    if count > len(functions):
        raise ValueError(f"expected count of at most {len(functions)} functions, got {count}")
    chosen = rng.sample(functions, count)
    return [function_graph(function, next_token) for function in chosen]


def _functions(rng: random.Random) -> Iterator[ast.AST]:
    """All functions, file by file in random order."""
    folder = Path(sysconfig.get_path("stdlib"))
    paths = sorted(folder.rglob("*.py"))
    rng.shuffle(paths)
    for path in paths:
        if LEFT_OUT.isdisjoint(path.relative_to(folder).parts):
            tree = ast.parse(path.read_bytes())
            yield from (
                node
                for node in ast.walk(tree)
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            )


def function_graph(function: ast.AST, next_token: bool) -> Data:
    types: list[int] = []
    tree: list[tuple[int, int]] = []
    attributed: list[int] = []
    stack = [(ast.Module(body=[function], type_ignores=[]), -1)]
    while stack:
        node, parent = stack.pop()
        index = len(types)
        types.append(TYPE_INDEX[type(node).__name__])
        if parent >= 0:
            tree.append((parent, index))
        if _is_attributed(node):
            attributed.append(index)
        stack += [(child, index) for child in reversed([*ast.iter_child_nodes(node)])]
    tokens = list(pairwise(attributed)) if next_token else []
    edge_type = [AST_EDGE] * len(tree) + [NEXT_TOKEN_EDGE] * len(tokens)
    return Data(
        x=torch.tensor(types),
        edge_index=torch.tensor(tree + tokens).t().contiguous(),
        edge_type=torch.tensor(edge_type),
        num_nodes=len(types),
    )


def _is_attributed(node: ast.AST) -> bool:
    """Whether the node carries a word of the source code, rather than structure alone."""
    words = (getattr(node, field, None) for field in ("name", "arg", "value", "id", "attr"))
    return any(isinstance(word, str | bytes | int | float | complex) for word in words)
