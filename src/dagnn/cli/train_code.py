"""``dagnn train tok`` and ``dagnn train lp``: models of code."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dagnn.cli.app import train
from dagnn.cli.choices import (
    Device,
    DeviceOption,
    Devices,
    NumNodes,
    Precision,
    Preset,
    QuietOption,
)
from dagnn.cli.console import messages, print_json, results, speaks
from dagnn.cli.given_paths import find_corpus
from dagnn.cli.model_options import check_options
from dagnn.graph.files import check_folder

if TYPE_CHECKING:
    from dagnn.tasks.code_protocol import CodeRun

__all__: list[str] = []  # commands are found in the application


Model = Annotated[
    str,
    typer.Option(
        help="dagnn, dvae, gcn, gin, gcn-vn, gin-vn, gat, ggnn, sagpool, asap, or bag, which "
        "sees no edges.",
    ),
]
Data = Annotated[
    Path | None,
    typer.Option(
        help="A folder made by `dagnn data code`, a Parquet file of its schema, or ogbg-code2.",
        show_default="corpus, or data/corpus",
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        metavar="DIR",
        help="Where the runs are kept. Default: runs/TASK/MODEL.",
        show_default=False,
    ),
]
PresetOption = Annotated[
    Preset,
    typer.Option(help="quick: 4,000 functions, minutes on two cores; or as in the paper."),
]
Seeds = Annotated[int, typer.Option(min=1, help="The number of runs.")]
Seed = Annotated[int, typer.Option(min=0, help="The seed of the first run.")]
Sweep = Annotated[
    bool, typer.Option("--sweep", help="Find the learning rate on 15% of the training data first.")
]
Rate = Annotated[float | None, typer.Option("--learning-rate", help="Of Adam.", show_default=False)]
Epochs = Annotated[
    int | None,
    typer.Option(min=1, help="At most; more let a finished run go on.", show_default=False),
]
Share = Annotated[float | None, typer.Option(help="Of the training split.", show_default=False)]
Limit = Annotated[
    int | None,
    typer.Option(
        min=0,
        help="At most so many functions of it, a random sample; 0: all. Preset quick: 4000.",
        show_default=False,
    ),
]
BatchSize = Annotated[int | None, typer.Option(min=1, help="Functions.", show_default=False)]
PrecisionOption = Annotated[Precision, typer.Option(help="tf32 or bf16 for speed on a GPU.")]
Captured = Annotated[
    bool | None,
    typer.Option(
        "--captured/--no-captured",
        help="Each step one CUDA graph: by default on one GPU, for all but sagpool and asap.",
        show_default=False,
    ),
]
Every = Annotated[
    int | None,
    typer.Option("--checkpoint-every", min=1, help="Steps; by default epochs.", show_default=False),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Edges = Annotated[
    str | None, typer.Option(help="full (with next-token edges) or ast.", show_default=False)
]
Channels = Annotated[
    int | None,
    typer.Option("--channels", "--hidden", min=1, help="Width.", show_default=False),
]
Layers = Annotated[int | None, typer.Option(min=1, help="Layers.", show_default=False)]
Dropout = Annotated[
    float | None,
    typer.Option(
        help="Of node features and graph vectors, while training. By default none; it replaces "
        "the 0.5 of sagpool and asap.",
        show_default=False,
    ),
]

SPELLINGS = {"d-vae": "dvae"}  # as among the autoencoders
ABLATION = "Ablations of DAGNN"
Aggregator = Annotated[
    str | None,
    typer.Option(
        help="attention, dot_attention, dynamic_attention, gated_sum, …",
        show_default=False,
        rich_help_panel=ABLATION,
    ),
]
Cell = Annotated[
    str | None,
    typer.Option(
        help="gru or linear; or lstm or tanh, which have no fused path and are slower.",
        show_default=False,
        rich_help_panel=ABLATION,
    ),
]
Pool = Annotated[
    str | None,
    typer.Option(help="targets or all.", show_default=False, rich_help_panel=ABLATION),
]
Readout = Annotated[
    str | None,
    typer.Option(
        help="max, mean, sum, attention or gated_sum.",
        show_default=False,
        rich_help_panel=ABLATION,
    ),
]
EdgeAttributes = Annotated[
    bool | None,
    typer.Option(
        "--edge-attributes/--no-edge-attributes",
        help="Whether attention sees the types of edges.",
        show_default=False,
        rich_help_panel=ABLATION,
    ),
]
Bidirectional = Annotated[
    bool | None,
    typer.Option(
        "--bidirectional/--unidirectional",
        help="Also against the edges; also of D-VAE.",
        show_default=False,
        rich_help_panel=ABLATION,
    ),
]


TOK = """Learn to predict the words of functions' names.

An interrupted run goes on when the same command is given again. The folder of a run holds its
best and last checkpoint, `metrics.jsonl`, TensorBoard files, and `record.json`, the result.

Examples:

- `dagnn train tok --data corpus`

- `dagnn train tok --model gcn --data corpus --preset paper --sweep --seeds 5`

- `dagnn train tok --data corpus --preset paper --devices 4`
"""

LP = """Learn to predict the length of the longest path of functions' syntax trees.

With `--edges full`, the longest path of the DAG with its next-token edges, which is harder:
such paths run into the hundreds.

Examples:

- `dagnn train lp --data corpus`

- `dagnn train lp --model gin --data corpus --preset paper --train-share 0.15`
"""


def _add(task: str, words: str) -> None:
    """The command of a task: all of them have the same options."""

    @train.command(task, help=words)
    def command(
        model: Model = "dagnn",
        data: Data = None,
        out: Out = None,
        preset: PresetOption = Preset.quick,
        seeds: Seeds = 1,
        seed: Seed = 0,
        sweep: Sweep = False,
        learning_rate: Rate = None,
        epochs: Epochs = None,
        train_share: Share = None,
        train_limit: Limit = None,
        batch_size: BatchSize = None,
        edges: Edges = None,
        channels: Channels = None,
        layers: Layers = None,
        dropout: Dropout = None,
        precision: PrecisionOption = Precision.full,
        captured: Captured = None,
        device: DeviceOption = Device.auto,
        devices: Devices = 1,
        num_nodes: NumNodes = 1,
        checkpoint_every: Every = None,
        quiet: QuietOption = False,
        as_json: Json = False,
        aggregator: Aggregator = None,
        cell: Cell = None,
        pool: Pool = None,
        readout: Readout = None,
        edge_attributes: EdgeAttributes = None,
        bidirectional: Bidirectional = None,
    ) -> None:
        if sweep and learning_rate is not None:
            raise ValueError("expected either --sweep or --learning-rate, got both")
        model = SPELLINGS.get(model, model)
        folder = out or Path("runs", task, model)
        check_folder(folder)
        corpus = find_corpus(data)
        run = _configured(
            task,
            model,
            preset,
            learning_rate=learning_rate,
            epochs=epochs,
            train_share=train_share,
            train_limit=train_limit,
            batch_size=batch_size,
            edges=edges,
            precision=precision.value,
            captured=captured,
            common={"channels": channels, "layers": layers, "dropout": dropout},
            ablations={
                "aggregator": aggregator and aggregator.replace("-", "_"),
                "cell": cell,
                "pool": pool,
                "readout": readout and readout.replace("-", "_"),
                "edge_attributes": edge_attributes,
                "bidirectional": bidirectional,
            },
        )
        _train(
            run,
            corpus,
            folder,
            range(seed, seed + seeds),
            sweep_first=sweep,
            as_json=as_json,
            device=device,
            devices=devices,
            num_nodes=num_nodes,
            progress=not quiet,
            checkpoint_every_steps=checkpoint_every,
        )


_add("tok", TOK)
_add("lp", LP)


def _configured(
    task: str,
    model: str,
    preset: Preset,
    *,
    train_limit: int | None,
    common: dict[str, Any],
    ablations: dict[str, Any],
    **options: Any,
) -> CodeRun:
    """The preset's run, but for the options that were given: those that are not None. A limit of 0
    is none."""
    from dataclasses import replace

    from dagnn.tasks import code_protocol
    from dagnn.tasks.code_encoders import MODELS, model_options

    def given(options: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in options.items() if value is not None}

    run = code_protocol.preset(preset, task, model)
    check_options(model, given(ablations), {name: model_options(name) for name in MODELS})
    encoder = replace(run.encoder, **given(common), **given(ablations))
    run = replace(run, **given(options), encoder=encoder)
    return run if train_limit is None else replace(run, train_limit=train_limit or None)


def _train(
    run: CodeRun,
    source: Path,
    folder: Path,
    seeds: range,
    *,
    sweep_first: bool,
    as_json: bool,
    **fitting: Any,
) -> None:
    """Train with each seed, and print the result.

    Args:
        run: What to do.
        source: The data.
        folder: Where the runs are kept.
        seeds: Of the runs.
        sweep_first: Whether to find the learning rate.
        as_json: How to print.
        fitting: See :func:`dagnn.tasks.code_training.train_code`.
    """
    from dataclasses import replace
    from functools import lru_cache

    from dagnn.datasets.code_dataset import CodeDataset, load_code_dataset
    from dagnn.tasks.code_protocol import LEARNING_RATES
    from dagnn.tasks.code_training import repeat, sweep
    from dagnn.tasks.simple_baselines import simple_baselines
    from dagnn.training.processes import is_first, leave

    @lru_cache(maxsize=1)
    def load(edges: str, share: float) -> CodeDataset:
        return load_code_dataset(source, edges=edges, train_share=share)

    scores: dict[float, float | None] = {}
    if sweep_first:
        rate, scores = sweep(run, load, folder / "sweep", LEARNING_RATES, source=source, **fitting)
        run = replace(run, learning_rate=rate)
    functions = len(load(run.edges, run.train_share).train)
    limited = run.train_limit is not None and run.train_limit < functions
    if limited and fitting["progress"] and speaks():
        words = f"training on {run.train_limit:,} of {functions:,} functions; see --train-limit"
        messages.print(words, highlight=False)
    summary = repeat(run, load, folder, seeds, source=source, **fitting)
    if not is_first():
        leave()
    data = load(run.edges, run.train_share)
    summary["baselines"] = simple_baselines(run.task, data.valid, data.test, data.vocabulary)
    if scores:
        summary["sweep"] = {f"{rate:g}": score for rate, score in scores.items()}
    if as_json:
        print_json(summary)
    else:
        _show(run.task, run.encoder.model, summary, folder)
    leave()


def _show(task: str, model: str, summary: dict[str, Any], folder: Path) -> None:
    from rich.table import Table

    metric = {"tok": "f1", "lp": "accuracy"}[task]
    table = Table(title=f"{task} · {summary['config']['data']['name']}", title_justify="left")
    table.add_column("model")
    for split in ("valid", "test"):
        table.add_column(f"{split} {metric} (%)", justify="right")
    table.add_column("s per epoch", justify="right")

    def percent(name: str) -> str:
        mean, deviation = (summary[part][name] for part in ("mean", "std"))
        return f"{100 * mean:.2f}" + ("" if deviation is None else f" ± {100 * deviation:.2f}")

    table.add_row(
        model,
        percent(f"valid_{metric}"),
        percent(f"test_{metric}"),
        f"{summary['mean']['train_seconds']:.1f}" if "train_seconds" in summary["mean"] else "",
        style="bold",
    )
    for name, value in summary["baselines"].items():
        table.add_row(name, "", f"{100 * value:.2f}", "")
    results.print(table)
    seeds = summary["seeds"]
    run = f"seed{seeds[0]}" if len(seeds) == 1 else "seed*"
    results.print(f"Best weights: {folder / run / 'best.ckpt'}", highlight=False)
