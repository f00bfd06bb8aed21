"""``dagnn data code``: source code becomes a corpus of function DAGs."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dagnn.cli.app import data
from dagnn.cli.choices import RayOption
from dagnn.cli.console import counted, messages, print_json, results

if TYPE_CHECKING:
    from dagnn.datasets.corpus import CorpusReport

__all__ = ["code"]

NAMED = 10  # files that are shown; report.json has all
# Functions of a split, on which no model can be chosen or compared: so few, or of all this share.
FEW, LEAST_SHARE = 10, 0.04


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
        typer.Option(help="What is not divided between training, validation and test."),
    ] = Grouping.project,
    seed: Annotated[int, typer.Option(help="Of the split.")] = 0,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Processes; by default one for each core.", show_default=False),
    ] = None,
    ray: RayOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Make a corpus of function DAGs from Python source code.

    Nothing is imported or executed. Functions whose DAGs are identical are kept once. What cannot
    be parsed is left out, counted and named in `DIR/report.json`. A second run parses only what
    has changed; an interrupted one is continued.

    A project is a distribution, a repository (a folder with `.git`), a given folder with
    `pyproject.toml`, `setup.py` or `__init__.py`, and each of several given folders, unless there
    are projects directly below it. In a single folder that is none of these it is whatever is
    directly below. Where fewer than three have functions, files are split instead, or else
    functions.

    Examples:

    - `dagnn data code --out corpus`

    - `dagnn data code ~/src stdlib numpy --out corpus`

    - `dagnn data code my_project another_project --out corpus`

    - `dagnn data code /shared/src --out /shared/corpus --ray auto`
    """
    from dataclasses import asdict
    from functools import partial

    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    from dagnn.datasets.corpus import build_corpus
    from dagnn.datasets.ray_workers import run_all_on_ray
    from dagnn.datasets.sources import find_sources, unmarked_folder

    unmarked = unmarked_folder(paths or ()) if split_by == Grouping.project else None
    if unmarked is not None:
        entries = len({file.project for file in find_sources([unmarked])})
        if entries > 1:
            messages.print(
                f"{unmarked} counts each of its {entries} entries as a project; a folder with "
                "pyproject.toml, setup.py, __init__.py or .git is one",
                markup=False,
                highlight=False,
                soft_wrap=True,
            )
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
            run=None if ray is None else partial(run_all_on_ray, address=ray),
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    if as_json:
        print_json(asdict(report))
    else:
        _show(report, out)
    if report.split_by != split_by:
        messages.print(
            f"Fewer than three {split_by}s have functions, so each {report.split_by} goes to "
            "training, validation or test on its own: what is alike may be on both sides.",
            style="yellow",
        )
    empty = [split for split, count in report.functions.items() if count == 0]
    total = sum(report.functions.values())
    least = max(FEW, LEAST_SHARE * total)
    few = [split for split, count in report.functions.items() if 0 < count < least]
    if empty or few:
        what = "No functions" if empty else "Few functions"
        finer = ", or --split-by file" if report.split_by == Grouping.project else ""
        messages.print(
            f"{what} for {' and '.join(empty or few)}: {counted(total, 'function')} in all. Give "
            f"more code, or another --seed{finer}, which divides it otherwise.",
            style="yellow",
        )


def _show(report: CorpusReport, out: Path) -> None:
    from rich.markup import escape
    from rich.table import Table

    table = Table(
        title=f"{counted(sum(report.functions.values()), 'function')} in {out}",
        title_justify="left",
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
        f"{counted(report.files, 'file')} of {counted(report.projects, 'project')}, "
        f"{report.reused_files} parsed before"
    )
    for reason, count in report.skipped_by_reason().items():
        results.print(f"{counted(count, 'file')} left out: {reason}")
    for skip in report.skipped_files[:NAMED]:
        results.print(
            f"  {escape(skip['file'])}: {escape(skip['reason'])}, {escape(skip['error'])}"
        )
    if len(report.skipped_files) > NAMED:
        results.print(f"  … all are listed in {out / 'report.json'}")
