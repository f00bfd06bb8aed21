"""``dagnn train predictor``: scores of graphs without a latent space between."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated

import typer

from dagnn.cli.app import train
from dagnn.cli.choices import Device, DeviceOption, QuietOption
from dagnn.cli.console import print_json, results
from dagnn.graph.files import check_folder

__all__ = ["predictor"]


class Task(enum.StrEnum):
    """See :func:`dagnn.autoencoders.task_data.load_task`."""

    na = "na"
    bn = "bn"


@train.command()
def predictor(
    task: Annotated[Task, typer.Argument(help="What the graphs are.")],
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The graphs; by default the file of the task in $DAGNN_DATA or data/.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="DIR",
            help="The run's folder; one that is there is resumed. "
            "By default runs/TASK-predictor-seed.",
            show_default=False,
        ),
    ] = None,
    epochs: Annotated[int, typer.Option(min=1, help="The largest number.")] = 100,
    hidden: Annotated[int, typer.Option(min=1, help="Width of the states.")] = 128,
    layers: Annotated[int, typer.Option(min=1, help="Layers of DAGNN.")] = 2,
    rate: Annotated[float, typer.Option(min=0, help="Adam's at the start.")] = 1e-3,
    batch_size: Annotated[int, typer.Option(min=1, help="Graphs in a step.")] = 64,
    seed: Annotated[int, typer.Option(min=0, help="Of weights and order.")] = 0,
    device: DeviceOption = Device.auto,
    quiet: QuietOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Train DAGNN end to end on the scores of graphs.

    What it reaches beside `dagnn score` on the same split shows what the way through a latent
    space costs. RMSE is in standard deviations of the training scores.

    Examples:

    - `dagnn train predictor na --data data/final_structures6.txt`

    - `dagnn train predictor bn --data bn.txt --epochs 10 --seed 1`
    """
    folder = out or Path("runs") / f"{task.value}-predictor-{seed}"
    check_folder(folder)

    from dagnn.autoencoders.regression import train_regressor
    from dagnn.autoencoders.task_data import default_file, load_task

    path = data or default_file(task.value)
    found = load_task(task.value, path)
    record = train_regressor(
        found.train,
        found.test,
        folder,
        hidden_channels=hidden,
        num_layers=layers,
        rate=rate,
        epochs=epochs,
        batch_size=batch_size,
        seed=seed,
        device=device.value,
        progress=not quiet,
        data={"task": task.value, "file": path.name, "sha256": found.fingerprint},
    )
    if as_json:
        print_json(record)
        return
    metrics = record["metrics"]
    results.print(
        f"{folder}: RMSE {metrics['rmse']:.3f}, r {metrics['pearson']:.3f}, "
        f"τ {metrics['kendall']:.3f} (epoch {metrics['best_epoch']} of {metrics['epochs']})",
        markup=False,
        highlight=False,
    )
