"""``dagnn name``: what a model would call your functions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dagnn.cli.app import app
from dagnn.cli.choices import Device, DeviceOption
from dagnn.cli.console import print_json, results
from dagnn.cli.given_paths import model_and_sources

__all__ = ["name"]


@app.command()
def name(
    paths: Annotated[
        list[str],
        typer.Argument(metavar="FILE…", help="Python files, or folders; - is standard input."),
    ],
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            "--checkpoint",
            "-c",
            help="Of a model trained with `dagnn train tok`, or its run's folder. "
            "Default: $DAGNN_CHECKPOINT, or runs/tok/dagnn/seed0/best.ckpt.",
            show_default=False,
        ),
    ] = None,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="Names for each.")] = 3,
    surprise: Annotated[
        bool,
        typer.Option("--surprise", help="Sort by how little the model expected the given names."),
    ] = False,
    top: Annotated[
        int | None, typer.Option(min=1, help="Show so many functions.", show_default=False)
    ] = None,
    device: DeviceOption = Device.auto,
    as_json: Annotated[bool, typer.Option("--json", help="Print the names as JSON.")] = False,
) -> None:
    """Suggest names for functions, with their probabilities.

    Methods and nested functions are functions of their own. Source is parsed, never executed. The
    surprise at a function's own name is in bits per word: with 10 bits, the model took a word of
    it for one in a thousand. Words that it has not learnt are all one to it, the unknown word.

    A file that cannot be parsed is named on stderr; the status is 1 if that is all of them.

    Examples:

    - `dagnn name my_module.py`

    - `dagnn name src/ --surprise --top 20`

    - `dagnn name src/ --json > names.json`

    - `git show HEAD~1:my_module.py | dagnn name -`
    """
    from dataclasses import asdict

    from dagnn.cli.function_files import read_functions
    from dagnn.tasks.default_checkpoint import default_checkpoint

    checkpoint, paths = model_and_sources(paths, checkpoint)
    model = default_checkpoint(checkpoint)
    files, functions = read_functions(paths, as_json=as_json)

    from dagnn.tasks.code_training import load_task
    from dagnn.tasks.naming import name as suggest

    task = load_task(model)
    named = list(zip(files, suggest(task, functions, count=count, device=device), strict=True))
    if surprise:
        named.sort(key=lambda pair: -pair[1].surprise)
    named = named[:top]
    if as_json:
        print_json([{"file": file, **asdict(function)} for file, function in named])
        return
    for file, function in named:
        suggestions = "  ".join(
            f"{s.name} {100 * s.probability:.1f}%" for s in function.suggestions
        )
        results.print(
            f"{file}:{function.line}: {function.qualified_name}  "
            f"[{function.surprise:.1f} bits]  {suggestions}",
            markup=False,
            highlight=False,
        )
