"""How much of a latent space's score is the Gaussian process's.

The same latent spaces are scored as in our Table 2, by a FITC process of 500 inducing points that
is fitted to all points at once, in up to 1,000 steps; and as in D-VAE's code, from which the
paper's numbers are (see ``published_process.py``).
"""

from __future__ import annotations

import argparse
import shlex
import statistics
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
if __package__ in (None, ""):  # run as a file: the folder above is not on the path
    sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

from benchmarks.published_process import PublishedProcess  # noqa: E402
from benchmarks.report import environment, write_json  # noqa: E402
from dagnn.autoencoders.fitting import load_autoencoder  # noqa: E402
from dagnn.autoencoders.latent_scoring import prediction_measures  # noqa: E402
from dagnn.autoencoders.score_run import (  # noqa: E402
    distinct_graphs,
    latent_points,
    process_options,
    score_points,
)
from dagnn.autoencoders.task_data import load_task  # noqa: E402
from dagnn.datasets.small_dags import SmallDags  # noqa: E402
from dagnn.training import find_checkpoint, read_checkpoint, standing  # noqa: E402

PUBLISHED = {"passes": 100, "batch_size": 1000, "rate": 5e-4}


class Run(NamedTuple):
    """A trained autoencoder, and the graphs of its task."""

    checkpoint: Path
    settings: dict[str, Any]
    data: dict[str, Any]
    train: SmallDags
    test: SmallDags


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("runs", type=Path, nargs="+", metavar="RUN", help="of dagnn train na|bn, all on --data")
    add("--data", type=Path, required=True, metavar="FILE", help="what they were trained on")
    add("--seeds", type=int, default=1)
    add("--preset", choices=("paper", "quick"), default="paper", help="see dagnn score")
    add("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    add("--json", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    if options.seeds < 1:
        parser.error(f"expected at least one seed, got {options.seeds}")
    return options


def open_run(folder: Path, file: Path) -> Run:
    try:
        checkpoint = find_checkpoint(folder, "last.ckpt")
        config = load_autoencoder(checkpoint)[1]
        found = load_task(config["autoencoder"]["task"], file)
    except (OSError, ValueError) as error:
        sys.exit(str(error))
    if found.fingerprint != config["data"].get("sha256"):
        sys.exit(f"expected the graphs that {folder} was trained on, got others in {file}")
    return Run(checkpoint, config["autoencoder"], config["data"], found.train, found.test)


def score(run: Run, options: argparse.Namespace) -> dict[str, Any]:
    """One latent space by both processes."""
    model, _ = load_autoencoder(run.checkpoint, options.device)
    task, train = run.settings["task"], run.train
    if task == "bn":
        train = train.index_select(distinct_graphs(train))
    graphs = train.to(options.device), run.test.to(options.device)
    points = [(latent_points(model, of), of.score.double()) for of in graphs]
    fitc = process_options("fitc", options.preset, task)
    scores = score_points(points[0], points[1], {"fitc": fitc}, options.seeds)
    chosen = {"points": fitc["points"], "num_inducing": fitc["num_inducing"], **PUBLISHED}
    scores["published"] = score_as_published(points[0], points[1], options.seeds, **chosen)
    for name, measures in scores.items():
        rmse, r = measures["rmse"]["mean"], measures["pearson"]["mean"]
        print(f"{run.settings['model']:<8} {name:<9} RMSE {rmse:.3f}, r {r:.3f}", flush=True)
    epochs = standing(read_checkpoint(run.checkpoint)).epochs
    return {"autoencoder": run.settings, "epochs": epochs, "data": run.data, "scores": scores}


def score_as_published(
    train: tuple[torch.Tensor, torch.Tensor],
    test: tuple[torch.Tensor, torch.Tensor],
    seeds: int,
    *,
    points: int | None,
    **options: Any,
) -> dict[str, Any]:
    """Measures of :class:`PublishedProcess`, as :func:`score_points` gives them of others."""
    (z, y), (test_z, test_y) = train, test
    start = time.perf_counter()
    rows = []
    for seed in range(seeds):
        drawn = torch.randperm(len(z), generator=torch.Generator().manual_seed(seed))[:points]
        own_z, own_y = z[drawn.to(z.device)], y[drawn.to(z.device)]
        mean, deviation = own_y.mean(), own_y.std(correction=0)
        process = PublishedProcess.fit(own_z, (own_y - mean) / deviation, seed=seed, **options)
        value, variance = process.predict(test_z)
        spread = variance.sqrt() * deviation
        rows.append(prediction_measures(value * deviation + mean, spread, test_y, deviation.item()))
    values = {name: [row[name] for row in rows] for name in rows[0]}
    return {
        **{
            name: {"mean": statistics.fmean(of), "std": statistics.pstdev(of)}
            for name, of in values.items()
        },
        "seconds": round(time.perf_counter() - start, 3),
        "options": {"points": points, **options},
        "seeds": values,
    }


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    options = parse(arguments)
    given = sys.argv[1:] if arguments is None else arguments
    runs = [open_run(folder, options.data) for folder in options.runs]
    result = {
        "command": shlex.join(["python", "benchmarks/latent_processes.py", *given]),
        **environment(torch.device(options.device)),
        "runs": [],
    }
    for run in runs:
        result["runs"].append(score(run, options))
        if options.json is not None:  # also of those before, should the next be interrupted
            write_json(result, options.json)
    return result


if __name__ == "__main__":
    main()
