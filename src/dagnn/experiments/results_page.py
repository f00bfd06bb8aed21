"""The results as Markdown: ``RESULTS.md``."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from dagnn.experiments.records import CELLS, Record
from dagnn.experiments.views import EntryView, PlaceView, view_all
from dagnn.experiments.wording import (
    NO_COMMAND,
    column_title,
    command,
    difference,
    duration,
    notes,
    place_command,
    spread,
)

__all__ = ["results_page"]

HEAD = """\
# Results

Every table and figure of *Directed Acyclic Graph Neural Networks* (Thost and Chen, ICLR 2021), as
measured with this package: **ours**, then the paper's value, each mean ± standard deviation, and
where they can be compared the difference in standard errors (se). Deviations are over runs, and of
a single run there is none; for NA and BN, as in the paper, they are over ten fits of a Gaussian
process to the latent space of one run. `–` is not measured yet.

{origin}
"""
HERE = """\
This page is made from the records in `results/cells` by `dagnn report --out RESULTS.md`; do not
edit it. `dagnn report` makes the same as a page with pictures. The command of a table makes all of
it as the preset says; those under *Runs* give the runs that stand there, given the same data:
[docs/code_data.md](docs/code_data.md) describes the functions of TOK and LP, which are not
distributed."""
ELSEWHERE = """\
This page is made from the records in `{folder}` by `dagnn report`. The command of a table makes
all of it as the preset says; those under *Runs* give the runs that stand there, if you add
`--results {folder}`."""


def results_page(records: Sequence[Record], folder: str = CELLS) -> str:
    """All tables and figures as Markdown.

    Args:
        records: See :func:`dagnn.experiments.records.read_records`.
        folder: Where they are.
    """
    origin = HERE if folder == CELLS else ELSEWHERE.format(folder=shlex.quote(folder))
    head = HEAD.format(origin=origin)
    return "\n".join([head, *(_section(view) for view in view_all(records))])


def _section(view: EntryView) -> str:
    lines = [f"## {view.entry.title}", ""]
    if view.measured:
        lines += [f"Preset `{view.entry.preset}`: `{command(view)}`", "", *_table(view), ""]
        lines += [f"- {note}" for note in notes(view)]
        lines += ["", *_details(view)]
    else:
        lines += [f"Not measured yet: `{command(view)}`"]
    return "\n".join([*lines, ""])


def _table(view: EntryView) -> list[str]:
    columns = view.entry.columns
    lines = [
        "| | " + " | ".join(column_title(view, column) for column in columns) + " |",
        "| --- |" + " --- |" * len(columns),
    ]
    for row in view.entry.rows:
        cells = (_cell(view.at(row, column)) for column in columns)
        lines.append(f"| {row} | " + " | ".join(cells) + " |")
    return lines


def _cell(place: PlaceView | None) -> str:
    if place is None:
        return ""
    parts = [f"**{spread(place.value, place)}**" if place.value else "–"]
    if place.place.paper is not None:
        parts.append(spread(place.place.paper, place))
    if error := difference(place):
        parts.append(error)
    return " · ".join(parts)


def _details(view: EntryView) -> list[str]:
    """How to make each place again, folded away."""
    lines = ["<details><summary>Runs</summary>", "", "| place | runs | seconds | command |"]
    lines.append("| --- | --- | --- | --- |")
    for place in view.measured:
        again = place_command(place)
        lines.append(
            f"| {place.place.row}, {place.place.column} | {len(place.records)} | {duration(place)} "
            f"| {f'`{again}`' if again else NO_COMMAND} |"
        )
    return [*lines, "", "</details>"]
