"""Structure learning: how often the search in the latent space ends at the optimum.

Suite ``asia``: seeds x pivots (``fixed``: the paper's; ``random``: arbitrary orders; ``mixed``) x
encoders (DAGNN, D-VAE) x variants. As in the paper, an autoencoder is trained once, and the seeds
are those of the search: give runs of ``dagnn train bn`` with ``--autoencoder``, and their file of
graphs with ``--graphs``; otherwise it is trained here, and kept in ``--work``. Variants:

- ``plain``: the paper's: points by a sparse process, the likeliest graph of each, as it is;
- ``several``: the same with eight graphs of each point, repaired;
- ``foreseen``: as many graphs as ``plain``, chosen among decoded ones by an exact process;
- ``improved``: the same with hill climbing from the graphs of a round.

Beside them stands random search, which scores as many graphs drawn like the pivots.

Suite ``networks``: tables sampled from random networks of 8 to 12 variables, one for each seed,
``mixed`` and ``improved``, which are the defaults of ``dagnn bn learn``; beside them hill climbing:
one climb from the empty network, 20 restarts, and as many climbs as the search had in all.

Cells run in ``--jobs`` processes. Every cell goes to the JSON file when it is done, and is not run
again.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import multiprocessing
import sys
import time
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
if __package__ in (None, ""):  # run as a file: the folder above is not on the path
    sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
import torch  # noqa: E402

from benchmarks.random_tables import random_table  # noqa: E402
from benchmarks.report import environment, write_json  # noqa: E402
from dagnn.autoencoders.fitting import load_autoencoder  # noqa: E402
from dagnn.autoencoders.task_data import load_task  # noqa: E402
from dagnn.bayesnet.constraints import Constraints  # noqa: E402
from dagnn.bayesnet.exact import exact_search  # noqa: E402
from dagnn.bayesnet.hill_climbing import hill_climb  # noqa: E402
from dagnn.bayesnet.scores import FamilyScores  # noqa: E402
from dagnn.bayesnet.table import Table, read_table  # noqa: E402
from dagnn.datasets.small_dags import SmallDags  # noqa: E402
from dagnn.search.learn_network import learn_network  # noqa: E402
from dagnn.search.learning_settings import LearningSettings  # noqa: E402
from dagnn.search.pivot_autoencoder import train_on_pivots  # noqa: E402
from dagnn.search.pivots import CLIMBS, draw_pivots  # noqa: E402

SPARSE = {"foresee": False, "process": "sparse", "improve": False}
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {**SPARSE, "decodings": 1, "repair": False},
    "several": {**SPARSE, "decodings": 8, "repair": True},
    "foreseen": {"improve": False},
    "improved": {},
}
SAME = 1e-6
PIVOT_SEED = 0  # of the pivots, and of the autoencoder that all seeds of the search share


class Cell(NamedTuple):
    """One search."""

    pivots: str
    encoder: str
    variant: str
    seed: int

    @property
    def key(self) -> str:
        return "/".join(map(str, self))


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--suite", choices=("asia", "networks"), default="asia")
    add("--data", type=Path, metavar="FILE", help="asia.csv, for the suite asia")
    add("--seeds", type=int, nargs="+", default=list(range(10)))
    add("--pivots", nargs="+", choices=("fixed", "random", "mixed"), default=["fixed", "random"])
    add("--encoders", nargs="+", choices=("dagnn", "d-vae", "random"), metavar="ENCODER",
        default=["dagnn", "d-vae", "random"], help="dagnn, d-vae, random (search)")  # fmt: skip
    add("--variants", nargs="+", choices=tuple(VARIANTS), default=list(VARIANTS))
    add("--autoencoder", type=Path, nargs="+", metavar="RUN", default=[],
        help="trained ones, at most one of each encoder, all on --graphs")  # fmt: skip
    add("--graphs", type=Path, metavar="FILE", help="what they were trained on: the pivots")
    add("--rounds", type=int, default=10)
    add("--batch", type=int, default=50)
    add("--num-pivots", type=int, help="by default as dagnn bn learn")
    add("--epochs", type=int, help="likewise")
    add("--hidden", type=int, help="likewise")
    add("--rows", type=int, default=1000, help="of the tables of the suite networks")
    add("--jobs", type=int, default=1, metavar="N", help="searches at a time")
    add("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    add("--work", type=Path, default=Path("runs/structure_search"), metavar="DIR")
    add("--json", type=Path, required=True, metavar="FILE", help="where results are and go")
    options = parser.parse_args(arguments)
    if options.suite == "asia" and options.data is None:
        parser.error("expected --data FILE, the table asia.csv")
    if bool(options.autoencoder) != bool(options.graphs):
        parser.error("expected --autoencoder and --graphs together")
    if options.graphs and (options.suite != "asia" or len(options.pivots) > 1):
        parser.error("expected the suite asia and one kind of --pivots, that of --graphs")
    return options


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    options = parse(arguments)
    result = _result(options, arguments)
    cells = result["cells"]
    if options.suite == "asia":
        kinds = options.pivots, options.encoders, options.variants
    else:
        kinds = ["mixed"], ["dagnn"], ["improved"]
    wanted = [Cell(*names, seed) for *names, seed in itertools.product(*kinds, options.seeds)]
    todo = [cell for cell in wanted if cell.key not in cells]
    runs = _runs(options, todo)
    context = multiprocessing.get_context("spawn")  # a forked process cannot use CUDA
    with ProcessPoolExecutor(options.jobs, mp_context=context) as pool:
        waiting = {pool.submit(run_cell, options, cell, runs.get(cell[:2])): cell for cell in todo}
        for done in as_completed(waiting):
            key = waiting[done].key
            cells[key] = done.result()
            result["summary"] = summarise(cells)
            write_json(result, options.json)
            print(key, json.dumps(cells[key]), file=sys.stderr, flush=True)
    print(json.dumps(result.get("summary", {}), indent=2))
    return result


def _result(options: argparse.Namespace, arguments: list[str] | None) -> dict[str, Any]:
    """What is in the file, or the head of a new one."""
    names = ("suite", "rounds", "batch", "num_pivots", "epochs", "hidden", "rows", "device")
    sizes = {name: getattr(options, name) for name in names}
    sizes["graphs"] = options.graphs and options.graphs.name
    if options.json.exists():
        result: dict[str, Any] = json.loads(options.json.read_text(encoding="utf-8"))
        if result["sizes"] != sizes:
            raise SystemExit(f"{options.json} has cells of other sizes: {result['sizes']}")
        return result
    given = sys.argv[1:] if arguments is None else arguments
    return {
        "command": ["benchmarks/structure_search.py", *given],
        "environment": environment(torch.device(options.device)),
        "sizes": sizes,
        "cells": {},
    }


def _runs(options: argparse.Namespace, cells: list[Cell]) -> dict[tuple[str, str], Path]:
    """Of all pivots and encoders that cells need in the suite asia, the trained autoencoder."""
    if options.suite == "networks":
        return {}
    needed = {(cell.pivots, cell.encoder) for cell in cells if cell.encoder != "random"}
    if not options.autoencoder:
        return {names: _train(options, *names) for names in sorted(needed)}
    runs = {}
    with open(options.graphs, "rb") as file:
        fingerprint = hashlib.file_digest(file, "sha256").hexdigest()
    for run in options.autoencoder:
        config = load_autoencoder(run)[1]
        if config["data"].get("sha256") != fingerprint:
            raise SystemExit(f"{run} was trained on other graphs than {options.graphs}")
        runs[options.pivots[0], config["autoencoder"]["model"]] = run
    missing = sorted(encoder for pivots, encoder in needed if (pivots, encoder) not in runs)
    if missing:
        raise SystemExit(f"expected --autoencoder to have one of {', '.join(missing)}")
    return runs


def _train(options: argparse.Namespace, pivots: str, encoder: str) -> Path:
    table = read_table(options.data)
    folder: Path = options.work / options.suite / f"{pivots}-{encoder}"
    settings = _settings(options, pivots, encoder).sized(
        table.num_columns, options.device == "cuda"
    )
    graphs = shared_pivots(options.data, None, pivots, settings.num_pivots or 0)
    train_on_pivots(
        graphs, settings, seed=PIVOT_SEED, device=options.device, folder=folder, progress=True
    )
    return folder


def _settings(options: argparse.Namespace, pivots: str, encoder: str) -> LearningSettings:
    return LearningSettings(
        pivots=pivots,  # type: ignore[arg-type]
        model=encoder,
        num_pivots=options.num_pivots,
        epochs=options.epochs,
        hidden_channels=options.hidden,
    )


@cache
def shared_pivots(data: Path, graphs: Path | None, kind: str, count: int) -> SmallDags:
    """The pivots of all seeds, read once in each process."""
    if graphs is not None:
        return load_task("bn", graphs).train
    table = read_table(data)
    constraints = Constraints.over(table.names)
    return draw_pivots(FamilyScores(table), constraints, count, kind=kind, seed=PIVOT_SEED)  # type: ignore[arg-type]


def run_cell(options: argparse.Namespace, cell: Cell, run: Path | None) -> dict[str, Any]:
    torch.set_num_threads(1)  # processes share the cores
    if options.suite == "networks":
        table = random_table(8 + cell.seed % 5, options.rows, cell.seed)
        return {**search_cell(table, options, cell), **climbing_cell(table, options, cell)}
    table = read_table(options.data)
    sized = _settings(options, cell.pivots, cell.encoder).sized(
        table.num_columns, options.device == "cuda"
    )
    pivots = shared_pivots(options.data, options.graphs, cell.pivots, sized.num_pivots or 0)
    if cell.encoder == "random":
        return random_cell(table, options, cell, pivots)
    return search_cell(table, options, cell, run, pivots)


def search_cell(
    table: Table,
    options: argparse.Namespace,
    cell: Cell,
    run: Path | None = None,
    pivots: SmallDags | None = None,
) -> dict[str, Any]:
    began, worked = time.perf_counter(), time.process_time()
    network = learn_network(
        table,
        rounds=options.rounds,
        batch=options.batch,
        seed=cell.seed,
        bootstrap=0,
        settings=replace(_settings(options, cell.pivots, cell.encoder), **VARIANTS[cell.variant]),
        device=options.device,
        autoencoder=run,
        graphs=pivots,
    )
    report = network.report
    assert report is not None
    assert report.found >= report.best_pivot - SAME, "a search keeps the best pivot"
    return {
        "variables": table.num_columns,
        "found": report.found,
        "best_pivot": report.best_pivot,
        "hill_climbing": report.hill_climbing,
        "exact": report.exact,
        "curve": [summary.best for summary in report.rounds],
        "scored": report.scored,
        "climbs": report.climbs,
        "phases": report.seconds,
        "seconds": time.perf_counter() - began,
        "cpu_seconds": time.process_time() - worked,
    }


def climbing_cell(table: Table, options: argparse.Namespace, cell: Cell) -> dict[str, Any]:
    """Hill climbing alone: once from the empty network, and with as many climbs as a search has at
    most, those for its pivots included."""
    scores = FamilyScores(table)
    climbs = CLIMBS + options.rounds * options.batch
    return {
        "single_climb": hill_climb(scores, restarts=0).score,
        "as_many_climbs": hill_climb(scores, restarts=climbs - 1, seed=cell.seed).score,
    }


def random_cell(
    table: Table, options: argparse.Namespace, cell: Cell, pivots: SmallDags
) -> dict[str, Any]:
    """As many graphs as the search decodes at most, drawn like the pivots."""
    scores, constraints = FamilyScores(table), Constraints.over(table.names)
    count = options.rounds * options.batch * VARIANTS[cell.variant].get("decodings", 1)
    more = draw_pivots(scores, constraints, count, kind=cell.pivots, seed=cell.seed + 1_000_003)  # type: ignore[arg-type]
    best_pivot = float(pivots.score.max())
    return {
        "variables": table.num_columns,
        "found": max(best_pivot, float(more.score.max())),
        "best_pivot": best_pivot,
        "exact": exact_search(scores).score,
        "scored": len(more),
        "climbs": 0,
    }


def summarise(cells: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Per configuration: how many seeds ended at the optimum, and mean gaps to it."""
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for key, cell in cells.items():
        groups[key.rpartition("/")[0]].append(cell)
    return {name: _summary(group) for name, group in sorted(groups.items())}


def _summary(group: list[dict[str, Any]]) -> dict[str, Any]:
    summary: dict[str, Any] = {
        "seeds": len(group),
        "mean_scored": float(np.mean([cell["scored"] for cell in group])),
        "never_below_best_pivot": all(cell["found"] >= cell["best_pivot"] - SAME for cell in group),
    }
    for name in ("found", "best_pivot", "hill_climbing", "single_climb", "as_many_climbs"):
        gaps = [cell["exact"] - cell[name] for cell in group if name in cell]
        if gaps:
            summary[name] = {
                "at_optimum": sum(gap < SAME for gap in gaps),
                "mean_gap": max(float(np.mean(gaps)), 0.0),
            }
    return summary


if __name__ == "__main__":
    main()
