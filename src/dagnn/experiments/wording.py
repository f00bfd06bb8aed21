"""How results are put into words, for every kind of page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from dagnn.experiments.paper_values import COLUMNS, TABLES, Value
from dagnn.experiments.records import SPARSE, Record
from dagnn.experiments.registry import AS_PUBLISHED, BAG, GATED, ORIGINAL
from dagnn.experiments.selection import Selection
from dagnn.experiments.views import EntryView, Measured, PlaceView

__all__ = [
    "NO_COMMAND",
    "column_title",
    "command",
    "difference",
    "duration",
    "notes",
    "number",
    "place_command",
    "spread",
]

QUICK = (
    "Quick preset: small models on little data for few epochs. It shows that everything runs, and "
    "in what order of size; it does not compare with the paper, nor models with one another: on "
    "TOK, most still give one name to all functions."
)
NO_COMMAND = "no options of dagnn reproduce give these runs; their records say what they are"
OTHER_TITLES = {"bic": "BIC", "longest path": "mean length"}


def column_title(view: EntryView, column: str) -> str:
    """A column's title, with an arrow in the better direction."""
    if view.entry.name == "figure-time":
        return f"{column.upper()}, s an epoch"
    if column not in COLUMNS:
        return OTHER_TITLES[column]
    title, more_is_better = COLUMNS[column]
    return f"{title} {'↑' if more_is_better else '↓'}"


def number(value: float, place: PlaceView) -> str:
    """A number with as many digits as the paper gives."""
    if place.place.metric == "train_seconds":
        return f"{value:.3g}" if value < 100 else f"{value:,.0f}"
    return f"{value:.{3 if place.place.scale == 1 else 2}f}"


def spread(value: Measured | Value, place: PlaceView) -> str:
    """Mean and standard deviation."""
    mean = number(value.mean, place)
    is_bare = value.std is None or (value.std == 0 and isinstance(value, Value))
    return mean if is_bare else f"{mean} ± {number(value.std or 0.0, place)}"


def difference(place: PlaceView) -> str:
    """How far ours is from the paper's, in standard errors, or nothing."""
    error = place.error
    return "" if error is None else f"{error:+.1f} se"


def command(view: EntryView) -> str:
    """What makes a table or a figure as the preset says."""
    return Selection(view.entry.name, view.entry.preset).command


def place_command(place: PlaceView) -> str | None:
    """What makes the runs of a place again, if anything does; see :data:`NO_COMMAND`."""
    return None if place.selection is None else place.selection.command


def duration(place: PlaceView) -> str:
    """The seconds that the runs of a place took in all, if they had their device to themselves."""
    if any(record.is_shared for record in place.records):
        return "–"
    return f"{sum(record.content['seconds'] for record in place.records):,.0f}"


def notes(view: EntryView) -> list[str]:
    """What a reader should know beside the numbers."""
    found = []
    if view.entry.preset == "quick" and view.measured:
        found.append(QUICK)
    if view.records:
        found.append(f"Data: {_data(view)}. Run on: {_devices(view)}.")
    if any(record.cell.task == "tok" for record in view.records):
        found.append(
            "The paper's TOK is on the first release of OGB's code graphs, in which the name often "
            "stood; here it is masked, so that F1 is lower for all models."
        )
    if any(place.place.row == BAG for place in view.measured):
        found.append(
            f"{BAG}: how far the nodes' types, attributes and depths lead, which this small model "
            "weighs and adds up, without layers or edges. The paper has none."
        )
    if any(place.place.row == GATED for place in view.measured):
        found.append(
            f"{GATED}: DAGNN with GG-NN's kind of readout, a gated sum over all nodes, in place of "
            "the maximum over targets and sources. Its linear maps of the states of all layers "
            "have 3.2 million parameters (preset paper). The paper has none."
        )
    if any(place.place.row == AS_PUBLISHED for place in view.places):
        found.append(
            "The paper's values of GCN are those of D-VAE's code, in which the nodes of a layer "
            "come one after the other, and predecessors send what they have become in it (GCN as "
            "published). The other GCN is a convolution: its nodes come all at once."
        )
    if view.entry.name == "table5":
        values = ((COLUMNS[c][0], TABLES["table5"][ORIGINAL][c]) for c in view.entry.columns)
        listed = _join(f"{title} {v.mean:.3f} ± {v.std:.3f}" for title, v in values)
        found.append(
            f"The paper's {ORIGINAL} is the code of D-VAE's authors, which is not run here: "
            f"{listed}."
        )
    timed = {(p.place.row, p.place.column) for p in view.measured}
    if view.entry.name == "figure-time" and ("GCN", "na") in timed:
        found.append(
            "On NA, the paper's GCN computes the nodes of a layer one after the other; ours is a "
            "convolution, whose nodes come all at once."
        )
    if any(p.is_comparable and p.place.metric.startswith(f"{SPARSE}.") for p in view.measured):
        found.append(
            "The paper's values are of another sparse Gaussian process, that of D-VAE's code, by "
            "which a latent space has a larger RMSE than by ours, which are fitted to all points "
            "at once: benchmarks/latent_processes.py scores by both."
        )
    if exact := _exact(view):
        found.append(f"By an exact Gaussian process instead of a sparse one: {exact}.")
    found += [
        f"{place.place.row}, {place.place.column}: run with {_settings(place.changes)}."
        for place in view.measured
        if place.changes
    ]
    if rates := _rates(view):
        found.append(rates)
    if dropouts := _dropouts(view):
        found.append(dropouts)
    if view.entry.preset != "quick" and (rising := _best_at_the_end(view)):
        found.append(
            "Still improving in the last epoch; longer training may help (in brackets: in how many "
            f"runs): {rising}."
        )
    if any(name.startswith("scoring.") for p in view.measured for name in p.changes):
        found.append("The commands score latent spaces as planned, also where these were not.")
    missing = len(view.places) - len(view.measured)
    if view.measured and missing:
        found.append(f"{missing} of {len(view.places)} places are not measured yet.")
    return found


def _rates(view: EntryView) -> str:
    """The learning rates that were tried, where there are several; those in the table first."""
    tried, is_best = [], True
    for place in view.measured:
        others = [runs for runs in place.others if _same_dropout(runs, place.records)]
        if not others or place.place.metric == "train_seconds":
            continue
        groups = (place.records, *others)
        scores = [value.mean for runs in groups if (value := place.validated(runs)) is not None]
        is_best &= len(scores) == len(groups) and scores[0] == max(scores)
        rates = _join(_rate(place, runs) for runs in groups)
        tried.append(f"{place.place.row}, {place.place.column}: {rates}")
    if not tried:
        return ""
    why = (
        "by the validation split"
        if is_best
        else "as planned, else by the number of seeds, else by the validation split"
    )
    return (
        "Learning rates tried (in brackets: seeds, and their mean score on the validation split), "
        f"of which the table has the first, {why}: {'; '.join(tried)}."
    )


def _rate(place: PlaceView, runs: Sequence[Record]) -> str:
    return f"{runs[0].cell.options['learning_rate']:g} ({_seeds(place, runs)})"


def _seeds(place: PlaceView, runs: Sequence[Record]) -> str:
    score = place.validated(runs)
    return f"{len(runs)}" if score is None else f"{len(runs)}: {number(score.mean, place)}"


def _dropouts(view: EntryView) -> str:
    """What was measured with another dropout than the table has."""
    found = [
        f"{place.place.row}, {place.place.column}: {_with_dropout(place, runs)}"
        for place in view.measured
        for runs in place.others
        if not _same_dropout(runs, place.records) and place.place.metric != "train_seconds"
    ]
    if not found:
        return ""
    return (
        "With another dropout than in the table, whichever is better, since the paper's protocol "
        "has none (in brackets: seeds, and their mean score on the validation split; and those of "
        f"the runs in the table): {'; '.join(found)}."
    )


def _with_dropout(place: PlaceView, runs: Sequence[Record]) -> str:
    value = replace(place, records=tuple(runs)).value
    score = "–" if value is None else spread(value, place)
    cell = runs[0].cell
    dropout = "without" if cell.dropout is None else f"with {cell.dropout:g}"
    rate = cell.options["learning_rate"]
    mine = _seeds(place, place.records)
    return f"{score} {dropout} at learning rate {rate:g} ({_seeds(place, runs)}; there {mine})"


def _same_dropout(runs: Sequence[Record], others: Sequence[Record]) -> bool:
    return runs[0].cell.dropout == others[0].cell.dropout


def _best_at_the_end(view: EntryView) -> str:
    """The places in which the last epoch was the best, of some run."""
    found = []
    for place in view.measured:
        if place.place.metric == "train_seconds":
            continue
        metrics = [record.metrics for record in place.records]
        rising = sum(m["best_epoch"] == m["epochs"] - 1 for m in metrics if "best_epoch" in m)
        if rising:
            found.append(f"{place.place.row}, {place.place.column} ({rising} of {len(metrics)})")
    return "; ".join(found)


def _data(view: EntryView) -> str:
    names = {(r.content["data"]["name"], r.content["data"]["sha256"][:8]) for r in view.records}
    return ", ".join(f"{name} ({digest})" for name, digest in sorted(names))


def _devices(view: EntryView) -> str:
    return ", ".join(sorted({record.device for record in view.records}))


def _exact(view: EntryView) -> str:
    found = ((place, place.exact_process) for place in view.measured)
    return "; ".join(
        f"{place.place.row} {column_title(view, place.place.column)[:-2]} {spread(value, place)}"
        for place, value in found
        if value is not None
    )


def _settings(changes: dict[str, Any]) -> str:
    return _join(f"{name.removeprefix('encoder.')} {value}" for name, value in changes.items())


def _join(words: Iterable[str]) -> str:
    return ", ".join(words)
