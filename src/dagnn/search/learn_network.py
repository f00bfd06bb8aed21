"""A Bayesian network from a table, by search in the latent space of an autoencoder."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch

from dagnn.autoencoders.vae import DagVAE
from dagnn.bayesnet.bootstrap import bootstrap_confidence
from dagnn.bayesnet.constraints import Constraints, Edge
from dagnn.bayesnet.exact import SearchResult, exact_search
from dagnn.bayesnet.hill_climbing import hill_climb
from dagnn.bayesnet.scores import MAX_VARIABLES, FamilyScores, Score
from dagnn.bayesnet.table import Missing, Table
from dagnn.datasets.bayesian_networks import adjacency_of_networks, networks_from_adjacency
from dagnn.datasets.small_dags import SmallDags
from dagnn.search.latent_search import Round, SearchSettings, search_latent_space
from dagnn.search.learning_report import LearnedNetwork, LearningReport, RoundSummary
from dagnn.search.learning_settings import LearningSettings
from dagnn.search.network_scoring import NetworkScoring, without_idle_edges
from dagnn.search.phases import Phases
from dagnn.search.pivot_autoencoder import load_for_networks, train_on_pivots
from dagnn.search.pivots import draw_pivots
from dagnn.training.threads import SINGLE_THREADS

__all__ = ["learn_network"]

RESTARTS = 20  # of hill climbing, to compare with
BOOTSTRAP_RESTARTS = 3  # and in each bootstrap sample
# Settings of an autoencoder's training.
TRAINING = ("model", "epochs", "hidden_channels", "latent_channels", "batch_size")
# Sizes of Gaussian processes with which a round takes about a second.
CPU_PROCESS: dict[str, dict[str, Any]] = {
    "exact": {"points": 400, "steps": 40},
    "sparse": {"points": 2000, "focus": 0.25, "num_inducing": 100, "steps": 60},
}
GPU_PROCESS: dict[str, dict[str, Any]] = {
    "exact": {"points": 2000, "steps": 100},
    "sparse": {"points": 5000, "focus": 0.25, "num_inducing": 500, "steps": 100},
}


def learn_network(
    data: pd.DataFrame | Table,
    *,
    score: Score = "bic",
    equivalent_sample_size: float = 1.0,
    rounds: int = 10,
    batch: int = 50,
    seed: int = 0,
    require: Iterable[Edge] = (),
    forbid: Iterable[Edge] = (),
    max_parents: int | None = None,
    missing: Missing = "drop",
    bins: int | None = None,
    bootstrap: int = 100,
    settings: LearningSettings | None = None,
    device: str = "auto",
    progress: bool = False,
    on_round: Callable[[RoundSummary], None] | None = None,
    folder: str | os.PathLike[str] | None = None,
    autoencoder: str | os.PathLike[str] | None = None,
    graphs: SmallDags | None = None,
) -> LearnedNetwork:
    """Learn a Bayesian network from a table of discrete values.

    Pivot graphs are drawn and scored, an autoencoder is trained on them, and Bayesian optimisation
    in its latent space searches for better ones. The best graph of all is returned, so it is never
    worse than the best pivot.

    Args:
        data: The table. See :meth:`Table.from_frame` for :obj:`missing` and :obj:`bins`, which
            are for a data frame.
        score: ``"bic"``, ``"aic"``, ``"bdeu"`` (with :obj:`equivalent_sample_size`) or ``"k2"``.
        rounds: Of the search.
        batch: Graphs that are scored in a round; latent points, where settings do not foresee.
        seed: Of all that is drawn.
        require: Edges that the network must have, such as ``"A:B"`` or ``("A", "B")``.
        forbid: Edges that it must not have.
        max_parents: Of any variable.
        bootstrap: Samples for the confidence in the edges; 0 for none.
        settings: How to search; :meth:`LearningSettings.paper` for the paper's way.
        device: ``"cpu"``, ``"cuda"`` or ``"auto"``, for the autoencoder and its latent space.
        progress: Whether to show progress on stderr.
        on_round: Called with every round when it is over.
        folder: Where the autoencoder's training is kept, and goes on if it was interrupted; by
            default nowhere.
        autoencoder: A trained one to use, as a run's folder or checkpoint; any of networks with as
            many variables will do. By default one is trained.
        graphs: Pivots to use, such as those that an autoencoder was trained on. By default they
            are drawn.

    Returns:
        The network; ``network.report`` tells how it was found and compares it with hill climbing
        and, up to 20 variables, with the optimum.
    """
    if rounds < 0 or bootstrap < 0:
        raise ValueError(f"expected rounds and bootstrap >= 0, got {rounds} and {bootstrap}")
    if device not in ("auto", "cpu", "cuda"):
        raise ValueError(f"expected device 'auto', 'cpu' or 'cuda', got {device!r}")
    settings = settings or LearningSettings()
    on_gpu = device == "cuda" or (device == "auto" and torch.cuda.is_available())
    search = SearchSettings(
        rounds=rounds,
        batch=batch,
        decodings=settings.decodings,
        process=settings.process,
        seed=seed,
        starts=max(1000 if on_gpu else 200, 2 * batch),
        **(GPU_PROCESS if on_gpu else CPU_PROCESS)[settings.process],
    )
    table = data
    if not isinstance(table, Table):
        table = Table.from_frame(table, missing=missing, bins=bins)
    constraints = Constraints.over(
        table.names, require=require, forbid=forbid, max_parents=max_parents
    )
    scores = FamilyScores(table, score, equivalent_sample_size=equivalent_sample_size)
    settings = settings.sized(table.num_columns, on_gpu)
    phases = Phases(progress)
    for note in table.notes:
        phases.line(note)
    notes = list(table.notes)
    if constraints.required.any():
        pairs = (
            f"{table.names[u]} → {table.names[v]}" for v, u in np.argwhere(constraints.required)
        )
        notes.append(
            f"required, so in every network and sample, whatever the data say: {', '.join(pairs)}"
        )
    place = "cuda" if on_gpu else "cpu"
    loaded = None  # before all work, as it may be one of other networks
    if autoencoder is not None:
        loaded = load_for_networks(autoencoder, table.num_columns, device=place)

    climbed, best_of_all = _compare(scores, constraints, seed, phases)
    if best_of_all is None:
        notes.append(
            f"no exact search: it takes at most {MAX_VARIABLES} variables, and there are "
            f"{table.num_columns}"
        )
        phases.line(notes[-1])

    pivots = _pivots(graphs, scores, constraints, settings, seed, phases)
    best_pivot = float(pivots.score.max())
    counted = f"{len(pivots):,} pivot{'s' * (len(pivots) != 1)}"
    phases.line(f"{counted}, {score.upper()} up to {best_pivot:,.3f}")

    evaluate = NetworkScoring(
        scores, constraints, repair=settings.repair, improve=settings.improve, seed=seed
    )
    best, summaries = _best(pivots), []
    if len(pivots) == 1 or not rounds:
        why = "there is one pivot alone" if rounds else "0 rounds"
        notes.append(f"no search: {why}")
        phases.line(notes[-1])
    else:
        # On the CPU, steps of so small a model are too short to be shared, and on a busy machine
        # threads that wait for each other take many times as long as one alone.
        with nullcontext() if on_gpu else SINGLE_THREADS:
            model = loaded or _train(pivots, settings, seed, place, folder, phases)
            read = evaluate.read if settings.foresee else None
            with phases.phase("search", bar=False):
                for found in search_latent_space(model, pivots, evaluate, search, read=read):
                    best = max(best, _best(found.graphs), key=lambda result: result.score)
                    summaries.append(_summarise(found, best.score))
                    phases.line(_round_line(summaries[-1], rounds))
                    if on_round is not None:
                        on_round(summaries[-1])

    confidence = None
    if bootstrap:
        with phases.phase("bootstrap") as advance:
            again = partial(
                hill_climb, constraints=constraints, restarts=BOOTSTRAP_RESTARTS, seed=seed
            )
            confidence = bootstrap_confidence(
                scores, again, samples=bootstrap, seed=seed, progress=advance
            )
    report = LearningReport(
        rows=table.num_rows,
        notes=tuple(notes),
        settings={
            **_used(settings, autoencoder, graphs),
            "rounds": rounds,
            "batch": batch,
            "seed": seed,
            "bootstrap": bootstrap,
            "device": place,
        },
        pivots=len(pivots),
        best_pivot=best_pivot,
        rounds=tuple(summaries),
        found=best.score,
        hill_climbing=climbed.score,
        exact=None if best_of_all is None else best_of_all.score,
        scored=evaluate.scored,
        climbs=evaluate.climbs,
        seconds=dict(phases.seconds),
    )
    phases.line(report.verdict())
    adjacency = without_idle_edges(best.adjacency, scores, constraints)
    network = LearnedNetwork.fit(scores, adjacency, confidence=confidence)
    assert isinstance(network, LearnedNetwork)
    return replace(network, report=report)


def _compare(
    scores: FamilyScores, constraints: Constraints, seed: int, phases: Phases
) -> tuple[SearchResult, SearchResult | None]:
    """What hill climbing and, where it can be, exact search find."""
    exact = None
    if scores.num_variables <= MAX_VARIABLES:
        with phases.phase("exact search") as advance:
            exact = exact_search(scores, constraints, progress=advance)
    with phases.phase("hill climbing") as advance:
        climbed = hill_climb(scores, constraints, restarts=RESTARTS, seed=seed, progress=advance)
    return climbed, exact


def _pivots(
    given: SmallDags | None,
    scores: FamilyScores,
    constraints: Constraints,
    settings: LearningSettings,
    seed: int,
    phases: Phases,
) -> SmallDags:
    """Those that were given, scored anew as their scores may be of another table; or drawn ones."""
    with phases.phase("pivots") as advance:
        if given is None:
            assert settings.num_pivots is not None
            return draw_pivots(
                scores,
                constraints,
                settings.num_pivots,
                kind=settings.pivots,
                seed=seed,
                progress=advance,
            )
        if given.num_types - 2 != scores.num_variables:
            raise ValueError(
                f"expected graphs over the table's {scores.num_variables} columns, got "
                f"{given.num_types - 2} variables"
            )
        adjacency = np.unique(adjacency_of_networks(given).numpy(), axis=0)
        adjacency = adjacency[constraints.allow(adjacency)]
        if not len(adjacency):
            raise ValueError("expected graphs that meet the constraints, got none")
        score = torch.from_numpy(scores.score_graphs(adjacency))
        return networks_from_adjacency(torch.from_numpy(adjacency), score)


def _train(
    pivots: SmallDags,
    settings: LearningSettings,
    seed: int,
    device: str,
    folder: str | os.PathLike[str] | None,
    phases: Phases,
) -> DagVAE:
    with phases.phase("autoencoder", bar=False):
        phases.line(f"training the {settings.model} autoencoder on {len(pivots):,} pivots")
        return train_on_pivots(
            pivots, settings, seed=seed, device=device, folder=folder, progress=phases.shown
        )


def _used(
    settings: LearningSettings, run: str | os.PathLike[str] | None, graphs: SmallDags | None
) -> dict[str, Any]:
    """The settings, without those of an autoencoder or of pivots that were there already."""
    used = asdict(settings)
    if graphs is not None:
        used |= {"pivots": "given", "num_pivots": len(graphs)}
    if run is not None:
        used = {name: value for name, value in used.items() if name not in TRAINING}
        used["autoencoder"] = os.fspath(run)
    return used


def _best(graphs: SmallDags) -> SearchResult:
    if not len(graphs):
        return SearchResult(np.zeros((0, 0), dtype=bool), -np.inf)
    place = graphs.score.argmax().view(1)
    adjacency = adjacency_of_networks(graphs.index_select(place))[0].cpu().numpy()
    return SearchResult(adjacency, float(graphs.score[place]))


def _summarise(found: Round, best: float) -> RoundSummary:
    best_of_round = float(found.graphs.score.max()) if len(found.graphs) else None
    return RoundSummary(
        found.number, best, best_of_round, found.decoded, len(found.graphs), found.seconds
    )


def _round_line(summary: RoundSummary, rounds: int) -> str:
    here = "none new" if summary.best_of_round is None else f"{summary.best_of_round:,.3f}"
    return (
        f"round {summary.number}/{rounds}  best {summary.best:,.3f}  in this round {here}  "
        f"{summary.decoded} decoded, {summary.new} new  {summary.seconds:.1f} s"
    )
