"""BN: structures of Bayesian networks with their scores.

A row of text is a network, ``[[variable], [variable, bit], [variable, bit, bit], …], score``, its
variables in a topological order; bit ``j`` of a row says whether row ``j`` is a parent. As a graph
it has an input node, which feeds all variables without parents, and an output node, which is fed by
all without children.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.nn.functional import pad

from dagnn.datasets.rows import Rows, open_graphs, parse_rows, read_rows, write_rows
from dagnn.datasets.small_dags import INPUT, OUTPUT, SmallDags

__all__ = [
    "adjacency_of_networks",
    "load_bayesian_networks",
    "networks_from_adjacency",
    "parse_bayesian_networks",
    "sample_asia",
    "save_bayesian_networks",
    "valid_bayesian_networks",
]


def load_bayesian_networks(
    path: str | os.PathLike[str], *, num_variables: int | None = None
) -> SmallDags:
    """The graphs of a file such as ``asia_200k.txt``.

    Args:
        path: The file.
        num_variables: By default as many as the first line has.

    Raises:
        ValueError: If a line is malformed; the error has its number.
    """
    if num_variables is None:
        num_variables = _rows_of_first_line(Path(path))
    return _graphs(read_rows(path, num_variables, num_variables), str(path))


def parse_bayesian_networks(lines: Iterable[str], *, num_variables: int = 8) -> SmallDags:
    """The graphs of lines of text."""
    return _graphs(parse_rows(lines, num_variables, num_variables), "rows")


def save_bayesian_networks(path: str | os.PathLike[str], graphs: SmallDags) -> None:
    """Write :func:`valid_bayesian_networks` as :func:`load_bayesian_networks` reads them."""
    inner = slice(1, graphs.max_nodes - 1)
    write_rows(
        path, Rows(graphs.types[:, inner] - 2, graphs.adjacency[:, inner, inner], graphs.score)
    )


def networks_from_adjacency(adjacency: Tensor, score: Tensor) -> SmallDags:
    """Graphs from the structures of networks.

    Args:
        adjacency: ``[g, v, u]`` says whether variable u is a parent of v. bool ``[G, n, n]``
        score: float64 ``[G]``

    Raises:
        ValueError: If a structure has a cycle.

    Example:
        >>> graphs = networks_from_adjacency(
        ...     torch.tensor([[[False, True], [False, False]]]), torch.tensor([-5.0])
        ... )
        >>> graphs.types  # the input, the variables 1 and 0, the output
        tensor([[0, 3, 2, 1]])
    """
    order = _topological_orders(adjacency)
    graph = torch.arange(len(adjacency))[:, None, None]
    bits = adjacency[graph, order[:, :, None], order[:, None, :]]
    return _assemble(order, bits, score.double())


def adjacency_of_networks(graphs: SmallDags) -> Tensor:
    """The way back, for :func:`valid_bayesian_networks`. bool ``[G, n, n]``"""
    inner = slice(1, graphs.max_nodes - 1)
    variable = graphs.types[:, inner] - 2
    graph = torch.arange(len(graphs), device=graphs.device)[:, None, None]
    bits = graphs.adjacency[:, inner, inner]
    adjacency = torch.zeros_like(bits)
    adjacency[graph, variable[:, :, None], variable[:, None, :]] = bits
    return adjacency


def valid_bayesian_networks(graphs: SmallDags) -> Tensor:
    """Which graphs are networks by D-VAE's rules: every variable once, between one input and one
    output. These two are no part of the network, so it does not matter which variables they are
    joined to. bool ``[G]``"""
    n = graphs.max_nodes
    every_type = torch.arange(n, device=graphs.device)
    return (
        (graphs.num_nodes == n)
        & (graphs.types.sort(-1).values == every_type).all(-1)
        & (graphs.types[:, 0] == INPUT)
        & (graphs.types[:, -1] == OUTPUT)
    )


def sample_asia(rows: int = 5000, seed: int = 0) -> pd.DataFrame:
    """A sample of the network *Asia* (Lauritzen and Spiegelhalter, 1988): visit to Asia, smoking,
    tuberculosis, lung cancer, bronchitis, either of T and L, X-ray, dyspnoea."""
    if rows < 1:
        raise ValueError(f"expected at least 1 row, got {rows}")
    generator = np.random.default_rng(seed)

    def draw(chance: float | np.ndarray) -> np.ndarray:
        return generator.random(rows) < chance

    a, s = draw(0.01), draw(0.5)
    t = draw(np.where(a, 0.05, 0.01))
    l = draw(np.where(s, 0.10, 0.01))  # noqa: E741 - the variable's name
    b = draw(np.where(s, 0.60, 0.30))
    e = t | l
    x = draw(np.where(e, 0.98, 0.05))
    d = draw(np.where(b, np.where(e, 0.90, 0.80), np.where(e, 0.70, 0.10)))
    columns = {"A": a, "S": s, "T": t, "L": l, "B": b, "E": e, "X": x, "D": d}
    return pd.DataFrame({name: np.where(yes, "yes", "no") for name, yes in columns.items()})


def _rows_of_first_line(path: Path) -> int:
    with open_graphs(path) as file:
        first = next((line for line in file if line.strip()), "")
    try:
        return max(len(json.loads(f"[{first}]")[0]), 1)
    except (ValueError, TypeError, IndexError, RecursionError):
        return 1  # reading the rows will say what is wrong


def _topological_orders(adjacency: Tensor) -> Tensor:
    """Of every graph, the order that takes the first variable whose parents are all taken."""
    count, n, _ = adjacency.shape
    taken = torch.zeros(count, n, dtype=torch.bool)
    order = torch.zeros(count, n, dtype=torch.long)
    for place in range(n):
        ready = ~taken & ~(adjacency & ~taken[:, None, :]).any(-1)  # [G, n]
        if not bool(ready.any(-1).all()):
            graph = int(ready.any(-1).int().argmin())
            raise ValueError(f"expected acyclic structures, got a cycle in graph {graph}")
        order[:, place] = ready.int().argmax(-1)
        taken.scatter_(1, order[:, place : place + 1], True)
    return order


def _graphs(rows: Rows, name: str) -> SmallDags:
    labels = torch.arange(rows.labels.size(1))
    wrong = (rows.labels.sort(-1).values != labels).any(-1)
    if bool(wrong.any()):
        graph = int(wrong.nonzero()[0])
        raise ValueError(
            f"{name}, graph {graph + 1}: expected every variable from 0 to {len(labels) - 1} once, "
            f"got {rows.labels[graph].tolist()}"
        )
    return _assemble(rows.labels, rows.bits, rows.score)


def _assemble(variable: Tensor, bits: Tensor, score: Tensor) -> SmallDags:
    """Graphs from variables in topological order, and their edges ``[G, n, n]``."""
    count, n = variable.shape
    types = pad(variable + 2, (1, 1), value=INPUT)
    types[:, -1] = OUTPUT
    adjacency = pad(bits, (1, 1, 1, 1))
    adjacency[:, 1:-1, 0] = ~bits.any(-1)
    adjacency[:, -1, 1:-1] = ~bits.any(-2)
    return SmallDags(types, adjacency, torch.full((count,), n + 2), score, n + 2)
