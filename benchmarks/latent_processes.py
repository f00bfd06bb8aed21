"""How much of a latent space's score is the Gaussian process's.

The same points are scored by a sparse process that is fitted until it rests (FITC, as in Table 2),
and by one that Adam trains for 100 passes over minibatches of 1,000 points, as in D-VAE's code, at
the learning rates of ``--rates``. D-VAE's is 5e-4: over NA's 17,118 points, that is 1,800 steps, in
which no parameter moves further than 0.9.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
if __package__ in (None, ""):  # run as a file: the folder above is not on the path
    sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

from benchmarks.report import environment, write_json  # noqa: E402
from dagnn.autoencoders.fitting import load_autoencoder  # noqa: E402
from dagnn.autoencoders.score_run import (  # noqa: E402
    distinct_graphs,
    latent_points,
    process_options,
    score_points,
)
from dagnn.autoencoders.task_data import load_task  # noqa: E402
from dagnn.training import find_checkpoint, read_checkpoint, standing  # noqa: E402

PUBLISHED = {"passes": 100, "batch_size": 1000}


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("runs", type=Path, nargs="+", metavar="RUN", help="of dagnn train na|bn, all of one task")
    add("--data", type=Path, required=True, metavar="FILE", help="what they were trained on")
    add("--rates", type=float, nargs="+", default=[5e-4, 5e-3, 5e-2])
    add("--seeds", type=int, default=1)
    add("--preset", choices=("paper", "quick"), default="paper", help="see dagnn score")
    add("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    add("--json", type=Path, metavar="FILE")
    return parser.parse_args(arguments)


def processes(preset: str, task: str, rates: list[float]) -> list[tuple[str, dict[str, Any]]]:
    """Kinds of processes with their options: fitted until it rests, then as published."""
    short = process_options("svgp", preset, task) | PUBLISHED
    return [
        ("fitc", process_options("fitc", preset, task)),
        *(("svgp", {**short, "rate": rate}) for rate in rates),
    ]


def score(run: Path, options: argparse.Namespace) -> dict[str, Any]:
    """One latent space by all processes."""
    checkpoint = find_checkpoint(run, "last.ckpt")
    model, config = load_autoencoder(checkpoint, options.device)
    settings = config["autoencoder"]
    found = load_task(settings["task"], options.data)
    if found.fingerprint != config["data"]["sha256"]:
        sys.exit(f"expected the graphs that {run} was trained on, got others in {options.data}")
    train, test = (graphs.to(options.device) for graphs in (found.train, found.test))
    if settings["task"] == "bn":
        train = train.index_select(distinct_graphs(train))
    train_z, test_z = (latent_points(model, graphs) for graphs in (train, test))
    rows = []
    for kind, chosen in processes(options.preset, settings["task"], options.rates):
        points = (train_z, train.score), (test_z, test.score)
        measures = score_points(*points, {kind: chosen}, options.seeds)[kind]
        rows.append({"process": kind, **measures})
        rate = f" at {chosen['rate']:g}" if "rate" in chosen else ", at rest"
        rmse, pearson = measures["rmse"]["mean"], measures["pearson"]["mean"]
        print(f"{settings['model']:<8} {kind}{rate}: RMSE {rmse:.3f}, r {pearson:.3f}", flush=True)
    epochs = standing(read_checkpoint(checkpoint)).epochs
    return {"autoencoder": settings, "epochs": epochs, "data": config["data"], "scores": rows}


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    options = parse(arguments)
    given = sys.argv[1:] if arguments is None else arguments
    result = {
        "command": shlex.join(["python", "benchmarks/latent_processes.py", *given]),
        **environment(torch.device(options.device)),
        "runs": [score(run, options) for run in options.runs],
    }
    if options.json is not None:
        write_json(result, options.json)
    return result


if __name__ == "__main__":
    main()
