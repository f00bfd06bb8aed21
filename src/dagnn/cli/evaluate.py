"""``dagnn evaluate``: a checkpoint on the splits of a data set."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dagnn.cli.app import app
from dagnn.cli.choices import Device, DeviceOption
from dagnn.cli.console import counted, print_json, results
from dagnn.cli.given_paths import check_run, find_corpus

__all__ = ["evaluate"]


@app.command()
def evaluate(
    checkpoint: Annotated[Path, typer.Argument(help="best.ckpt of a run, or its folder.")],
    data: Annotated[
        Path | None,
        typer.Option(
            help="A folder made by `dagnn data code`, a Parquet file of its schema, or ogbg-code2.",
            show_default="what the run was trained on, or corpus",
        ),
    ] = None,
    split: Annotated[str, typer.Option(help="train, valid or test.")] = "test",
    device: DeviceOption = Device.auto,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Evaluate a model of code on a data set.

    Words are those that the model was trained with, whatever the data.

    Examples:

    - `dagnn evaluate runs/tok/dagnn/seed0`

    - `dagnn evaluate runs/lp/gcn/seed0/best.ckpt --data corpus --split valid --json`
    """
    if split not in ("train", "valid", "test"):
        raise ValueError(f"expected a split of train, valid, test, got {split!r}")
    check_run(checkpoint)
    corpus = find_corpus(data, checkpoint)

    from dagnn.datasets.code_dataset import load_code_dataset
    from dagnn.tasks.code_training import evaluate as evaluate_task
    from dagnn.tasks.code_training import load_task

    task = load_task(checkpoint)
    dataset = load_code_dataset(corpus, edges=task.edges, vocabulary=task.vocabulary)
    graphs = getattr(dataset, split)
    if len(graphs) == 0:
        raise ValueError(f"expected functions in the split {split} of {corpus}, got none")
    values = evaluate_task(task, graphs, device=device)
    if as_json:
        print_json(
            {
                "task": task.kind,
                "model": task.encoder.config.model,
                "data": dataset.name,
                "fingerprint": dataset.fingerprint,
                "split": split,
                "functions": len(graphs),
                **values,
            }
        )
        return
    results.print(
        f"{task.kind}, {task.encoder.config.model}, {counted(len(graphs), 'function')} of "
        f"{dataset.name} ({split})",
        highlight=False,
    )
    for name, value in values.items():
        results.print(
            f"  {name:10}{value:.4f}" if name == "loss" else f"  {name:10}{100 * value:.2f} %",
            highlight=False,
        )
