"""``dagnn train na`` and ``dagnn train bn``: autoencoders of DAGs."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated, Any

import typer

from dagnn.cli.app import train
from dagnn.cli.choices import Device, Devices, NumNodes, Preset
from dagnn.cli.console import messages, print_json, results

__all__ = ["bn", "na"]


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


SETTINGS, ABLATIONS = "Settings (by default the preset's)", "DAGNN's ablations"
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
EpochsOption = Annotated[int | None, typer.Option(min=1, rich_help_panel=SETTINGS)]
BatchOption = Annotated[int | None, typer.Option("--batch-size", min=1, rich_help_panel=SETTINGS)]
RateOption = Annotated[
    float | None, typer.Option(min=0, help="Adam's at the start.", rich_help_panel=SETTINGS)
]
HiddenOption = Annotated[
    int | None, typer.Option(min=1, help="Width of the states.", rich_help_panel=SETTINGS)
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
DeviceOption = Annotated[Device, typer.Option(help="auto: a GPU if there is one.")]
QualityOption = Annotated[
    bool,
    typer.Option(
        "--quality",
        help="Measure reconstruction, validity, uniqueness, novelty (minutes on a CPU).",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]


def _data(name: str, how: str) -> Any:
    return typer.Option(
        "--data", metavar="FILE", show_default=False,
        help=f"By default {name} in $DAGNN_DATA or data/; {how} makes it.",
    )  # fmt: skip


@train.command()
def na(
    model: ModelOption = Model.dagnn,
    data: Annotated[Path | None, _data("final_structures6.txt", "`dagnn data get na`")] = None,
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
    quality: QualityOption = False,
    device: DeviceOption = Device.auto,
    devices: Devices = 1,
    num_nodes: NumNodes = 1,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Train an autoencoder of neural architectures.

    Examples:

    - `dagnn train na --model dagnn --preset quick`

    - `dagnn train na --model d-vae --preset paper --seed 1 --out runs/na-dvae`
    """
    _train("na", **locals())


@train.command()
def bn(
    model: ModelOption = Model.dagnn,
    data: Annotated[Path | None, _data("asia_200k.txt", "`dagnn data bn`")] = None,
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
    quality: QualityOption = False,
    device: DeviceOption = Device.auto,
    devices: Devices = 1,
    num_nodes: NumNodes = 1,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Train an autoencoder of Bayesian networks.

    Examples:

    - `dagnn data bn --graphs 20000 --out bn.txt && dagnn train bn --data bn.txt`

    - `dagnn train bn --model dagnn --preset paper --pool all`
    """
    _train("bn", **locals())


def _train(task: str, **given: Any) -> None:
    from dataclasses import asdict

    from dagnn.autoencoders.fitting import AutoencoderConfig, fit_autoencoder, preset
    from dagnn.autoencoders.quality import measure_quality
    from dagnn.autoencoders.task_data import default_file, load_task
    from dagnn.training import run_record, write_json
    from dagnn.training.fit import accelerator
    from dagnn.training.processes import is_first, join, leave

    model, seed = given["model"].value, given["seed"]
    settings = preset(given["preset"].value, model, task)
    named = {
        "epochs": given["epochs"],
        "batch_size": given["batch_size"],
        "rate": given["rate"],
        "hidden_channels": given["hidden"],
        "latent_channels": given["latent"],
    }
    settings.update({name: value for name, value in named.items() if value is not None})
    config = AutoencoderConfig(model, task, seed=seed, options=_options(given), **settings)
    path = given["data"] or default_file(task)
    found = load_task(task, path)
    folder = given["out"] or Path("runs") / f"{task}-{model}-{seed}"
    processes = {"devices": given["devices"], "num_nodes": given["num_nodes"]}
    join(accelerator(given["device"].value), **processes)
    if is_first():
        sizes = f"{len(found.train):,} graphs of {path} to train on, {len(found.test):,} to test"
        messages.print(f"{sizes}; {folder}", markup=False, highlight=False)
    data = {"file": Path(path).name, "sha256": found.fingerprint}
    trained, run = fit_autoencoder(
        config,
        found.train,
        folder,
        data=data,
        device=given["device"].value,
        **processes,
        progress=not given["quiet"],
    )
    if not is_first():
        leave()
    last = run.history[-1]
    metrics: dict[str, Any] = {"loss": last["loss"], "epochs": len(run.history)}
    if given["quality"]:
        where = trained.latent_mean.device
        quality = measure_quality(
            trained.eval(), task, found.train.to(where), found.test.to(where), seed=seed
        )
        metrics.update(quality._asdict())
    record = run_record(asdict(config), metrics, seed=seed, seconds=run.seconds, data=data)
    record["checkpoint"] = str(run.last_checkpoint)
    write_json(folder / "record.json", record)
    if given["as_json"]:
        print_json(record)
    else:
        words = ", ".join(
            f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
            for name, value in metrics.items()
        )
        results.print(f"{run.last_checkpoint}: {words}", markup=False, highlight=False)
    leave()


def _options(given: dict[str, Any]) -> dict[str, Any]:
    """The options of the model that were given, under the library's names."""
    options = {
        "num_layers": given["layers"],
        "aggregator": given["aggregator"] and given["aggregator"].value.replace("-", "_"),
        "cell": given["cell"] and given["cell"].value,
        "pool": given["pool"] and given["pool"].value,
        "bidirectional": given["bidirectional"],
    }
    return {name: value for name, value in options.items() if value is not None}
