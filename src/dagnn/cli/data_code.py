"""``dagnn data code``: source code becomes a corpus of function DAGs."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dagnn.cli.app import data
from dagnn.cli.console import messages, print_json, results

if TYPE_CHECKING:
    from dagnn.datasets.corpus import CorpusReport

__all__ = ["code"]

NAMED = 10  # files that are shown; report.json has all


class Grouping(enum.StrEnum):
    """See :func:`dagnn.datasets.sources.find_sources`."""

    project = "project"
    folder = "folder"
    file = "file"


@data.command()
def code(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PATH…",
            help="Folders, files, installed distributions, `stdlib`. "
            "Default: the standard library and all installed distributions.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="DIR", help="The folder to make.")
    ] = Path("corpus"),
    split_by: Annotated[
        Grouping,
        typer.Option(help="What is never divided between training, validation and test."),
    ] = Grouping.project,
    seed: Annotated[int, typer.Option(help="Of the split.")] = 0,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Processes; by default one for each core.", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Make a corpus of function DAGs from Python source code.

    Nothing is imported or executed. Functions whose DAGs are identical are kept once. What cannot
    be parsed is left out, counted and named in `DIR/report.json`. A second run parses only what
    has changed; an interrupted one is continued.

    A project is a distribution, a repository (a folder with `.git`), or whatever is directly below
    the given folder.

    Examples:

    - `dagnn data code --out corpus`

    - `dagnn data code ~/src stdlib numpy --out corpus`

    - `dagnn data code my_project --split-by file --out corpus`
    """
    from dataclasses import asdict

    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    from dagnn.datasets.corpus import build_corpus

    columns = (
        TextColumn("parsing"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("files"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=messages, transient=True) as bar:
        task = bar.add_task("parsing", total=None)
        report = build_corpus(
            paths or (),
            out,
            seed=seed,
            group=split_by,
            workers=workers,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    if as_json:
        print_json(asdict(report))
    else:
        _show(report, out)
    empty = [split for split, count in report.functions.items() if count == 0]
    if empty:
        messages.print(
            f"No functions for {' and '.join(empty)}: a split takes whole projects, and here are "
            f"{report.projects}. Give more, or --split-by folder or file.",
            style="yellow",
        )


def _show(report: CorpusReport, out: Path) -> None:
    from rich.markup import escape
    from rich.table import Table

    table = Table(
        title=f"{sum(report.functions.values())} functions in {out}", title_justify="left"
    )
    table.add_column("functions")
    table.add_column("count", justify="right")
    for split, count in report.functions.items():
        table.add_row(split, str(count))
    table.add_row("left out: DAG is there already", str(report.duplicates), style="dim")
    for reason, count in report.skipped_functions.items():
        table.add_row(f"left out: {reason}", str(count), style="dim")
    results.print(table)
    results.print(
        f"{report.files} files of {report.projects} projects, {report.reused_files} parsed before"
    )
    for reason, count in report.skipped_by_reason().items():
        results.print(f"{count} files left out: {reason}")
    for skip in report.skipped_files[:NAMED]:
        results.print(
            f"  {escape(skip['file'])}: {escape(skip['reason'])}, {escape(skip['error'])}"
        )
    if len(report.skipped_files) > NAMED:
        results.print(f"  … all are listed in {out / 'report.json'}")
