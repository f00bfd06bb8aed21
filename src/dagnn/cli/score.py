"""``dagnn score``: how well a latent space tells the scores of graphs."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated, Any

import typer

from dagnn.cli.app import app
from dagnn.cli.choices import Device, DeviceOption, Preset
from dagnn.cli.console import messages, print_json, print_table, results

__all__ = ["score"]


class Process(enum.StrEnum):
    """See :func:`dagnn.autoencoders.latent_scoring.score_latent`."""

    fitc = "fitc"
    vfe = "vfe"
    svgp = "svgp"
    exact = "exact"


@app.command()
def score(
    checkpoint: Annotated[Path, typer.Argument(help="last.ckpt of a run, or its folder.")],
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The graphs that the run was trained on; by default found where they were, or in "
            "$DAGNN_DATA or data/.",
            show_default=False,
        ),
    ] = None,
    gp: Annotated[
        list[Process] | None,
        typer.Option(
            help="A Gaussian process; may be given more than once. fitc and vfe are sparse and "
            "trained on all points at once, svgp is sparse and trained on minibatches. By default "
            "vfe, and with the preset paper also fitc and exact.",
            show_default=False,
        ),
    ] = None,
    preset: Annotated[
        Preset, typer.Option(help="quick: a minute on two cores; paper: its protocol.")
    ] = Preset.quick,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="By default the preset's.", show_default=False)
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Draw the latent space: .png, .svg or .pdf.", show_default=False
        ),
    ] = None,
    device: DeviceOption = Device.auto,
    force: Annotated[
        bool, typer.Option("--force", help="Take --data even if the training had other graphs.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Predict scores from a latent space by Gaussian processes, and measure the predictions.

    RMSE is in standard deviations of the training scores; r is Pearson's, τ Kendall's. The last
    measure is the share of test scores inside their 90 % intervals. The result is kept in
    `score.json` beside the checkpoint, with what `dagnn predict` needs.

    Examples:

    - `dagnn score runs/na-dagnn-0 --plot latent.png`

    - `dagnn score runs/na-dagnn-0 --preset paper --gp fitc --gp exact`
    """
    from dagnn.autoencoders.score_run import score_run

    kinds = ["fitc", "vfe", "exact"] if preset is Preset.paper else ["vfe"]
    if gp:
        kinds = list(dict.fromkeys(kind.value for kind in gp))
    record = score_run(
        checkpoint,
        data,
        kinds=kinds,
        preset=preset.value,
        seeds=seeds,
        plot=plot,
        device=device.value,
        force=force,
        tell=lambda words: messages.print(words, style="dim", markup=False, highlight=False),
    )
    if not record["data"]["as_in_training"]:
        messages.print(
            "These are not the graphs of the training: some of the test graphs may have been seen.",
            style="yellow",
        )
    restless = [kind for kind, found in record["metrics"].items() if found["is_flat"] is False]
    if restless:
        messages.print(
            f"The fit of {', '.join(restless)} had not come to rest at its last step: more steps "
            "may predict better (--preset paper).",
            style="yellow",
        )
    if plot is not None:
        messages.print(f"drawn in {plot}", markup=False, highlight=False)
    if as_json:
        print_json(record)
        return
    _print_table(record)


def _print_table(record: dict[str, Any]) -> None:
    from rich import box
    from rich.table import Table

    title = f"{record['config']['checkpoint']}, {record['config']['seeds']} seeds"
    table = Table(title=title, title_justify="left", box=box.SIMPLE)
    columns = {"rmse": "RMSE", "pearson": "r", "kendall": "τ", "coverage90": "in 90 %"}
    table.add_column("process")
    for heading in columns.values():
        table.add_column(heading, justify="right", no_wrap=True)
    for kind, metrics in record["metrics"].items():
        cells = [f"{metrics[name]['mean']:.3f} ± {metrics[name]['std']:.3f}" for name in columns]
        table.add_row(kind, *cells)
    print_table(table)
    own = record["predictor"]
    results.print(
        f"Predictor, kept with it: RMSE {own['rmse']:.3f}, {own['coverage90']:.0%} in its 90 % "
        "intervals",
        highlight=False,
    )
