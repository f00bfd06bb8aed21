"""``dagnn report``: all results on one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dagnn.cli.app import app
from dagnn.cli.console import results

__all__ = ["report"]


@app.command()
def report(
    folder: Annotated[
        Path, typer.Option("--results", metavar="DIR", help="The records of dagnn reproduce.")
    ] = Path("results/cells"),
    out: Annotated[
        Path,
        typer.Option("--out", "-o", metavar="FILE", help=".html with pictures, or .md."),
    ] = Path("report.html"),
) -> None:
    """Write every table and figure with the paper's values beside ours.

    The page needs no other file. It has the difference in standard errors, training curves, and
    the command that makes each place again.

    Examples:

    - `dagnn report --out report.html`

    - `dagnn report --out RESULTS.md`
    """
    if out.suffix not in (".html", ".md"):
        raise ValueError(f"expected a name that ends with .html or .md, got {out}")
    if not folder.is_dir():
        kind = "a file" if folder.exists() else "not there"
        raise ValueError(
            f"expected a folder of records, got {folder}, which is {kind}; make some: dagnn "
            "reproduce table2 (dagnn doctor tells which data are there for it)"
        )

    from dagnn.experiments.records import read_records
    from dagnn.experiments.report import html_report
    from dagnn.experiments.results_page import results_page
    from dagnn.training.checkpoints import write_atomically

    records = read_records(folder)
    if not records:
        raise ValueError(
            f"expected records in {folder}, got none; make some: dagnn reproduce table2"
        )
    pages = {".html": html_report, ".md": results_page}
    text = pages[out.suffix](records, folder.as_posix())
    write_atomically(out, lambda file: file.write(text.encode()))
    results.print(str(out), markup=False, highlight=False)
