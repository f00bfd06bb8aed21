"""``dagnn data get``: fetch public data sets."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated

import typer

from dagnn.cli.app import data
from dagnn.cli.console import messages, results
from dagnn.graph.files import check_folder

__all__ = ["get"]


class Name(enum.StrEnum):
    """See :data:`dagnn.datasets.download.DOWNLOADS`."""

    code2 = "code2"
    na = "na"
    asia_bn = "asia-bn"


@data.command()
def get(
    name: Annotated[Name, typer.Argument(help="Which data set.")],
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", metavar="DIR", envvar="DAGNN_DATA", help="Where data sets are kept."
        ),
    ] = Path("data"),
) -> None:
    """Download a data set, and print where it is.

    `code2` is ogbg-code2 of the Open Graph Benchmark (functions), `na` the neural architectures
    and `asia-bn` the Bayesian networks of D-VAE. A transfer that broke off goes on where it ended.
    `na` and `asia-bn` are verified by their hashes; no hash of `code2` is known, of whose archive
    only the checksums inside are. What is there already is not fetched again.

    Examples:

    - `dagnn data get na --out data`

    - `dagnn data get code2 && dagnn train tok --data data/ogbg_code2`
    """
    check_folder(out)

    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    from dagnn.datasets.download import DOWNLOADS, get_dataset

    download = DOWNLOADS[name]
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
    )
    with Progress(*columns, console=messages, transient=True) as bar:
        task = bar.add_task(download.name, total=None)
        path, was_there = get_dataset(
            download, out, lambda done, size: bar.update(task, completed=done, total=size)
        )
    if was_there:
        messages.print(f"{path} is there already")
    results.print(str(path), markup=False)
