"""The results as one HTML page that needs no other file."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from html import escape

from dagnn.experiments.figures import draw_curves, draw_figure, svg
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

__all__ = ["html_report"]

STYLE = """
:root { color-scheme: light; --ink: #1d2733; --soft: #5d6b7a; --line: #dde3ea; --ours: #12406b; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 62rem; padding: 1rem; color: var(--ink); background: #fff;
       font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 .5rem; }
h2 { font-size: 1.15rem; margin: 2.5rem 0 .5rem; }
nav { display: flex; flex-wrap: wrap; gap: .25rem .75rem; font-size: .9rem; }
.scroll { overflow-x: auto; }
table { border-collapse: separate; border-spacing: 0; font-size: .85rem;
        font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .6rem; border-bottom: 1px solid var(--line); text-align: right;
         white-space: nowrap; vertical-align: top; }
th:first-child, td:first-child { text-align: left; position: sticky; left: 0; background: #fff; }
.ours { color: var(--ours); font-weight: 600; }
.paper, .notes, .error { color: var(--soft); }
td span { display: block; }
.badge { font-size: .75rem; padding: .1rem .5rem; border-radius: 1rem; background: #fff3cd;
         color: #6b5200; }
figure { margin: 1rem 0; }
svg { max-width: 100%; height: auto; }
code { font-size: .85em; overflow-wrap: anywhere; background: #f4f6f8; padding: .1rem .3rem; }
details td { white-space: normal; text-align: left; }
"""


def html_report(records: Sequence[Record], folder: str = CELLS) -> str:
    """All tables and figures, with training curves and how to make each run again.

    Args:
        records: See :func:`dagnn.experiments.records.read_records`.
        folder: Where they are.
    """
    option = escape(f"--results {shlex.quote(folder)}")
    elsewhere = f" Add <code>{option}</code> to the commands." * (folder != CELLS)
    views = view_all(records)
    links = (f'<a href="#{_anchor(view)}">{escape(_short_title(view))}</a>' for view in views)
    sections = "\n".join(_section(view) for view in views)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>dagnn: results</title>
<style>{STYLE}</style>
</head>
<body>
<h1>Directed acyclic graph neural networks: results</h1>
<p>In each place: <span class="ours">ours</span>, then
<span class="paper">the paper's value</span>, mean ± standard deviation, and where they can be
compared the difference in standard errors (se). Deviations are over runs, and of a single run there
is none; for NA and BN, as in the paper, they are over ten fits of a Gaussian process to the latent
space of one run. – is not measured yet.{elsewhere}</p>
<nav>{" ".join(links)}</nav>
{sections}
</body>
</html>
"""


def _short_title(view: EntryView) -> str:
    number = view.entry.title.partition(":")[0]
    return f"{number} (quick)" if view.measured and view.entry.preset == "quick" else number


def _anchor(view: EntryView) -> str:
    return f"{view.entry.name}-{view.entry.preset}"


def _section(view: EntryView) -> str:
    badge = ' <span class="badge">quick</span>' if view.entry.preset == "quick" else ""
    head = f'<h2 id="{_anchor(view)}">{escape(view.entry.title)}{badge}</h2>'
    if not view.measured:
        again = f"<code>{escape(command(view))}</code>"
        return f'<section>{head}\n<p class="notes">Not measured yet: {again}</p></section>'
    figure = draw_figure(view)
    parts = [
        head,
        f"<p><code>{escape(command(view))}</code></p>",
        f"<figure>{svg(figure)}</figure>" if figure is not None else "",
        f'<div class="scroll">{_table(view)}</div>',
        '<ul class="notes">' + "".join(f"<li>{escape(n)}</li>" for n in notes(view)) + "</ul>",
        *_curves(view),
        _runs(view),
    ]
    return "<section>" + "\n".join(part for part in parts if part) + "</section>"


def _table(view: EntryView) -> str:
    columns = view.entry.columns
    titles = "".join(f"<th>{escape(column_title(view, column))}</th>" for column in columns)
    rows = (
        f"<tr><td>{escape(row)}</td>"
        + "".join(f"<td>{_cell(view.at(row, column))}</td>" for column in columns)
        + "</tr>"
        for row in view.entry.rows
    )
    return f"<table><thead><tr><th></th>{titles}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _cell(place: PlaceView | None) -> str:
    if place is None:
        return ""
    ours = escape(spread(place.value, place)) if place.value else "–"
    text = f'<span class="ours">{ours}</span>'
    if place.place.paper is not None:
        text += f'<span class="paper">{escape(spread(place.place.paper, place))}</span>'
    if error := difference(place):
        text += f'<span class="error">{escape(error)}</span>'
    return text


def _curves(view: EntryView) -> Iterator[str]:
    """For each column's task, the curves of its rows, of the first seed each."""
    firsts: dict[str, dict[str, Record]] = {}
    for place in view.measured:
        first = place.records[0]
        task = place.place.column.removesuffix("-rmse").removesuffix("-r")
        firsts.setdefault(task, {})[place.place.row] = first
    for task, found in firsts.items():
        figure = draw_curves(found, f"{task.upper()}: training")
        if figure is not None:
            yield f"<details><summary>Training curves, {escape(task.upper())}</summary>"
            yield f"<figure>{svg(figure)}</figure></details>"


def _runs(view: EntryView) -> str:
    rows = []
    for place in view.measured:
        first = place.records[0].content
        commit = (first.get("commit") or "")[:10]
        facts = (
            f"{len(place.records)} runs, {duration(place)} s, {place.records[0].device}, {commit}"
        )
        again = place_command(place)
        made_by = f"<code>{escape(again)}</code>" if again else NO_COMMAND
        rows.append(
            f"<tr><td>{escape(place.place.row)}, {escape(place.place.column)}</td>"
            f"<td>{escape(facts)}<br>{made_by}</td></tr>"
        )
    return (
        "<details><summary>How to make each place again</summary>"
        f'<div class="scroll"><table><tbody>{"".join(rows)}</tbody></table></div></details>'
    )
