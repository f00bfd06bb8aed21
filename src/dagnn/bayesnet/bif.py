"""The Bayesian Interchange Format, in the form that bnlearn and pgmpy read and write.

Names in it are words of ASCII letters, digits and underscores, and readers differ in whether case
counts. So names and levels are turned into such words, all different; where that changed them, the
property ``dagnn`` of the variable keeps the originals, percent-encoded, and reading restores them.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from urllib.parse import quote, unquote

import numpy as np

from dagnn.bayesnet.cpt import Cpt

__all__ = ["format_bif", "parse_bif"]

MAX_ENTRIES = 2_000_000  # BIF lists every configuration, also those that were never seen
VARIABLE = r"\bvariable\s+(\S+)\s*\{(.*?;)\s*\}"
TABLE = r"\bprobability\s*\(([^)]*)\)\s*\{(.*?)\}"


def format_bif(names: Sequence[str], levels: Sequence[Sequence[str]], tables: Sequence[Cpt]) -> str:
    """The text of a network.

    Raises:
        ValueError: If a table is too large for a format that lists all configurations.
    """
    words = _words(names)
    level_words = [_words(level) for level in levels]
    blocks = ["network unknown {\n}"]
    for v, name in enumerate(names):
        lines = [f"  type discrete [ {len(levels[v])} ] {{ {', '.join(level_words[v])} }};"]
        if [words[v], *level_words[v]] != [name, *levels[v]]:
            originals = ",".join(quote(text, safe="") for text in (name, *levels[v]))
            lines.append(f"  property dagnn = {originals} ;")
        blocks.append("\n".join([f"variable {words[v]} {{", *lines, "}"]))
    for v, table in enumerate(tables):
        entries = table.num_levels * math.prod(table.cardinalities)
        if entries > MAX_ENTRIES:
            raise ValueError(
                f"expected tables of at most {MAX_ENTRIES:,} entries for BIF, got {entries:,} for "
                f"{names[v]}; limit its parents, or write JSON"
            )
        if not table.parents:
            values = ", ".join(map(repr, table.probabilities[0].tolist()))
            blocks.append(f"probability ( {words[v]} ) {{\n  table {values};\n}}")
            continue
        given = ", ".join(words[u] for u in table.parents)
        lines = [
            "  ({}) {};".format(
                ", ".join(level_words[u][i] for u, i in zip(table.parents, codes, strict=True)),
                ", ".join(map(repr, chances)),
            )
            for codes, chances in _all_rows(table)
        ]
        blocks.append("\n".join([f"probability ( {words[v]} | {given} ) {{", *lines, "}"]))
    return "\n".join(blocks) + "\n"


def parse_bif(text: str) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...], tuple[Cpt, ...]]:
    """Names, levels and tables of a text.

    Raises:
        ValueError: If the text is not a network of discrete variables.
    """
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL).replace('"', " ")
    names: dict[str, str] = {}  # by word
    levels: dict[str, list[str]] = {}
    level_words: dict[str, list[str]] = {}
    for word, body in re.findall(VARIABLE, text, re.DOTALL):
        match = re.search(r"type\s+discrete\s*\[\s*(\d+)\s*\]\s*\{([^}]*)\}", body)
        if match is None or word in names:
            raise ValueError(f"expected one discrete type for the variable {word}, got {body!r}")
        level_words[word] = re.split(r"[,\s]+", match[2].strip(", \n\t"))
        names[word], levels[word] = word, level_words[word]
        if len(levels[word]) != int(match[1]):
            raise ValueError(f"expected {match[1]} levels of {word}, got {len(levels[word])}")
        kept = re.search(r"property\s+dagnn\s*=\s*([^\s;]*)", body)
        if kept is not None:
            names[word], *levels[word] = map(unquote, kept[1].split(","))
        if len(level_words[word]) != len(levels[word]) or len({*levels[word]}) != int(match[1]):
            raise ValueError(
                f"expected {match[1]} different levels of {word}, also in its property dagnn, got "
                f"{', '.join(levels[word])}"
            )
    if not names:
        raise ValueError("expected a network in BIF, got no variable")
    if len(set(names.values())) != len(names):
        raise ValueError(f"expected different names, got {', '.join(names.values())}")
    rest = re.sub(
        rf"\bnetwork\b[^{{}}]*\{{[^{{}}]*\}}|{VARIABLE}|{TABLE}", "", text, flags=re.DOTALL
    )
    if rest.strip():
        raise ValueError(f"expected network, variable and probability, got {rest.strip()[:60]!r}")
    index = {word: i for i, word in enumerate(names)}
    tables: dict[str, Cpt] = {}
    for head, body in re.findall(TABLE, text, re.DOTALL):
        child, *parents = re.split(r"[|,\s]+", head.strip())
        strange = {child, *parents} - names.keys()
        if strange or child in tables:
            raise ValueError(f"expected one table a variable, got probability ({head.strip()})")
        tables[child] = _parse_table(body, child, parents, index, level_words)
    if tables.keys() != names.keys():
        lacking = ", ".join(sorted(names.keys() - tables.keys()))
        raise ValueError(f"expected a table for every variable, got none for {lacking}")
    return (
        tuple(names.values()),
        tuple(tuple(level) for level in levels.values()),
        tuple(tables[word] for word in names),
    )


def _parse_table(
    body: str,
    child: str,
    parents: list[str],
    index: dict[str, int],
    levels: dict[str, list[str]],
) -> Cpt:
    rows: dict[tuple[int, ...], list[float]] = {}
    default: list[float] | None = None  # of configurations without a row of their own
    for statement in filter(None, map(str.strip, body.split(";"))):
        if re.match(r"property\b", statement):
            continue
        match = re.fullmatch(r"(\([^)]*\)|table\b|default\b)([^()]*)", statement)
        if match is None:
            raise ValueError(f"expected table, default or (levels) for {child}, got {statement!r}")
        given = match[1]
        chances = _parse_chances(match[2], child, len(levels[child]), statement)
        if given == "default":
            is_repeated, default = default is not None, chances
        else:
            values = [] if given == "table" else re.split(r"[,\s]+", given.strip("() \n\t"))
            try:
                codes = tuple(levels[u].index(x) for u, x in zip(parents, values, strict=True))
            except ValueError as error:
                raise ValueError(
                    f"expected a level of each parent of {child}, got {statement}"
                ) from error
            is_repeated = codes in rows
            rows[codes] = chances
        if is_repeated:
            raise ValueError(f"expected one row a configuration of {child}, got {given} again")
    cardinalities = tuple(len(levels[u]) for u in parents)
    _complete(rows, default, child, cardinalities)
    probabilities = np.array(list(rows.values()))
    return Cpt(
        tuple(index[u] for u in parents),
        cardinalities,
        np.array(list(rows), dtype=np.int32).reshape(len(rows), len(parents)),
        probabilities / probabilities.sum(axis=1, keepdims=True),
    )


def _parse_chances(numbers: str, child: str, size: int, statement: str) -> list[float]:
    try:
        chances = [float(number) for number in re.split(r"[,\s]+", numbers.strip(", \n\t"))]
    except ValueError as error:
        raise ValueError(f"expected levels and numbers for {child}, got {statement}") from error
    is_distribution = abs(sum(chances) - 1) <= 1e-3 and min(chances) >= 0  # false for NaN
    if len(chances) != size or not is_distribution:
        raise ValueError(f"expected {size} probabilities of {child} that sum to 1, got {statement}")
    return chances


def _complete(
    rows: dict[tuple[int, ...], list[float]],
    default: list[float] | None,
    child: str,
    cardinalities: tuple[int, ...],
) -> None:
    """Give the default to configurations without a row."""
    count = math.prod(cardinalities)
    if len(rows) == count:
        return
    if default is None:
        raise ValueError(
            f"expected probabilities of {child} for each of {count} configurations of its parents, "
            f"or a default, got {len(rows)}"
        )
    if count * len(default) > MAX_ENTRIES:
        raise ValueError(
            f"expected tables of at most {MAX_ENTRIES:,} entries, got {count * len(default):,} for "
            f"{child}"
        )
    for codes in itertools.product(*map(range, cardinalities)):
        rows.setdefault(codes, default)


def _all_rows(table: Cpt) -> Iterator[tuple[tuple[int, ...], list[float]]]:
    """Every configuration of the parents with its probabilities."""
    known = {
        tuple(codes): chances
        for codes, chances in zip(
            table.configurations.tolist(), table.probabilities.tolist(), strict=True
        )
    }
    even = [1 / table.num_levels] * table.num_levels
    for codes in itertools.product(*map(range, table.cardinalities)):
        yield codes, known.get(codes, even)


def _words(texts: Sequence[str]) -> list[str]:
    """A word for each text, all different whatever the case."""
    words: list[str] = []
    taken: set[str] = set()
    for text in texts:
        word = stem = re.sub(r"[^A-Za-z0-9_]", "_", text) or "_"
        number = 2
        while word.lower() in taken:
            word, number = f"{stem}_{number}", number + 1
        words.append(word)
        taken.add(word.lower())
    return words
