"""``dagnn train na`` and ``dagnn train bn``: autoencoders of DAGs."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dagnn.cli.app import train
from dagnn.cli.choices import (
    Device,
    DeviceOption,
    Devices,
    NumNodes,
    Preset,
    QuietOption,
)
from dagnn.cli.console import messages, print_json, results
from dagnn.cli.model_options import check_options
from dagnn.graph.files import check_folder

if TYPE_CHECKING:
    from dagnn.autoencoders.fitting import AutoencoderConfig

__all__: list[str] = []  # commands are found in the application


class Model(enum.StrEnum):
    """See :data:`dagnn.autoencoders.models.MODELS`."""

    dagnn = "dagnn"
    dvae = "d-vae"
    svae = "s-vae"
    graphrnn = "graphrnn"
    gcn = "gcn"
    deepgmg = "deepgmg"


class Aggregator(enum.StrEnum):
    """See :class:`dagnn.autoencoders.dag_layer.DagLayer`."""

    attention = "attention"
    gated_sum = "gated-sum"


class Cell(enum.StrEnum):
    """See :class:`dagnn.autoencoders.dag_layer.DagLayer`."""

    gru = "gru"
    linear = "linear"


class Pool(enum.StrEnum):
    """See :class:`dagnn.autoencoders.encoders.DAGNNEncoder`."""

    targets = "targets"
    all = "all"


SETTINGS = "Settings (by default the preset's)"
ABLATIONS = "Options of a model (DAGNN's, if not said)"
ModelOption = Annotated[Model, typer.Option(help="The autoencoder.")]
PresetOption = Annotated[
    Preset, typer.Option(help="quick: a small model, minutes on two cores; paper: its protocol.")
]
OutOption = Annotated[
    Path | None,
    typer.Option(
        "--out", "-o", metavar="DIR", help="The run's folder; one that is there is resumed. "
        "By default runs/TASK-MODEL-seed.", show_default=False,
    ),
]  # fmt: skip
SeedOption = Annotated[int, typer.Option(min=0, help="Of weights, order and noise.")]
EpochsOption = Annotated[
    int | None,
    typer.Option(min=1, help="More let a finished run go on.", rich_help_panel=SETTINGS),
]
BatchOption = Annotated[int | None, typer.Option("--batch-size", min=1, rich_help_panel=SETTINGS)]
RateOption = Annotated[
    float | None,
    typer.Option(
        "--learning-rate", "--rate", help="Adam's at the start.", rich_help_panel=SETTINGS
    ),
]
HiddenOption = Annotated[
    int | None,
    typer.Option(
        "--hidden", "--channels", min=1, help="Width of the states.", rich_help_panel=SETTINGS
    ),
]
LatentOption = Annotated[
    int | None, typer.Option(min=1, help="Width of the latent space.", rich_help_panel=SETTINGS)
]
LayersOption = Annotated[int | None, typer.Option(min=1, rich_help_panel=ABLATIONS)]
AggregatorOption = Annotated[Aggregator | None, typer.Option(rich_help_panel=ABLATIONS)]
CellOption = Annotated[Cell | None, typer.Option(rich_help_panel=ABLATIONS)]
PoolOption = Annotated[
    Pool | None, typer.Option(help="Nodes of the readout.", rich_help_panel=ABLATIONS)
]
BothOption = Annotated[
    bool | None,
    typer.Option(
        "--bidirectional/--unidirectional",
        help="Also of D-VAE; by default both ways: DAGNN on BN, D-VAE on NA.",
        rich_help_panel=ABLATIONS, show_default=False,
    ),
]  # fmt: skip
PublishedOption = Annotated[
    bool | None,
    typer.Option(
        "--as-published",
        help="GCN: nodes of a layer one after the other, as in D-VAE's code.",
        rich_help_panel=ABLATIONS, show_default=False,
    ),
]  # fmt: skip
QualityOption = Annotated[
    bool,
    typer.Option(
        "--quality",
        help="Measure reconstruction, validity, uniqueness, novelty (minutes on a CPU).",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


NA = """Train an autoencoder of neural architectures.

Examples:

- `dagnn train na --model dagnn --preset quick`

- `dagnn train na --model d-vae --preset paper --seed 1 --out runs/na-dvae`
"""

BN = """Train an autoencoder of Bayesian networks.

Examples:

- `dagnn data bn --graphs 20000 --out bn.txt && dagnn train bn --data bn.txt`

- `dagnn train bn --model dagnn --preset paper --pool all`
"""


def _add(task: str, words: str, file: str, how: str) -> None:
    """The command of a task: but for the data, both have the same options."""
    file_option: Any = typer.Option(
        None, "--data", metavar="FILE", show_default=False,
        help=f"By default {file} in $DAGNN_DATA or data/; {how} makes it.",
    )  # fmt: skip

    @train.command(task, help=words)
    def command(
        model: ModelOption = Model.dagnn,
        data: Path | None = file_option,
        preset: PresetOption = Preset.quick,
        out: OutOption = None,
        seed: SeedOption = 0,
        epochs: EpochsOption = None,
        batch_size: BatchOption = None,
        rate: RateOption = None,
        hidden: HiddenOption = None,
        latent: LatentOption = None,
        layers: LayersOption = None,
        aggregator: AggregatorOption = None,
        cell: CellOption = None,
        pool: PoolOption = None,
        bidirectional: BothOption = None,
        as_published: PublishedOption = None,
        quality: QualityOption = False,
        device: DeviceOption = Device.auto,
        devices: Devices = 1,
        num_nodes: NumNodes = 1,
        quiet: QuietOption = False,
        as_json: JsonOption = False,
    ) -> None:
        folder = out or Path("runs") / f"{task}-{model.value}-{seed}"
        check_folder(folder)
        config = _configured(
            task,
            model,
            preset,
            seed,
            epochs=epochs,
            batch_size=batch_size,
            rate=rate,
            hidden_channels=hidden,
            latent_channels=latent,
            options={
                "num_layers": layers,
                "aggregator": aggregator and aggregator.value.replace("-", "_"),
                "cell": cell and cell.value,
                "pool": pool and pool.value,
                "bidirectional": bidirectional,
                "as_published": as_published,
            },
        )
        _train(
            config,
            data,
            folder,
            with_quality=quality,
            as_json=as_json,
            device=device.value,
            devices=devices,
            num_nodes=num_nodes,
            progress=not quiet,
        )


_add("na", NA, "final_structures6.txt", "the first 1,000 rows are burn-in. `dagnn data get na`")
_add("bn", BN, "asia_200k.txt", "`dagnn data bn`")


def _configured(
    task: str, model: Model, preset: Preset, seed: int, *, options: dict[str, Any], **settings: Any
) -> AutoencoderConfig:
    """The preset's run, but for the settings and options that were given: those that are not
    None."""
    from dagnn.autoencoders import fitting
    from dagnn.autoencoders.models import MODELS, model_options

    def given(values: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in values.items() if value is not None}

    chosen = given(options)
    check_options(model.value, chosen, {name: model_options(name) for name in MODELS})
    settings = fitting.preset(preset.value, model.value, task) | given(settings)
    return fitting.AutoencoderConfig(model.value, task, seed=seed, options=chosen, **settings)


def _train(
    config: AutoencoderConfig,
    source: Path | None,
    folder: Path,
    *,
    with_quality: bool,
    as_json: bool,
    device: str,
    devices: int,
    num_nodes: int,
    progress: bool,
) -> None:
    """Train, measure, and print the result.

    Args:
        config: What to do.
        source: The data; by default the task's own.
        folder: Where the run is kept.
        with_quality: Whether to measure the generator.
        as_json: How to print.
        device, devices, num_nodes, progress: See
            :func:`dagnn.autoencoders.fitting.fit_autoencoder`.
    """
    from dataclasses import asdict

    from dagnn.autoencoders.fitting import fit_autoencoder
    from dagnn.autoencoders.quality import measure_quality
    from dagnn.autoencoders.task_data import default_file, load_task
    from dagnn.training import run_record, write_json
    from dagnn.training.fit import accelerator
    from dagnn.training.processes import is_first, join, leave

    path = source or default_file(config.task)
    found = load_task(config.task, path)
    join(accelerator(device), devices=devices, num_nodes=num_nodes)
    if is_first():
        sizes = f"{len(found.train):,} graphs of {path} to train on, {len(found.test):,} to test"
        messages.print(f"{sizes}; {folder}", markup=False, highlight=False)
    data = {"file": Path(path).name, "sha256": found.fingerprint}
    trained, run = fit_autoencoder(
        config,
        found.train,
        folder,
        data=data,
        source=path,
        device=device,
        devices=devices,
        num_nodes=num_nodes,
        progress=progress,
    )
    if not is_first():
        leave()
    last = run.history[-1]
    metrics: dict[str, Any] = {"loss": last["loss"], "epochs": len(run.history)}
    if with_quality:
        where = trained.latent_mean.device
        train_graphs, test_graphs = (split.to(where) for split in (found.train, found.test))
        quality = measure_quality(
            trained.eval(), config.task, train_graphs, test_graphs, seed=config.seed
        )
        metrics.update(quality._asdict())
    record = run_record(
        asdict(config),
        metrics,
        seed=config.seed,
        seconds=run.seconds,
        data=data,
        origins=run.origins,
    )
    record["checkpoint"] = str(run.last_checkpoint)
    write_json(folder / "record.json", record)
    if as_json:
        print_json(record)
    else:
        words = ", ".join(
            f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
            for name, value in metrics.items()
        )
        results.print(f"{run.last_checkpoint}: {words}", markup=False, highlight=False)
    leave()
