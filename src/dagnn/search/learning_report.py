"""How a network was found, and how good it is beside what other searches find."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from dagnn.bayesnet.network import BayesianNetwork

__all__ = ["LearnedNetwork", "LearningReport", "RoundSummary"]

SAME = 1e-6  # scores that differ by less are the same but for rounding


@dataclass(frozen=True)
class RoundSummary:
    """A round of the search in a few numbers.

    Args:
        number: The first is 1.
        best: The best score so far, of pivots too.
        best_of_round: The best score of the networks that were new in this round, if any.
        decoded: How many graphs were decoded.
        new: How many networks were not known before.
        seconds: How long it took.
    """

    number: int
    best: float
    best_of_round: float | None
    decoded: int
    new: int
    seconds: float


@dataclass(frozen=True)
class LearningReport:
    """What is known about a learned network beside the network.

    Args:
        rows: The number of rows of the table.
        notes: What a user should know about the data and the search.
        settings: All options of the search, for a record.
        pivots: The number of pivots.
        best_pivot: The best score among them.
        rounds: The rounds.
        found: The score with which the search ended.
        hill_climbing: The best score of hill climbing with restarts from the empty network.
        exact: The best score of all networks, or None where there are too many variables.
        scored: Graphs that the search scored beside the pivots.
        climbs: Hill climbs that started from decoded graphs.
        seconds: By phase.
    """

    rows: int
    notes: tuple[str, ...]
    settings: dict[str, Any]
    pivots: int
    best_pivot: float
    rounds: tuple[RoundSummary, ...]
    found: float
    hill_climbing: float
    exact: float | None
    scored: int
    climbs: int
    seconds: dict[str, float]

    @property
    def gap(self) -> float | None:
        """How far the search ended below the best score of all; None where that is not known."""
        return None if self.exact is None else max(self.exact - self.found, 0.0)

    def verdict(self) -> str:
        """The comparison in a sentence."""
        beside = self.found - self.hill_climbing
        if abs(beside) < SAME:
            versus = "as good as hill climbing"
        else:
            versus = f"{abs(beside):,.3f} {'better' if beside > 0 else 'worse'} than hill climbing"
        if self.gap is None:
            return f"{versus}; the optimum is not known, with so many variables"
        if self.gap < SAME:
            return f"the optimum, proven by exact search; {versus}"
        return f"{self.gap:,.3f} below the optimum; {versus}"

    def to_dict(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return {**asdict(self), "gap": self.gap, "verdict": self.verdict()}


@dataclass(frozen=True, eq=False, repr=False)
class LearnedNetwork(BayesianNetwork):
    """A network with the report of how it was learned."""

    report: LearningReport | None = None
