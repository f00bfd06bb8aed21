"""``dagnn reproduce``: the paper's tables and figures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dagnn.cli.app import app
from dagnn.cli.choices import Device, DeviceOption, Precision, Preset, RayOption
from dagnn.cli.console import counted, messages, print_json, results

if TYPE_CHECKING:
    from dagnn.experiments.cells import Cell
    from dagnn.experiments.records import Record
    from dagnn.experiments.runner import Outcome
    from dagnn.experiments.selection import Selection

__all__ = ["reproduce"]

TRAINING = "Training (by default the preset's; what runs otherwise is another record)"


@app.command()
def reproduce(
    name: Annotated[
        str | None,
        typer.Argument(
            help="table1 to table6, figure-time (3), figure-layers (4), figure-network (5), "
            "figure-lp (6), all; or sweep, which finds learning rates for TOK and LP.",
            show_default=False,
        ),
    ] = None,
    preset: Annotated[
        Preset,
        typer.Option(
            help="quick: small, all of it in about a quarter of an hour on two idle cores."
        ),
    ] = Preset.quick,
    seeds: Annotated[
        str | None,
        typer.Option(metavar="0,1,…", help="By default the preset's.", show_default=False),
    ] = None,
    row: Annotated[
        list[str] | None,
        typer.Option(help="Only this row; may be given more than once.", show_default=False),
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(help="Only this column, such as tok-15; na is both of NA's."),
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="By default $DAGNN_DATA or data.", show_default=False),
    ] = None,
    folder: Annotated[
        Path, typer.Option("--results", metavar="DIR", help="Where records are kept.")
    ] = Path("results/cells"),
    runs: Annotated[
        Path, typer.Option(metavar="DIR", help="Where runs keep their checkpoints.")
    ] = Path("runs/cells"),
    epochs: Annotated[
        int | None,
        typer.Option(
            min=1, show_default=False, rich_help_panel=TRAINING,
            help="At most; a run that only measures time keeps its own.",
        ),
    ] = None,
    precision: Annotated[
        Precision | None,
        typer.Option(
            show_default=False, rich_help_panel=TRAINING,
            help="Of models of code; tf32 or bf16 for speed on a GPU.",
        ),
    ] = None,
    learning_rate: Annotated[
        float | None,
        typer.Option(
            show_default=False, rich_help_panel=TRAINING,
            help="Adam's at the start. Of models of code by default the best of a sweep, or 0.001.",
        ),
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(min=1, show_default=False, rich_help_panel=TRAINING)
    ] = None,
    dropout: Annotated[
        float | None,
        typer.Option(
            show_default=False, rich_help_panel=TRAINING,
            help="Of models of code: of node features and graph vectors, while training, in place "
            "of the 0.5 of SAGPool and ASAP, and of none otherwise.",
        ),
    ] = None,
    device: DeviceOption = Device.auto,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs", "-j", min=1, show_default=False,
            help="Runs at a time. By default 2 with the preset quick on two CPU cores or more.",
        ),
    ] = None,
    streams: Annotated[
        int | None,
        typer.Option(
            min=1, show_default=False,
            help="On a GPU: autoencoders at a time, side by side in one process.",
        ),
    ] = None,
    ray: RayOption = None,
    gpus: Annotated[
        float, typer.Option(min=0, help="With --ray: the share of a GPU that a run needs.")
    ] = 0.0,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would run, and what it would take.")
    ] = False,
    import_run: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", show_default=False,
            help="Instead, take over runs of `dagnn train` and `dagnn score` below a folder.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:  # fmt: skip
    """Run what a table or a figure of the paper needs, and show it beside the paper's values.

    Each run becomes a record in `results/cells`. What is recorded is not run again, and what was
    killed goes on where it was: give the same command again. Several processes, also on several
    machines, may work on one folder. `dagnn report` makes a page of all records.

    Examples:

    - `dagnn reproduce all --preset quick`

    - `dagnn reproduce table2 --preset paper --column na --dry-run`

    - `dagnn reproduce table1 --preset paper --row DAGNN --row GCN --seeds 0,1,2`

    - `dagnn reproduce table1 --preset paper --column tok-15 --epochs 12 --precision bf16`

    - `dagnn reproduce all --preset paper --column na --streams 5`

    - `dagnn reproduce all --preset paper --ray auto --gpus 0.5`
    """
    if import_run is not None and name is not None:
        raise ValueError("expected either what to reproduce or --import-run, got both")
    if import_run is not None:
        _import(import_run, folder, as_json)
        return
    if name is None:
        raise ValueError("expected what to reproduce, such as table1 or all; see --help")

    from collections import Counter

    from dagnn.experiments.cluster import run_on_ray
    from dagnn.experiments.data_files import data_folder
    from dagnn.experiments.records import read_records
    from dagnn.experiments.registry import best_rates
    from dagnn.experiments.run_cell import Workplace
    from dagnn.experiments.runner import run_cells, with_data
    from dagnn.experiments.selection import Selection
    from dagnn.experiments.streams import run_on_streams
    from dagnn.graph.files import check_folder

    options = {
        "epochs": epochs,
        "precision": precision and precision.value,
        "learning_rate": learning_rate,
        "batch_size": batch_size,
        "dropout": dropout,
    }
    selection = Selection(
        name,
        preset.value,
        rows=tuple(row or ()),
        columns=tuple(column or ()),
        seeds=() if seeds is None else tuple(_seed(word) for word in seeds.split(",")),
        options={option: value for option, value in options.items() if value is not None},
    )
    records = read_records(folder)
    cells = selection.cells(best_rates(((r.cell, r.metrics) for r in records), preset))
    workers = jobs or _default_jobs(preset, device)
    alone = workers == 1 and ray is None and preset is Preset.paper  # a bar that is worth watching
    place = Workplace(data_folder(data_dir), runs, device.value, progress=alone)
    if dry_run:
        _show_plan(cells, records, place.data, device is Device.cuda or _on_gpu(device), as_json)
        return
    if gpus and ray is None:
        raise ValueError("expected --ray with --gpus, which are shares of its workers")
    if streams is not None:
        _check_streams(cells, device, jobs, ray)
    if device is Device.cuda and not _on_gpu(device):
        raise ValueError("expected a CUDA device, but torch finds none; use --device cpu")
    ready, outcomes = with_data(cells, place.data)
    for reason, count in Counter(outcome.reason for outcome in outcomes).items():
        messages.print(f"no data for {count} of {len(cells)} runs: {reason}", style="yellow",
                       markup=False, highlight=False, soft_wrap=True)  # fmt: skip
    check_folder(folder, "--results")
    check_folder(runs, "--runs")
    if ray is not None and ready:
        running = run_on_ray(ready, folder, place, address=ray, gpus=gpus)
    elif streams is not None:
        running = run_on_streams(ready, folder, place, streams)
    else:
        running = run_cells(ready, folder, place, workers)
    if ready:
        words = f"{counted(len(ready), 'run')}; records in {folder}"
        messages.print(words, markup=False, highlight=False)
    for number, outcome in enumerate(running, 1):
        outcomes.append(outcome)
        _tell(outcome, number, len(ready))
    _show(selection, read_records(folder), outcomes, as_json)
    if any(outcome.status in ("failed", "no data") for outcome in outcomes):
        raise typer.Exit(1)


def _seed(word: str) -> int:
    if not word.strip().isdigit() or int(word) >= 2**32:
        raise ValueError(f"expected seeds such as 0,1,2, below 2^32, got {word!r}")
    return int(word)


def _check_streams(cells: list[Cell], device: Device, jobs: int | None, ray: str | None) -> None:
    from dagnn.experiments.streams import can_share

    if jobs is not None or ray is not None:
        raise ValueError("expected one of --streams, --jobs and --ray, got several")
    if not _on_gpu(device):
        raise ValueError("expected a GPU for --streams, got none; use --jobs to run cells at once")
    if not any(can_share(cell) for cell in cells):
        raise ValueError("expected autoencoders for --streams, got other runs alone; leave it out")


def _on_gpu(device: Device) -> bool:
    import torch

    return torch.cuda.is_available() and device is not Device.cpu


def _default_jobs(preset: Preset, device: Device) -> int:
    import os

    on_gpu = _on_gpu(device)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    return 2 if preset is Preset.quick and not on_gpu and cores > 1 else 1


def _import(run: Path, folder: Path, as_json: bool) -> None:
    from dagnn.experiments.imports import import_runs
    from dagnn.experiments.views import why_in_no_table

    found = import_runs(run, folder)
    for record in found:
        if why := why_in_no_table(record):
            messages.print(f"{record.cell.id} is in no table: {why}", style="yellow",
                           markup=False, highlight=False, soft_wrap=True)  # fmt: skip
    if as_json:
        print_json([record.content["id"] for record in found])
        return
    for record in found:
        results.print(str(folder / f"{record.cell.id}.json"), markup=False, highlight=False)


def _show_plan(
    cells: list[Cell], records: list[Record], data: Path, on_gpu: bool, as_json: bool
) -> None:
    from rich import box
    from rich.table import Table

    from dagnn.experiments.plan import make_plan

    plan = make_plan(cells, records, data, on_gpu)
    if as_json:
        print_json(plan.to_dict())
        return
    table = Table(box=box.SIMPLE)
    for title in ("cells", "state", "runs", "each"):
        table.add_column(title, justify="left" if title in ("cells", "state") else "right")
    for line in plan.lines:
        each = f"{'' if line.is_measured else '≈ '}{_duration(line.seconds)}"
        table.add_row(line.name, line.state, str(line.count), each)
    results.print(table)
    waiting = f"; {plan.without_data} wait for data" if plan.without_data else ""
    where = "a GPU" if on_gpu else "the CPU"
    results.print(f"To run: {plan.to_run} of {len(cells)}, about {_duration(plan.seconds)} of work "
                  f"on {where}{waiting}; ≈ is a guess within a factor of a few.",
                  highlight=False)  # fmt: skip
    for line_of_help in plan.missing:
        messages.print(line_of_help, style="yellow", markup=False, highlight=False)


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def _tell(outcome: Outcome, number: int, total: int) -> None:
    words = f"{number}/{total} {outcome.cell.id}: {outcome.status}"
    if outcome.status == "done" and outcome.record is not None:
        words += f", {_duration(outcome.record.content['seconds'])}"
    style = "red" if outcome.status == "failed" else None
    text = f"{words} {outcome.reason}".strip()
    messages.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def _show(
    selection: Selection, records: list[Record], outcomes: list[Outcome], as_json: bool
) -> None:
    from rich import box
    from rich.table import Table

    from dagnn.experiments.views import view_entry
    from dagnn.experiments.wording import column_title, difference, notes, spread

    names = [name for name in selection.names if name != "sweep"]
    first = {outcome.cell.id for outcome in outcomes}  # also where others are as planned
    views = [
        view_entry(name, selection.preset, records, first).only(selection.rows, selection.columns)
        for name in names
    ]
    views = [view for view in views if view.places]
    if as_json:
        counts: dict[str, Any] = {}
        for outcome in outcomes:
            counts[outcome.status] = counts.get(outcome.status, 0) + 1
        print_json({"outcomes": counts, "entries": [view.to_dict() for view in views]})
        return
    for view in views:
        table = Table(title=view.entry.title, title_justify="left", box=box.SIMPLE)
        table.add_column("")
        for column in view.entry.columns:
            table.add_column(f"{column_title(view, column)}\nours / paper", justify="right")
        for row in view.entry.rows:
            texts = []
            for column in view.entry.columns:
                place = view.at(row, column)
                if place is None:
                    texts.append("")
                    continue
                ours = spread(place.value, place) if place.value else "–"
                paper = spread(place.place.paper, place) if place.place.paper else ""
                texts.append("\n".join(filter(None, (ours, paper, difference(place)))))
            table.add_row(row, *texts)
        results.print(table)
        for note in notes(view):
            messages.print(note, markup=False, highlight=False)
