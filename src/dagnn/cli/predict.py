"""``dagnn predict``: the score of a graph, with its uncertainty."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from dagnn.cli.app import app
from dagnn.cli.console import print_json, results

__all__ = ["na"]

predict = typer.Typer(name="predict", help="Predict the score of a graph.", no_args_is_help=True)
app.add_typer(predict)


@predict.command()
def na(
    architectures: Annotated[
        list[str],
        typer.Argument(
            metavar="ARCHITECTURE...",
            help="Six layers, each an operation (0 to 5) and a bit for every earlier node that "
            "feeds it.",
            show_default=False,
        ),
    ],
    checkpoint: Annotated[
        Path,
        typer.Option("--checkpoint", "-c", help="last.ckpt of a scored run, or its folder."),
    ] = Path("runs/na-dagnn-0"),
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Predict the accuracy of neural architectures on CIFAR-10 (weight sharing, as in ENAS).

    The run is one of `dagnn train na`; `dagnn score` makes what predicts from its latent space.

    Example:

    - `dagnn predict na "[[4],[0,1],[2,0,1],[3,1,1,0],[5,0,0,0,1],[1,0,1,1,1,0]]"`
    """
    from dagnn.autoencoders.score_run import predict_scores
    from dagnn.datasets.architectures import parse_architectures

    rows = [_read(text) for text in architectures]
    graphs = parse_architectures(f"{json.dumps(row)}, 0.0" for row in rows)
    prediction = predict_scores(checkpoint, graphs, "na")
    columns = {name: values.tolist() for name, values in prediction._asdict().items()}
    found: list[dict[str, Any]] = [
        {"architecture": row, "accuracy": mean, "std": std, "interval90": [low, high]}
        for row, mean, std, low, high in zip(rows, *columns.values(), strict=True)
    ]
    if as_json:
        print_json(found)
        return
    for item in found:
        low, high = item["interval90"]
        results.print(
            f"{item['accuracy']:.4f} ± {item['std']:.4f}  90 %: {low:.4f} to {high:.4f}  "
            f"{json.dumps(item['architecture'])}",
            markup=False,
            highlight=False,
        )


def _read(text: str) -> list[list[int]]:
    from dagnn.datasets.architectures import NUM_LAYERS, OPERATIONS
    from dagnn.datasets.rows import check_rows

    try:
        rows = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError(
            f"expected an architecture as [[op], [op, bit], [op, bit, bit], …], got {text[:80]!r}"
        ) from None
    try:
        return check_rows(rows, NUM_LAYERS, len(OPERATIONS))
    except ValueError as error:
        raise ValueError(f"{text[:80]}: {error}") from None
