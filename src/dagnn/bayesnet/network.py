"""A Bayesian network: a DAG over discrete variables with conditional probability tables."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd

from dagnn.bayesnet import bif, formats
from dagnn.bayesnet.cpt import Cpt, fit_cpt
from dagnn.bayesnet.dags import check_dag, node_levels
from dagnn.bayesnet.equivalence import CPDAG, cpdag
from dagnn.bayesnet.scores import FamilyScores
from dagnn.bayesnet.table import Table, encode_frame
from dagnn.bayesnet.variables import Variable
from dagnn.graph.files import replacing

__all__ = ["BayesianNetwork"]


@dataclass(frozen=True, eq=False)
class BayesianNetwork:
    """A DAG over discrete variables and the probabilities of each given its parents.

    Args:
        variables: The variables, with their names and levels.
        adjacency: ``adjacency[v, u]`` says whether there is an edge from u to v. bool ``[n, n]``
        tables: Of each variable, its conditional probability table.
        score_name: The score under which it was learned, if it was.
        node_scores: Each node's share of that score. float64 ``[n]``
        confidence: What :func:`~dagnn.bayesnet.bootstrap.bootstrap_confidence` measured, if it did.
            float64 ``[n, n]``

    Example:
        >>> frame = pd.DataFrame({"rain": ["yes", "no"] * 9, "grass": ["wet", "dry"] * 9})
        >>> scores = FamilyScores(Table.from_frame(frame))
        >>> network = BayesianNetwork.fit(scores, np.array([[0, 0], [1, 0]], dtype=bool))
        >>> network
        BayesianNetwork(2 variables, 1 edge, BIC -16.8...)
        >>> network.edges
        [('rain', 'grass')]
        >>> network.sample(2, seed=0)
          rain grass
        0  yes   wet
        1   no   dry
    """

    variables: tuple[Variable, ...]
    adjacency: np.ndarray
    tables: tuple[Cpt, ...]
    score_name: str | None = None
    node_scores: np.ndarray | None = None
    confidence: np.ndarray | None = None

    def __post_init__(self) -> None:
        check_dag(self.adjacency, self.names)

    @classmethod
    def fit(
        cls,
        scores: FamilyScores,
        adjacency: np.ndarray,
        *,
        smoothing: float = 0.0,
        confidence: np.ndarray | None = None,
    ) -> BayesianNetwork:
        """The network with this structure, and the probabilities of the scores' table.

        Args:
            scores: The score, with its table.
            adjacency: The structure. bool ``[n, n]``
            smoothing: Rows added to each parent configuration, spread evenly over the levels.
                With 0 (maximum likelihood) what was never seen is impossible; for the
                likelihood of other data, take 1.
            confidence: What :func:`~dagnn.bayesnet.bootstrap.bootstrap_confidence` measured.
        """
        table = scores.table
        check_dag(adjacency, table.names)
        tables = (
            fit_cpt(table, v, tuple(np.flatnonzero(adjacency[v]).tolist()), smoothing)
            for v in range(table.num_columns)
        )
        return cls(
            table.variables,
            adjacency,
            tuple(tables),
            scores.name,
            scores.node_scores(adjacency),
            confidence,
        )

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(variable.name for variable in self.variables)

    @property
    def levels(self) -> tuple[tuple[str, ...], ...]:
        return tuple(variable.levels for variable in self.variables)

    @property
    def edges(self) -> list[tuple[str, str]]:
        """Pairs (parent, child), by the child's place among the names."""
        return [(self.names[u], self.names[v]) for v, u in np.argwhere(self.adjacency)]

    @property
    def cpdag(self) -> CPDAG:
        """The class of equivalent networks."""
        return cpdag(self.adjacency)

    @property
    def edge_confidence(self) -> np.ndarray | None:
        """How often each of the edges came in bootstrap samples; in either direction, where the
        equivalent networks disagree about it. float64 ``[n, n]``, zero where there is no edge"""
        if self.confidence is None:
            return None
        either = self.confidence + self.confidence.T
        return np.where(self.cpdag.undirected, either, self.confidence) * self.adjacency

    def __repr__(self) -> str:
        n, edges = len(self.names), len(self.edges)
        known = "" if self.score_name is None else f", {self.score_name.upper()} {self.score():.3f}"
        return (
            f"BayesianNetwork({n} variable{'s' * (n != 1)}, {edges} edge{'s' * (edges != 1)}"
            f"{known})"
        )

    def score(self) -> float:
        """The score under which the network was learned, on the data it was learned from."""
        if self.node_scores is None:
            raise ValueError(
                "expected a network learned from data, got one without a score; use FamilyScores "
                "with a table"
            )
        return float(self.node_scores.sum())

    def probabilities(self, name: str) -> pd.DataFrame:
        """P(variable | parents): a row for each parent configuration that was seen."""
        v = self._index(name)
        table = self.tables[v]
        columns = pd.Index(self.levels[v], name=name)
        if not table.parents:
            return pd.DataFrame(table.probabilities, columns=columns)
        rows = [
            tuple(self.levels[u][code] for u, code in zip(table.parents, codes, strict=True))
            for codes in table.configurations
        ]
        index = pd.MultiIndex.from_tuples(rows, names=[self.names[u] for u in table.parents])
        return pd.DataFrame(table.probabilities, index=index, columns=columns)

    def sample(self, n: int, seed: int = 0) -> pd.DataFrame:
        """Rows drawn from the network, parents before children."""
        if n < 0:
            raise ValueError(f"expected a number of rows of at least 0, got {n}")
        generator = np.random.default_rng(seed)
        codes = np.zeros((n, len(self.names)), dtype=np.int32)
        for v in np.argsort(node_levels(self.adjacency), kind="stable"):
            codes[:, v] = self.tables[v].draw(codes, generator)
        return Table(self.variables, codes).to_frame()

    def log_probability(self, frame: pd.DataFrame) -> np.ndarray:
        """The logarithm of each row's probability; −∞ for what is impossible. float64 ``[N]``"""
        codes = encode_frame(self.variables, frame)
        total = np.zeros(len(codes))
        with np.errstate(divide="ignore"):
            for v, table in enumerate(self.tables):
                total += np.log(table.look_up(codes, codes[:, v]))
        return total

    def log_likelihood(self, frame: pd.DataFrame) -> float:
        """The logarithm of the probability of all rows."""
        return float(self.log_probability(frame).sum())

    def to_networkx(self) -> nx.DiGraph:
        """The structure; edges carry ``confidence`` where it was measured."""
        graph = nx.DiGraph()
        graph.add_nodes_from(self.names)
        confidence = self.edge_confidence
        for v, u in np.argwhere(self.adjacency):
            known = {} if confidence is None else {"confidence": confidence[v, u].item()}
            graph.add_edge(self.names[u], self.names[v], **known)
        return graph

    def to_bif(self) -> str:
        """The network in the Bayesian Interchange Format, see :mod:`dagnn.bayesnet.bif`."""
        return bif.format_bif(self.names, self.levels, self.tables)

    def to_dot(self) -> str:
        """The structure for Graphviz; edges are the thicker the surer."""
        return formats.format_dot(self.names, self.adjacency, self.edge_confidence)

    def to_json(self) -> str:
        """All of it as JSON; :meth:`from_json` reads it."""
        return formats.format_json(
            self.variables, self.tables, self.score_name, self.node_scores, self.confidence
        )

    @classmethod
    def from_bif(cls, text: str) -> BayesianNetwork:
        """The network of a text that :meth:`to_bif` or another program wrote."""
        names, levels, tables = bif.parse_bif(text)
        variables = tuple(map(Variable, names, levels))
        return cls(variables, _adjacency(tables), tables)

    @classmethod
    def from_json(cls, text: str) -> BayesianNetwork:
        """The network of a text that :meth:`to_json` wrote."""
        fields: dict[str, Any] = formats.parse_json(text)
        return cls(adjacency=_adjacency(fields["tables"]), **fields)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a file of the kind its name ends with: .bif, .dot, .json, .png, .svg or .pdf.

        The file appears only when it is complete.
        """
        path = Path(path)
        kind = path.suffix.lower()
        texts = {".bif": self.to_bif, ".dot": self.to_dot, ".json": self.to_json}
        if kind not in (*texts, ".png", ".svg", ".pdf"):
            raise ValueError(
                f"expected a file name ending in .bif, .dot, .json, .png, .svg or .pdf, got "
                f"{path.name!r}"
            )
        with replacing(path) as unfinished:
            if kind in texts:
                unfinished.write_text(texts[kind](), encoding="utf-8")
                return
            from dagnn.bayesnet.draw import draw_network

            draw_network(self).savefig(unfinished, format=kind[1:], dpi=150)

    def _index(self, name: str) -> int:
        if name not in self.names:
            raise ValueError(f"expected a variable of {', '.join(self.names)}, got {name!r}")
        return self.names.index(name)


def _adjacency(tables: tuple[Cpt, ...]) -> np.ndarray:
    adjacency = np.zeros((len(tables), len(tables)), dtype=bool)
    for v, table in enumerate(tables):
        adjacency[v, list(table.parents)] = True
    return adjacency
