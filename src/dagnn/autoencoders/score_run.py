"""Score the latent space of a trained autoencoder, and keep what predicts scores from it."""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dagnn.autoencoders.fitting import load_autoencoder
from dagnn.autoencoders.latent_plot import check_picture, draw_latent
from dagnn.autoencoders.latent_predictor import LatentPredictor, Prediction
from dagnn.autoencoders.latent_scoring import KINDS, prediction_measures, score_latent
from dagnn.autoencoders.task_data import file_digest, load_task, training_file
from dagnn.autoencoders.vae import DagVAE
from dagnn.datasets.small_dags import SmallDags
from dagnn.training import find_checkpoint, read_checkpoint, run_record, standing, write_json

__all__ = [
    "PRESETS",
    "check_state",
    "distinct_graphs",
    "latent_points",
    "predict_scores",
    "process_options",
    "score_points",
    "score_run",
]

PREDICTOR = "predictor.safetensors"
PREDICTOR_SEEDS = (0, 1, 2)
BN_POINTS = 5000

PRESETS: Mapping[str, Mapping[str, Any]] = {
    "paper": {
        "seeds": 10, "points": None, "fit_points": None, "num_inducing": 500, "steps": 1000,
        "tolerance": 1e-4,
    },
    "quick": {"seeds": 3, "points": 3000, "fit_points": 2000, "num_inducing": 200, "steps": 60},
}  # fmt: skip


def process_options(kind: str, preset: str, task: str) -> dict[str, Any]:
    """Options of a Gaussian process.

    ``"paper"``: all of NA's points, of BN's distinct ones 5,000 at random; 500 inducing points;
    steps until the objective rests, at most 1,000.
    ``"quick"``: seconds a seed on two cores. With fewer points to fit on, length scales of 56
    coordinates begin to follow chance.
    """
    if preset not in PRESETS:
        raise ValueError(f"expected preset {' or '.join(PRESETS)}, got {preset!r}")
    options = {k: v for k, v in PRESETS[preset].items() if k != "seeds"}
    if task == "bn":
        options["points"] = min(options["points"] or BN_POINTS, BN_POINTS)
    if kind == "exact":
        del options["num_inducing"]
        if preset == "quick":
            options["steps"] //= 2
    elif kind == "svgp":
        options = {name: options[name] for name in ("points", "num_inducing")}
    return options


def score_run(
    checkpoint: str | os.PathLike[str],
    data: str | os.PathLike[str] | None = None,
    *,
    kinds: Sequence[str] = ("fitc", "vfe", "exact"),
    preset: str = "paper",
    seeds: int | None = None,
    plot: str | os.PathLike[str] | None = None,
    device: str = "auto",
    force: bool = False,
    tell: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Score a latent space by Gaussian processes, as the paper does.

    Beside the checkpoint, ``score.json`` is written, which is also returned, and
    ``predictor.safetensors``, from which :func:`predict_scores` predicts; how well, on the test
    graphs, stands under ``"predictor"``, and what was scored under ``"checkpoint"``. A run that is
    not finished is scored as it is.

    Args:
        checkpoint: A checkpoint of :func:`dagnn.autoencoders.fitting.fit_autoencoder`, or a run's
            folder, whose ``last.ckpt`` is meant.
        data: The file of graphs; by default that of the run (see :func:`training_file`).
        kinds: See :func:`dagnn.autoencoders.latent_scoring.score_latent`.
        preset: See :func:`process_options`.
        seeds: The number of seeds; by default the preset's.
        plot: Where to draw the latent space.
        device: ``"cpu"``, ``"cuda"``, or ``"auto"`` for CUDA if it is there.
        force: Take :obj:`data` even if the run was trained on other graphs.
        tell: Called with a few words on what is being done.

    Raises:
        ValueError: If :obj:`data` are not the graphs of the training, by their fingerprint.
    """
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown or not kinds:
        raise ValueError(f"expected some of {', '.join(KINDS)}, got {', '.join(unknown) or 'none'}")
    if plot is not None:
        check_picture(plot)
    path = find_checkpoint(checkpoint, "last.ckpt")
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    sha256 = file_digest(path)  # before it is read: a run that goes on meanwhile is another state
    model, config = load_autoencoder(path, device)
    trained = standing(read_checkpoint(path))
    if not trained.finished:
        tell(f"{path} has {trained.epochs} of {trained.of_epochs} epochs; it is scored as it is")
    task = config["autoencoder"]["task"]
    options = {kind: process_options(kind, preset, task) for kind in kinds}
    seeds = seeds or PRESETS[preset]["seeds"]
    file = data or training_file(path.parent, config)
    if data is None:
        tell(f"with the graphs of {file}")
    found = load_task(task, file)
    as_in_training = found.fingerprint == config["data"].get("sha256")
    if not as_in_training and not force and "sha256" in config["data"]:
        raise ValueError(
            f"expected the graphs that {path.parent} was trained on, got others in {file}: some of "
            "its test graphs may have been seen. Leave --data out to have them found, or take "
            "these with --force"
        )
    _check_sizes(found.train, config, file)
    start = time.perf_counter()
    train, test = (graphs.to(device) for graphs in (found.train, found.test))
    if task == "bn":
        train = train.index_select(distinct_graphs(train))
    train_z, test_z = (latent_points(model, graphs) for graphs in (train, test))
    metrics = score_points((train_z, train.score), (test_z, test.score), options, seeds, tell)
    tell("fitting the predictor")
    predictor = _fit_predictor(train_z, train.score, task, preset, sha256)
    predictor.save(path.with_name(PREDICTOR))
    mean, std, *_ = predictor.predict(test_z)
    deviation = train.score.std(correction=0).item()
    record = run_record(
        {"checkpoint": str(path), "preset": preset, "seeds": seeds, **config["autoencoder"]},
        metrics,
        seed=config["autoencoder"]["seed"],
        seconds=time.perf_counter() - start,
        data={
            "file": Path(file).name,
            "sha256": found.fingerprint,
            "as_in_training": as_in_training,
        },
    )
    record["checkpoint"] = {
        "sha256": sha256, "epochs": trained.epochs, "of_epochs": trained.of_epochs
    }  # fmt: skip
    record["predictor"] = prediction_measures(mean, std, test.score, deviation)
    write_json(path.with_name("score.json"), record)
    if plot is not None:
        label = "accuracy" if task == "na" else "score"
        draw_latent(train_z, train.score, plot, label=label)
    return record


def latent_points(model: DagVAE, graphs: SmallDags) -> Tensor:
    """The latent means of graphs, in float64. ``[G, latent_channels]``

    On a GPU they are computed in it, too: what is predicted from them should not depend on how
    torch is set to round the factors of products.
    """
    if graphs.device.type == "cuda":
        model = copy.deepcopy(model).double()
    return model.encode_all(graphs).double()


def score_points(
    train: tuple[Tensor, Tensor],
    test: tuple[Tensor, Tensor],
    options: Mapping[str, Mapping[str, Any]],
    seeds: int,
    tell: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Measures of Gaussian processes, as they stand in a record: of each kind mean and standard
    deviation over the seeds, whether the fits came to rest, what it took, its options and the
    single values.

    Args:
        train: Latent points ``[P, Z]`` and their scores ``[P]``.
        test: The same of the graphs to predict.
        options: Of each kind of process; see :func:`process_options`.
        seeds: Their number.
        tell: Called with a few words before each fit.
    """
    metrics: dict[str, Any] = {}
    for kind, chosen in options.items():
        begin = time.perf_counter()
        score = score_latent(*train, *test, kind=kind, seeds=seeds, tell=tell, **chosen)
        metrics[kind] = {
            **score.summary(),
            "is_flat": score.is_flat,
            "seconds": round(time.perf_counter() - begin, 3),
            "options": dict(chosen),
            "seeds": {name: values for name, values in asdict(score).items() if name != "kind"},
        }
    return metrics


def predict_scores(checkpoint: str | os.PathLike[str], graphs: SmallDags, task: str) -> Prediction:
    """Scores of graphs, with uncertainty, from a latent space that :func:`score_run` scored.

    Args:
        checkpoint: A checkpoint, or a run's folder.
        graphs: The graphs; their own scores do not matter.
        task: ``"na"`` or ``"bn"``, which the run must be of.
    """
    path = find_checkpoint(checkpoint, "last.ckpt")
    model, config = load_autoencoder(path)
    if config["autoencoder"]["task"] != task:
        raise ValueError(
            f"expected a run of task {task!r}, got {config['autoencoder']['task']!r} in {path}"
        )
    predictor_path = path.with_name(PREDICTOR)
    if not predictor_path.exists():
        raise ValueError(f"expected {predictor_path}; make it with: dagnn score {path}")
    predictor = LatentPredictor.load(predictor_path)
    check_state(predictor_path, predictor.metadata.get("checkpoint_sha256"), path)
    _check_sizes(graphs, config, "the graphs")
    return predictor.predict(model.encode_all(graphs).double())


def check_state(made: Path, sha256: str | None, checkpoint: Path) -> None:
    """See that what :func:`score_run` made is of a checkpoint as it is now.

    Args:
        made: The file that was made.
        sha256: The digest of the checkpoint then.
        checkpoint: The checkpoint.

    Raises:
        ValueError: If the checkpoint has changed, as by more training.
    """
    if sha256 != file_digest(checkpoint):
        raise ValueError(
            f"{made} was made from another state of {checkpoint.name}; make it anew with: "
            f"dagnn score {checkpoint}"
        )


def distinct_graphs(graphs: SmallDags) -> Tensor:
    """The places of the first of each set of equal graphs, ascending: one for each latent point.

    Points themselves cannot be compared: where a graph stands in a batch changes its last bits.
    """
    rows = torch.cat([graphs.types, graphs.adjacency.flatten(1)], dim=1).to(torch.uint8)
    _, group = torch.unique(rows, dim=0, return_inverse=True)
    first = group.new_full((int(group.max()) + 1,), len(rows))
    place = torch.arange(len(rows), device=rows.device)
    return first.scatter_reduce(0, group, place, "amin").sort().values


def _fit_predictor(z: Tensor, y: Tensor, task: str, preset: str, sha256: str) -> LatentPredictor:
    metadata = {"task": task, "checkpoint_sha256": sha256}
    options = process_options("vfe", preset, task)
    return LatentPredictor.fit(z, y, seeds=PREDICTOR_SEEDS, metadata=metadata, **options)


def _check_sizes(graphs: SmallDags, config: Mapping[str, Any], what: object) -> None:
    """An encoder has a fixed number of types and positions."""
    found = {"num_types": graphs.num_types, "max_nodes": graphs.max_nodes}
    expected = {name: config["sizes"][name] for name in found}
    if found != expected:
        raise ValueError(f"expected graphs with {expected}, as in training, got {found} in {what}")
