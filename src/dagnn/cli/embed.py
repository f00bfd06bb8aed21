"""``dagnn embed``: functions as vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dagnn.cli.app import app
from dagnn.cli.choices import Device, DeviceOption
from dagnn.cli.console import counted, messages
from dagnn.cli.given_paths import model_and_sources

__all__ = ["embed"]


@app.command()
def embed(
    paths: Annotated[
        list[str],
        typer.Argument(metavar="FILE…", help="Python files, or folders; - is standard input."),
    ],
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", help="x.parquet (file, line, name, vector) or x.npy (vectors alone)."
        ),
    ],
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            "--checkpoint",
            "-c",
            help="Of a model of code, or its run's folder. "
            "Default: $DAGNN_CHECKPOINT, or runs/tok/dagnn/seed0/best.ckpt.",
            show_default=False,
        ),
    ] = None,
    device: DeviceOption = Device.auto,
) -> None:
    """Write one vector per function, for search and clustering.

    Functions come in the order of the files as they are given (those of a folder by name), and in
    that in which they begin. Without any, nothing is written and the status is 1.

    Examples:

    - `dagnn embed src/ --out functions.parquet`

    - `dagnn embed a.py b.py --out vectors.npy`
    """
    from dagnn.cli.function_files import read_functions
    from dagnn.tasks.default_checkpoint import default_checkpoint

    checkpoint, paths = model_and_sources(paths, checkpoint)
    model = default_checkpoint(checkpoint)
    files, functions = read_functions(paths)

    if not functions:  # which was said
        raise typer.Exit(1)

    from dagnn.tasks.code_training import load_task
    from dagnn.tasks.embedding_files import check_format, write_embeddings
    from dagnn.tasks.naming import embed as embed_functions

    check_format(out)
    task = load_task(model)
    write_embeddings(out, files, functions, embed_functions(task, functions, device=device))
    number = counted(len(functions), "function")
    messages.print(f"{number}, {task.encoder.out_channels} numbers each: {out}")
