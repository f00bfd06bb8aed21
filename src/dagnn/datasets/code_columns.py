r"""Functions as columns, and from there to graphs: what every source of code graphs has in common.

A function is its syntax tree in depth-first pre-order. So a node's parent is given by how far
before the node it stands, and nodes are in a topological order as they are: edges of the tree lead
from parent to child, next-token edges from each node with an attribute to the next one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numba
import numpy as np
import torch
from torch import Tensor

from dagnn.datasets.code_vocabulary import CodeVocabulary
from dagnn.graph import compiled
from dagnn.graph.flat import FlatGraphs

__all__ = ["AST_EDGE", "EDGES", "NEXT_TOKEN_EDGE", "SPLITS", "CodeColumns"]

AST_EDGE, NEXT_TOKEN_EDGE = 0, 1
EDGES = ("full", "ast")
SPLITS = ("train", "valid", "test")
MAX_DEPTH = 20  # deeper nodes have this depth
NUM_POSITIONS = 5  # sub-tokens of a name that are predicted


@dataclass(frozen=True)
class CodeColumns:
    """Functions one after the other.

    Args:
        node_ptr: Where the nodes of each function start. ``[G + 1]``
        node_type: Indices into :obj:`node_types`. ``[N]``
        parent_offset: Index of the node minus index of its parent; of the first node any. ``[N]``
        attribute: Indices into :obj:`attributes`, -1 where the node has none. ``[N]``
        node_types: The names of the types.
        attributes: The attributes, each once.
        words: Of each function the sub-tokens of its name. ``[G]``
    """

    node_ptr: np.ndarray
    node_type: np.ndarray
    parent_offset: np.ndarray
    attribute: np.ndarray
    node_types: Sequence[str]
    attributes: Sequence[str]
    words: Sequence[Sequence[str]]

    def __post_init__(self) -> None:
        g = _first_bad_function(self.node_ptr, self.parent_offset)
        if g >= 0:
            raise ValueError(
                f"function {g}: expected at least two nodes in pre-order, the parent of each but "
                "the first among those before it"
            )
        for name, lowest, words in (
            ("node_type", 0, self.node_types),
            ("attribute", -1, self.attributes),
        ):
            values = getattr(self, name)
            bounds = (int(values.min()), int(values.max())) if len(values) else (0, -1)
            if bounds[0] < lowest or bounds[1] >= len(words):
                raise ValueError(
                    f"expected {name} from {lowest} to {len(words)} (exclusive), the number of "
                    f"names, got numbers from {bounds[0]} to {bounds[1]}"
                )

    def __len__(self) -> int:
        return len(self.node_ptr) - 1

    def select(self, functions: np.ndarray) -> CodeColumns:
        """Some of the functions, in the given order."""
        node_ptr = compiled.batch_pointer(self.node_ptr, functions)
        rows = np.empty(int(node_ptr[-1]), dtype=np.int64)
        compiled.ragged_rows(self.node_ptr, functions, rows)
        return replace(
            self,
            node_ptr=node_ptr,
            node_type=self.node_type[rows],
            parent_offset=self.parent_offset[rows],
            attribute=self.attribute[rows],
            words=[self.words[g] for g in functions.tolist()],
        )

    def vocabulary(self) -> CodeVocabulary:
        """The most frequent words of these functions."""
        counts = np.bincount(self.attribute + 1, minlength=len(self.attributes) + 1)[1:]
        return CodeVocabulary.of(
            self.node_types,
            dict(zip(self.attributes, counts.tolist(), strict=True)),
            Counter(word for words in self.words for word in words),
        )

    def graphs(self, vocabulary: CodeVocabulary, edges: str) -> FlatGraphs:
        """The functions as graphs; see :class:`dagnn.datasets.code_dataset.CodeDataset`."""
        if edges not in EDGES:
            raise ValueError(f"expected edges to be one of {', '.join(EDGES)}, got {edges!r}")
        next_token = edges == "full"
        attributed = self.attribute >= 0
        edge_ptr = _edge_pointer(self.node_ptr, attributed, next_token)
        edge_index = np.empty((2, edge_ptr[-1]), dtype=np.int32)
        edge_type = np.empty(edge_ptr[-1], dtype=np.int8)
        depth = np.empty(len(attributed), dtype=np.int8)
        levels = np.empty((2, len(attributed)), dtype=np.int32)
        _build(
            self.node_ptr,
            self.parent_offset,
            attributed,
            next_token,
            edge_ptr,
            edge_index,
            edge_type,
            depth,
            levels,
        )
        longest_path = np.maximum.reduceat(levels[0], self.node_ptr[:-1]) + 1
        attribute_of = vocabulary.attribute_table(self.attributes)
        attribute = _compact(attribute_of)[self.attribute]  # -1: the last entry, no attribute
        tokens, name_pointer, name_tokens = _targets(self.words, vocabulary)
        return FlatGraphs(
            torch.from_numpy(self.node_ptr),
            torch.from_numpy(edge_ptr),
            torch.from_numpy(edge_index),
            node={
                "node_type": torch.from_numpy(
                    _compact(vocabulary.node_type_table(self.node_types))[self.node_type]
                ),
                "attribute": torch.from_numpy(attribute),
                "depth": torch.from_numpy(depth),
            },
            edge={"edge_type": torch.from_numpy(edge_type)},
            graph={
                "tokens": tokens,
                "longest_path": torch.from_numpy(longest_path.astype(np.int64)),
                "second_attribute": torch.from_numpy(
                    attribute[self.node_ptr[:-1] + 1].astype(np.int64)
                ),
            },
            ragged={"name_tokens": (name_pointer, name_tokens)},
            levels=torch.from_numpy(levels),
        )


def _targets(
    names: Sequence[Sequence[str]], vocabulary: CodeVocabulary
) -> tuple[Tensor, Tensor, Tensor]:
    """What is to be predicted, ``[G, 5]``, and the distinct sub-tokens of the true names."""
    unknown, eos = len(vocabulary.tokens) - 2, len(vocabulary.tokens) - 1
    tokens = np.full((len(names), NUM_POSITIONS), eos, dtype=np.int64)
    pointer = np.zeros(len(names) + 1, dtype=np.int64)
    distinct: list[int] = []
    for g, words in enumerate(names):
        first = vocabulary.token_ids(words[:NUM_POSITIONS])
        tokens[g, : len(first)] = [unknown if i < 0 else i for i in first]
        distinct += vocabulary.token_ids(dict.fromkeys(words))
        pointer[g + 1] = len(distinct)
    return (
        torch.from_numpy(tokens),
        torch.from_numpy(pointer),
        torch.tensor(distinct, dtype=torch.long),
    )


def _compact(values: np.ndarray) -> np.ndarray:
    """The same numbers in 16 bits, if they fit."""
    fits = len(values) == 0 or values.max() <= np.iinfo(np.int16).max
    return values.astype(np.int16 if fits else np.int32)


@numba.njit(cache=True, nogil=True)
def _first_bad_function(
    node_ptr: np.ndarray, parent_offset: np.ndarray
) -> int:  # pragma: no cover - compiled
    for g in range(len(node_ptr) - 1):
        first = node_ptr[g]
        if node_ptr[g + 1] - first < 2:
            return g
        for v in range(first + 1, node_ptr[g + 1]):
            if parent_offset[v] < 1 or parent_offset[v] > v - first:
                return g
    return -1


@numba.njit(cache=True, nogil=True)
def _edge_pointer(
    node_ptr: np.ndarray, attributed: np.ndarray, next_token: bool
) -> np.ndarray:  # pragma: no cover - compiled
    edge_ptr = np.zeros(len(node_ptr), dtype=np.int64)
    for g in range(len(node_ptr) - 1):
        count = node_ptr[g + 1] - node_ptr[g] - 1
        if next_token:
            tokens = 0
            for v in range(node_ptr[g], node_ptr[g + 1]):
                tokens += attributed[v]
            count += max(0, tokens - 1)
        edge_ptr[g + 1] = edge_ptr[g] + count
    return edge_ptr


@numba.njit(cache=True, nogil=True)
def _build(
    node_ptr: np.ndarray,
    parent_offset: np.ndarray,
    attributed: np.ndarray,
    next_token: bool,
    edge_ptr: np.ndarray,
    edge_index: np.ndarray,
    edge_type: np.ndarray,
    depth: np.ndarray,
    levels: np.ndarray,
) -> None:  # pragma: no cover - compiled
    """Fill the last four; of each graph the edges of the tree come first. Since nodes are in a
    topological order, levels take one pass forwards and one back."""
    for g in range(len(node_ptr) - 1):
        first, size = node_ptr[g], node_ptr[g + 1] - node_ptr[g]
        level, reverse = levels[0, first : first + size], levels[1, first : first + size]
        tree_edge = edge_ptr[g]
        token_edge = tree_edge + size - 1
        token = -1  # the last node with an attribute
        for v in range(size):
            depth[first + v] = 0
            level[v] = 0
            if v > 0:
                parent = v - parent_offset[first + v]
                depth[first + v] = min(depth[first + parent] + 1, MAX_DEPTH)
                level[v] = level[parent] + 1
                edge_index[0, tree_edge] = parent
                edge_index[1, tree_edge] = v
                edge_type[tree_edge] = AST_EDGE
                tree_edge += 1
            if next_token and attributed[first + v]:
                if token >= 0:
                    level[v] = max(level[v], level[token] + 1)
                    edge_index[0, token_edge] = token
                    edge_index[1, token_edge] = v
                    edge_type[token_edge] = NEXT_TOKEN_EDGE
                    token_edge += 1
                token = v

        reverse[:] = 0
        token = -1
        for v in range(size - 1, -1, -1):
            if next_token and attributed[first + v]:
                if token >= 0:
                    reverse[v] = max(reverse[v], reverse[token] + 1)
                token = v
            if v > 0:
                parent = v - parent_offset[first + v]
                reverse[parent] = max(reverse[parent], reverse[v] + 1)
