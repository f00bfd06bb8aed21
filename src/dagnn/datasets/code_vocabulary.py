"""Which words the models of code know: types of nodes, attributes, and sub-tokens of names."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

__all__ = ["EOS", "NONE", "RARE", "UNKNOWN", "CodeVocabulary", "most_frequent", "sub_tokens"]

UNKNOWN, NONE, EOS = "__UNK__", "__NONE__", "__EOS__"
RARE = "__RARE__"  # what a corpus file has in place of its rarest attributes
NUM_ATTRIBUTES, NUM_TOKENS = 10_000, 5_000

_WORD = re.compile(r"A+(?!a)|A?a+|0+")


def sub_tokens(name: str) -> tuple[str, ...]:
    """The words of a name: split at underscores, camel case and numbers, lower-cased.

    A name without any word (``_``) is a word itself.

    Example:
        >>> sub_tokens("_readHTTPHeader2_fast")
        ('read', 'http', 'header', '2', 'fast')
        >>> sub_tokens("__")
        ('__',)
    """
    # Capitals are not only those of ASCII, which regular expressions cannot say: hence the shape.
    shape = "".join(map(_shape, name))
    words = tuple(name[m.start() : m.end()].lower() for m in _WORD.finditer(shape))
    return words or (name,)


def _shape(letter: str) -> str:
    if letter == "_":
        return "_"
    if letter.isdigit():
        return "0"
    return "A" if letter.isupper() else "a"


def most_frequent(counts: Mapping[str, int], limit: int) -> list[str]:
    """The words that occur most often; ties go in alphabetical order, so that files agree."""
    special = {UNKNOWN, NONE, EOS, RARE}
    words = (word for word, count in counts.items() if count > 0 and word not in special)
    return sorted(words, key=lambda word: (-counts[word], word))[:limit]


@dataclass(frozen=True)
class CodeVocabulary:
    """The words behind the integers of a :class:`CodeDataset`; a word's index is its integer.

    Args:
        node_types: Classes of :mod:`ast`, then ``__UNK__``.
        attributes: The most frequent attributes, then ``__UNK__`` and ``__NONE__``.
        tokens: The most frequent sub-tokens of functions' names, then ``__UNK__`` and ``__EOS__``.

    Example:
        >>> vocabulary = CodeVocabulary.of(["Module"], {"self": 3, "x": 9}, {"get": 1})
        >>> vocabulary.attributes
        ['x', 'self', '__UNK__', '__NONE__']
        >>> vocabulary
        CodeVocabulary(node_types=2, attributes=4, tokens=3)
        >>> CodeVocabulary.from_json(vocabulary.to_json()) == vocabulary
        True
    """

    node_types: list[str]
    attributes: list[str]
    tokens: list[str]

    def __post_init__(self) -> None:
        for name, end in _ENDS.items():
            words = getattr(self, name)
            if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
                raise ValueError(f"expected the {name} of a vocabulary as a list of strings")
            if tuple(words[-len(end) :]) != end or len(set(words)) != len(words):
                raise ValueError(
                    f"expected {name} without repetition that end with {', '.join(end)}, "
                    f"got {words[-3:]} at the end of {len(words)}"
                )

    @classmethod
    def of(
        cls,
        node_types: Sequence[str],
        attributes: Mapping[str, int],
        tokens: Mapping[str, int],
    ) -> CodeVocabulary:
        """The vocabulary of a training split, from how often its words occur."""
        return cls(
            [*(name for name in node_types if name != UNKNOWN), UNKNOWN],
            [*most_frequent(attributes, NUM_ATTRIBUTES), UNKNOWN, NONE],
            [*most_frequent(tokens, NUM_TOKENS), UNKNOWN, EOS],
        )

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> CodeVocabulary:
        try:
            words: Any = json.loads(text)
        except ValueError as error:
            raise ValueError(f"expected a vocabulary as JSON: {error}") from error
        if not isinstance(words, dict) or words.keys() != _ENDS.keys():
            raise ValueError(f"expected a JSON object of {', '.join(_ENDS)} as a vocabulary")
        return cls(**words)

    @cached_property
    def _token_index(self) -> dict[str, int]:
        return {word: i for i, word in enumerate(self.tokens[:-2])}

    def node_type_table(self, names: Iterable[str]) -> np.ndarray:
        """The integer of each of some types of nodes."""
        return _table(self.node_types[:-1], names, len(self.node_types) - 1)

    def attribute_table(self, words: Iterable[str]) -> np.ndarray:
        """The integer of each of some attributes, and at the end that of no attribute."""
        unknown = len(self.attributes) - 2
        table = _table(self.attributes[:-2], words, unknown)
        none = [i for i, word in enumerate(words) if word == NONE]
        table[none] = unknown + 1
        return np.append(table, unknown + 1)

    def token_ids(self, words: Iterable[str]) -> list[int]:
        """The integer of each of some sub-tokens, -1 for those outside of the vocabulary."""
        return [self._token_index.get(word, -1) for word in words]

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name}={len(getattr(self, name))}" for name in _ENDS)
        return f"CodeVocabulary({sizes})"


_ENDS = {"node_types": (UNKNOWN,), "attributes": (UNKNOWN, NONE), "tokens": (UNKNOWN, EOS)}


def _table(known: Sequence[str], words: Iterable[str], unknown: int) -> np.ndarray:
    index = {word: i for i, word in enumerate(known)}
    return np.array([index.get(word, unknown) for word in words], dtype=np.int64)
