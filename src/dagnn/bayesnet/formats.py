"""Networks as DOT (Graphviz) and JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Any

import numpy as np

from dagnn.bayesnet.cpt import Cpt
from dagnn.bayesnet.variables import Variable

__all__ = ["format_dot", "format_json", "parse_json"]

FORMAT = "dagnn.BayesianNetwork"
TABLE = {"parents", "configurations", "probabilities"}
ENTRY = TABLE | {field.name for field in fields(Variable)}


def format_dot(
    names: Sequence[str], adjacency: np.ndarray, confidence: np.ndarray | None = None
) -> str:
    """A digraph in Graphviz' language.

    Example:
        >>> print(format_dot(["a b", "c"], np.array([[0, 0], [1, 0]], dtype=bool)))
        digraph {
          "a b";
          "c";
          "a b" -> "c";
        }
    """
    lines = [f"  {_quote(name)};" for name in names]
    for v, u in np.argwhere(adjacency):
        look = ""
        if confidence is not None:
            share = float(confidence[v, u])
            look = f' [label="{share:.2f}", penwidth={0.5 + 2.5 * share:.2f}]'
        lines.append(f"  {_quote(names[u])} -> {_quote(names[v])}{look};")
    return "\n".join(["digraph {", *lines, "}"])


def format_json(
    variables: Sequence[Variable],
    tables: Sequence[Cpt],
    score_name: str | None,
    node_scores: np.ndarray | None,
    confidence: np.ndarray | None,
) -> str:
    """All of a network; parents, and codes in configurations, are counted from 0."""
    records = [
        {
            **asdict(variable),
            "parents": list(table.parents),
            "configurations": table.configurations.tolist(),
            "probabilities": table.probabilities.tolist(),
        }
        for variable, table in zip(variables, tables, strict=True)
    ]
    record: dict[str, Any] = {"format": FORMAT, "version": 1, "variables": records}
    if score_name is not None and node_scores is not None:
        record["score"] = {"name": score_name, "of_variables": node_scores.tolist()}
    if confidence is not None:
        record["confidence"] = confidence.tolist()
    return json.dumps(record, ensure_ascii=False, allow_nan=False)


def parse_json(text: str) -> dict[str, Any]:
    """The fields of a network that :func:`format_json` wrote, less its adjacency."""
    try:
        record = json.loads(text)
        if record["format"] != FORMAT or record["version"] != 1:
            raise ValueError(f"expected format {FORMAT}, version 1")
        variables = tuple(map(_variable, record["variables"]))
        names = [variable.name for variable in variables]
        if len(set(names)) != len(names):
            raise ValueError(f"expected different names, got {names}")
        levels = tuple(variable.levels for variable in variables)
        tables = tuple(_table(entry, v, levels) for v, entry in enumerate(record["variables"]))
        score, confidence = record.get("score"), record.get("confidence")
        return {
            "variables": variables,
            "tables": tables,
            "score_name": score and str(score["name"]),
            "node_scores": score and np.array(score["of_variables"], dtype=np.float64),
            "confidence": confidence and np.array(confidence, dtype=np.float64),
        }
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise ValueError(f"expected a network that to_json wrote, got: {error!r}") from error


def _variable(entry: dict[str, Any]) -> Variable:
    if strange := entry.keys() - ENTRY:
        raise ValueError(f"expected only {sorted(ENTRY)} of a variable, got {sorted(strange)}")
    levels, cuts = tuple(map(str, entry["levels"])), entry["cuts"]
    has_missing = bool(entry["has_missing"])
    if cuts is not None:
        cuts = tuple(map(float, cuts))
        if len(levels) != len(cuts) + 1 + has_missing or list(cuts) != sorted(set(cuts)):
            raise ValueError(f"expected a level between any two cuts, got {levels} and {cuts}")
    if len(set(levels)) != len(levels):
        raise ValueError(f"expected different levels, got {levels}")
    return Variable(str(entry["name"]), levels, cuts, has_missing)


def _table(entry: dict[str, Any], v: int, levels: tuple[tuple[str, ...], ...]) -> Cpt:
    parents = tuple(map(int, entry["parents"]))
    if len({*parents, v}) != len(parents) + 1 or not all(0 <= u < len(levels) for u in parents):
        raise ValueError(f"expected other variables as parents of variable {v}, got {parents}")
    configurations = np.array(entry["configurations"], dtype=np.int32)
    configurations = configurations.reshape(-1, len(parents)) if parents else configurations
    probabilities = np.array(entry["probabilities"], dtype=np.float64)
    cardinalities = tuple(len(levels[u]) for u in parents)
    shapes = (len(probabilities), len(parents)), (len(probabilities), len(levels[v]))
    if (configurations.shape, probabilities.shape) != shapes:
        raise ValueError(f"expected tables of shapes {shapes} for variable {v}")
    if len({*map(tuple, configurations.tolist())}) != len(configurations):
        raise ValueError(f"expected every configuration of variable {v} once")
    if (configurations < 0).any() or (configurations >= np.array(cardinalities)).any():
        raise ValueError(f"expected codes of levels in the configurations of variable {v}")
    if (probabilities < 0).any() or not np.allclose(probabilities.sum(axis=1), 1):
        raise ValueError(f"expected probabilities that sum to 1 for variable {v}")
    return Cpt(parents, cardinalities, configurations, probabilities)


def _quote(name: str) -> str:
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
