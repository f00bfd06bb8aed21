"""Figures of the report, as SVG text that stands in the page itself."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, StrMethodFormatter

from dagnn.experiments.records import Record
from dagnn.experiments.views import EntryView

__all__ = ["draw_curves", "draw_figure", "svg"]

OURS, PAPER = "#12406b", "#c9a227"
WIDTH = 6.4  # inches; the page scales it down


def draw_figure(view: EntryView) -> Figure | None:
    """The figure of an entry, or ``None`` if nothing was measured for it."""
    draw = DRAW.get(view.entry.name)
    return draw(view) if draw is not None and view.measured else None


def draw_curves(records: Mapping[str, Record], title: str) -> Figure | None:
    """The loss over the epochs, a line for each name with a history of several epochs."""
    histories = {name: record.content.get("history") or () for name, record in records.items()}
    drawn = {name: rows for name, rows in histories.items() if len(rows) > 1}
    if not drawn:
        return None
    figure, axes = _axes(title)
    for label, rows in drawn.items():
        axes.plot([row["epoch"] + 1 for row in rows], [row["loss"] for row in rows], label=label)
    axes.set_xlabel("epoch")
    axes.set_ylabel("training loss")
    axes.legend(fontsize=7, ncols=2)
    return figure


def svg(figure: Figure) -> str:
    """A figure as an SVG element; the same figure gives the same text."""
    buffer = io.StringIO()
    with rc_context({"svg.hashsalt": "dagnn", "svg.fonttype": "path"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None}, bbox_inches="tight")
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def _axes(title: str, height: float = 3.2) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(WIDTH, height))
    axes = figure.add_subplot()
    axes.set_title(title, loc="left", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _times(view: EntryView) -> Figure:
    columns = view.entry.columns
    figure = Figure(figsize=(WIDTH, 3.0 * len(columns)))
    for number, column in enumerate(columns, 1):
        axes = figure.add_subplot(len(columns), 1, number)  # to be read on a phone
        places = [place for place in view.places if place.place.column == column]
        names = [place.place.row for place in places]
        spots = range(len(names))
        ours = [place.value.mean if place.value else float("nan") for place in places]
        paper = [place.place.paper.mean if place.place.paper else 0.0 for place in places]
        axes.barh([y - 0.2 for y in spots], paper, 0.4, color=PAPER, label="paper")
        axes.barh([y + 0.2 for y in spots], ours, 0.4, color=OURS, label="ours")
        axes.set_yticks(list(spots), names, fontsize=8)
        axes.invert_yaxis()
        axes.set_xscale("log")
        axes.xaxis.set_minor_formatter(NullFormatter())  # labels would overlap
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
        axes.set_xlabel("seconds an epoch", fontsize=8)
        axes.set_title(column.upper(), loc="left", fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(fontsize=7)
    figure.tight_layout()
    return figure


def _layers(view: EntryView) -> Figure:
    figure, axes = _axes("F1 on TOK-15 by number of layers")
    for label, color in (("paper", PAPER), ("ours", OURS)):
        points = []
        for place in view.places:
            value = place.place.paper if label == "paper" else place.value
            if value is not None:
                points.append((int(place.place.row), value.mean, value.std or 0.0))
        x, y, deviation = zip(*points, strict=True)
        axes.errorbar(x, y, deviation, marker="o", color=color, label=label, capsize=2)
    axes.set_xlabel("layers")
    axes.set_ylabel("F1 (%)")
    axes.legend()
    return figure


def _network(view: EntryView) -> Figure:
    from dagnn.bayesnet.draw import draw_network
    from dagnn.bayesnet.network import BayesianNetwork

    record = view.measured[0].records[0]
    return draw_network(BayesianNetwork.from_json(record.content["network"]))


def _lengths(view: EntryView) -> Figure:
    figure, axes = _axes("Functions by the length of the longest path")
    width = 0.8 / len(view.measured)
    for number, place in enumerate(view.measured):
        counts = place.records[0].metrics["counts"]
        share = [100 * count / sum(counts) for count in counts]
        spots = [length + (number - 0.5) * width for length in range(len(counts))]
        axes.bar(spots, share, width, color=(OURS, PAPER)[number % 2], label=place.place.row)
    axes.set_xlabel("length (nodes)")
    axes.set_ylabel("functions (%)")
    axes.legend(title="training split", fontsize=8)
    return figure


DRAW: dict[str, Callable[[EntryView], Figure]] = {
    "figure-time": _times,
    "figure-layers": _layers,
    "figure-network": _network,
    "figure-lp": _lengths,
}
