"""Tables, networks and plain oracles for the tests of Bayesian networks."""

from __future__ import annotations

import functools
import itertools
import math
import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import strategies as st

from dagnn.bayesnet.table import Table
from dagnn.bayesnet.variables import Variable

ASIA_EDGES = ("AT", "SL", "SB", "TE", "LE", "EX", "ED", "BD")


def asia_path() -> Path:
    folder = Path(os.environ.get("DAGNN_DATA", Path(__file__).parents[3] / "shared" / "data"))
    path = folder / "asia.csv"
    if not path.exists():
        pytest.skip("needs asia.csv in $DAGNN_DATA: in R, write.csv(bnlearn::asia, row.names=F)")
    return path


def asia_structure(names: tuple[str, ...], *, without: str = "") -> np.ndarray:
    adjacency = np.zeros((8, 8), dtype=bool)
    for parent, child in ASIA_EDGES:
        if parent + child != without:
            adjacency[names.index(child), names.index(parent)] = True
    return adjacency


def make_table(codes: np.ndarray, cardinalities: list[int]) -> Table:
    variables = tuple(
        Variable(f"v{i}", tuple(f"s{k}" for k in range(r))) for i, r in enumerate(cardinalities)
    )
    return Table(variables, np.asarray(codes, dtype=np.int32))


def dependent_table(n: int, rows: int, seed: int, cardinalities: list[int] | None = None) -> Table:
    """Columns that depend on earlier ones, so that good networks have edges."""
    generator = np.random.default_rng(seed)
    cardinalities = cardinalities or generator.integers(2, 4, n).tolist()
    codes = np.zeros((rows, n), dtype=np.int64)
    for v in range(n):
        noise = generator.integers(0, cardinalities[v], rows)
        parents = [u for u in range(v) if generator.random() < 0.5]
        signal = codes[:, parents].sum(axis=1) % cardinalities[v]
        codes[:, v] = np.where(generator.random(rows) < 0.7, signal, noise)
    return make_table(codes, cardinalities)


@st.composite
def tables(draw: st.DrawFn, max_columns: int = 4, max_rows: int = 30) -> Table:
    cardinalities = draw(st.lists(st.integers(1, 4), min_size=1, max_size=max_columns))
    rows = draw(st.integers(1, max_rows))
    codes = [[draw(st.integers(0, r - 1)) for r in cardinalities] for _ in range(rows)]
    return make_table(np.array(codes), cardinalities)


@st.composite
def dags(draw: st.DrawFn, n: int) -> np.ndarray:
    order = draw(st.permutations(range(n)))
    adjacency = np.zeros((n, n), dtype=bool)
    for i, j in itertools.combinations(range(n), 2):
        adjacency[order[j], order[i]] = draw(st.booleans())
    return adjacency


@functools.cache
def all_dags(n: int) -> np.ndarray:
    """Every DAG of n labelled nodes: 1, 3, 25, 543 for n from 1 to 4."""
    places = [(v, u) for v in range(n) for u in range(n) if u != v]
    found = []
    for bits in itertools.product([False, True], repeat=len(places)):
        adjacency = np.zeros((n, n), dtype=bool)
        for place, bit in zip(places, bits, strict=True):
            adjacency[place] = bit
        power = np.linalg.matrix_power(adjacency.astype(int), n)
        if not power.any():
            found.append(adjacency)
    return np.stack(found)


def plain_family(table: Table, score: str, child: int, parents: list[int], ess: float = 1) -> float:
    """A family's score straight from its definition, over all configurations."""
    cardinality = table.cardinalities.tolist()
    r, q = cardinality[child], math.prod(cardinality[u] for u in parents)
    joint = Counter((tuple(row[u] for u in parents), row[child]) for row in table.codes.tolist())
    total = 0.0
    for j in itertools.product(*(range(cardinality[u]) for u in parents)):
        counts = [joint[j, k] for k in range(r)]
        if score in ("bic", "aic"):
            total += sum(c * math.log(c / sum(counts)) for c in counts if c)
        elif score == "k2":
            total += math.lgamma(r) - math.lgamma(r + sum(counts))
            total += sum(math.lgamma(c + 1) for c in counts)
        else:
            total += math.lgamma(ess / q) - math.lgamma(ess / q + sum(counts))
            total += sum(
                math.lgamma(ess / (q * r) + c) - math.lgamma(ess / (q * r)) for c in counts
            )
    if score in ("bic", "aic"):
        total -= q * (r - 1) * (1 if score == "aic" else math.log(table.num_rows) / 2)
    return total


def plain_score(table: Table, score: str, adjacency: np.ndarray) -> float:
    return sum(
        plain_family(table, score, v, np.flatnonzero(adjacency[v]).tolist())
        for v in range(table.num_columns)
    )
