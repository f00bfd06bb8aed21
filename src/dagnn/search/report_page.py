"""A learned network as one HTML page that needs nothing else: no script, no file, no network."""

from __future__ import annotations

import html
import io
from collections.abc import Iterable, Sequence

import numpy as np

from dagnn.bayesnet.draw import draw_network
from dagnn.bayesnet.network import BayesianNetwork
from dagnn.search.learning_report import LearnedNetwork, LearningReport

__all__ = ["format_page"]

MAX_ROWS, MAX_LEVELS = 64, 12  # of a probability table; the files have all of it

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1c2733; background: #fff; max-width: 60rem;
  margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin-bottom: 0; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
table { border-collapse: collapse; margin: .6rem 0; }
th, td { padding: .2rem .7rem; border-bottom: 1px solid #dde4eb; text-align: right; }
th:first-child, td:first-child { text-align: left; } th { color: #51606f; font-weight: 600; }
svg { max-width: 100%; height: auto; } .lead { font-size: 1.05rem; } .note { color: #51606f; }
details { margin: .3rem 0; } summary { cursor: pointer; }
"""


def format_page(network: LearnedNetwork, title: str) -> str:
    """The page: the picture, the comparison, the curve of the best score over rounds, the edges
    with their confidence, each node's share of the score, and the probabilities."""
    report = network.report
    if report is None:
        raise ValueError("expected a network with a report, such as learn_network returns")
    name = (network.score_name or "").upper()
    parts = [
        f"<h1>{_text(title)}</h1>",
        f'<p class="note">{len(network.names)} variables, {report.rows:,} rows</p>',
        f'<p class="lead">{name} <b>{network.score():,.3f}</b>: {_text(report.verdict())}.</p>',
        *(f'<p class="note">{_text(note)}</p>' for note in report.notes),
        '<h2>Network</h2><div id="network">',
        _network_picture(network),
        "</div>",
        "<h2>Comparison</h2>",
        _comparison(network, report),
        f"<h2>Best {name} over rounds</h2>" + _curve(report) if report.rounds else "",
        "<h2>Edges</h2>",
        _edges(network),
        f"<h2>Share of the {name}</h2>",
        _shares(network),
        "<h2>Probabilities</h2>",
        *(_probabilities(network, v) for v in range(len(network.names))),
        "<h2>How it was found</h2>",
        _table(("phase", "seconds"), [(k, f"{v:.1f}") for k, v in report.seconds.items()]),
        _table(("setting", "value"), [(k, str(v)) for k, v in report.settings.items()]),
    ]
    body = "\n".join(parts)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_text(title)}</title>\n<style>{STYLE}</style>\n</head>\n"
        f"<body>\n{body}\n</body>\n</html>\n"
    )


def _network_picture(network: BayesianNetwork) -> str:
    from matplotlib import rc_context

    file = io.StringIO()
    # Text as text, so that it can be found and read aloud; ids that do not change between runs.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "dagnn"}):
        draw_network(network).savefig(file, format="svg", metadata={"Date": None})
    svg = file.getvalue()
    return svg[svg.index("<svg") :]


def _comparison(network: LearnedNetwork, report: LearningReport) -> str:
    rows = [("this network", network.score()), ("hill climbing", report.hill_climbing)]
    if report.exact is not None:
        rows.append(("optimum (exact search)", report.exact))
    rows.append((f"best of {report.pivots:,} pivots", report.best_pivot))
    return _table(
        ("network", "score", "below the best"),
        [
            (label, f"{score:,.3f}", f"{max(value for _, value in rows) - score:,.3f}")
            for label, score in rows
        ],
    )


def _curve(report: LearningReport) -> str:
    """The best score after each round, as SVG; the optimum as a dashed line."""
    numbers = [0, *(summary.number for summary in report.rounds)]
    best = [report.best_pivot, *(summary.best for summary in report.rounds)]
    high = max([*best, *([] if report.exact is None else [report.exact])])
    low = min(best)
    room = 0.08 * (high - low) or 1.0
    low, high = low - room, high + room
    width, height, left, bottom = 640, 240, 110, 32

    def x(number: float) -> float:
        return left + (width - left - 16) * number / max(numbers[-1], 1)

    def y(score: float) -> float:
        return (height - bottom) * (high - score) / (high - low) + 4

    steps = f"M{x(0):.1f} {y(best[0]):.1f}" + "".join(
        f" H{x(number):.1f} V{y(score):.1f}"
        for number, score in zip(numbers[1:], best[1:], strict=True)
    )
    lines = [
        f'<text x="{x(number):.1f}" y="{height - 8}" text-anchor="middle">{number}</text>'
        for number in numbers[:: max(1, len(numbers) // 10)]
    ]
    for score in np.linspace(low + room, high - room, 3) if len(set(best)) > 1 else {best[0]}:
        lines.append(
            f'<text x="{left - 8}" y="{y(float(score)) + 4:.1f}" text-anchor="end">'
            f"{score:,.2f}</text>"
        )
    if report.exact is not None:
        at = f"{y(report.exact):.1f}"
        lines.append(
            f'<path d="M{left} {at} H{width - 16}" stroke="#b3541e" stroke-dasharray="5 4"/>'
            f'<text x="{width - 16}" y="{y(report.exact) - 6:.1f}" text-anchor="end" '
            f'fill="#b3541e">optimum</text>'
        )
    marks = "".join(
        f'<circle cx="{x(number):.1f}" cy="{y(score):.1f}" r="3" fill="#12406b"/>'
        for number, score in zip(numbers, best, strict=True)
    )
    return (
        f'<svg id="curve" viewBox="0 0 {width} {height}" width="{width}" role="img" '
        f'aria-label="best score over rounds" font-size="11" fill="#51606f" '
        f'font-family="system-ui, sans-serif"><path d="M{left} 4 V{height - bottom} H{width - 16}" '
        f'fill="none" stroke="#9fb0c0"/>{"".join(lines)}'
        f'<path d="{steps}" fill="none" stroke="#12406b" stroke-width="2"/>{marks}</svg>'
        f'<p class="note">Round 0 is the best pivot. {report.scored:,} graphs were decoded and '
        f"scored, {report.climbs:,} hill climbs started from them.</p>"
    )


def _edges(network: BayesianNetwork) -> str:
    if not network.edges:
        return '<p class="note">None: the variables look independent.</p>'
    undirected, confidence = network.cpdag.undirected, network.edge_confidence
    rows = []
    for v, u in np.argwhere(network.adjacency):
        direction = "either" if undirected[v, u] else "as shown"
        sure = "" if confidence is None else f"{confidence[v, u]:.2f}"
        rows.append((f"{network.names[u]} → {network.names[v]}", direction, sure))
    table = _table(("edge", "direction", "confidence"), rows)
    return table + (
        '<p class="note">Direction: equivalent networks fit the data equally well, and all of them '
        "agree about it, or not (the CPDAG). Confidence: the share of bootstrap samples with "
        "the edge.</p>"
    )


def _shares(network: BayesianNetwork) -> str:
    assert network.node_scores is not None
    rows = [
        (name, f"{share:,.3f}")
        for name, share in zip(network.names, network.node_scores.tolist(), strict=True)
    ]
    return _table(("variable", "share"), [*rows, ("all", f"{network.score():,.3f}")])


def _probabilities(network: BayesianNetwork, v: int) -> str:
    name, levels = network.names[v], network.levels[v]
    table = network.tables[v]
    given = [network.names[u] for u in table.parents]
    head = [*given, *levels[:MAX_LEVELS], *(["…"] if len(levels) > MAX_LEVELS else [])]
    rows = []
    for codes, chances in zip(table.configurations, table.probabilities, strict=True):
        values = [network.levels[u][i] for u, i in zip(table.parents, codes, strict=True)]
        cells = [f"{chance:.4f}" for chance in chances[:MAX_LEVELS]]
        rows.append([*values, *cells, *(["…"] if len(levels) > MAX_LEVELS else [])])
    more = f'<p class="note">and {len(rows) - MAX_ROWS:,} more</p>' if len(rows) > MAX_ROWS else ""
    title = f"P({name} | {', '.join(given)})" if given else f"P({name})"
    return (
        f"<details><summary>{_text(title)}</summary>{_table(head, rows[:MAX_ROWS])}{more}</details>"
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    first = "".join(f"<th>{_text(cell)}</th>" for cell in head)
    body = "".join(
        "<tr>" + "".join(f"<td>{_text(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{first}</tr></thead><tbody>{body}</tbody></table>"


def _text(value: str) -> str:
    return html.escape(value)
