"""Structure learning: how often the search in the latent space ends at the optimum.

Suite ``asia``: seeds x pivots (``fixed``: the paper's; ``random``: arbitrary orders; ``mixed``) x
encoders (DAGNN, D-VAE) x variants: ``plain`` (the likeliest graph of each point, as it is),
``several`` (eight graphs of each point, repaired), ``improved`` (the same with hill climbing from
the best of a round); and beside them random search, which scores as many graphs drawn like the
pivots. Suite ``networks``: tables sampled from random networks of 8 to 12 variables, ``mixed`` and
``improved``, which are the defaults of ``dagnn bn learn``.

Every cell goes to the JSON file when it is done, and is not run again. Autoencoders are kept in
``--work``, and shared by the variants.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
if __package__ in (None, ""):  # run as a file: the folder above is not on the path
    sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402
import torch  # noqa: E402

from benchmarks.report import environment, write_json  # noqa: E402
from dagnn.bayesnet.constraints import Constraints  # noqa: E402
from dagnn.bayesnet.dags import node_levels  # noqa: E402
from dagnn.bayesnet.exact import exact_search  # noqa: E402
from dagnn.bayesnet.scores import FamilyScores  # noqa: E402
from dagnn.bayesnet.table import Table, read_table  # noqa: E402
from dagnn.datasets.random_dags import random_dags  # noqa: E402
from dagnn.search.learn_network import learn_network  # noqa: E402
from dagnn.search.learning_settings import LearningSettings  # noqa: E402
from dagnn.search.pivots import draw_pivots  # noqa: E402

VARIANTS = {
    "plain": {"decodings": 1, "repair": False, "improve": False},
    "several": {"decodings": 8, "repair": True, "improve": False},
    "improved": {"decodings": 8, "repair": True, "improve": True},
}
SAME = 1e-6


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
    add("--rounds", type=int, default=10)
    add("--batch", type=int, default=50)
    add("--num-pivots", type=int, help="by default as dagnn bn learn")
    add("--epochs", type=int, help="likewise")
    add("--hidden", type=int, help="likewise")
    add("--rows", type=int, default=1000, help="of the tables of the suite networks")
    add("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    add("--work", type=Path, default=Path("runs/structure_search"), metavar="DIR")
    add("--json", type=Path, required=True, metavar="FILE", help="where results are and go")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    options = parse(arguments)
    result = _result(options, arguments)
    cells = result["cells"]
    if options.suite == "asia":
        if options.data is None:
            raise SystemExit("expected --data FILE, the table asia.csv")
        table = read_table(options.data)
        names = itertools.product(options.seeds, options.pivots, options.encoders, options.variants)
    else:
        names = itertools.product(options.seeds, ["mixed"], ["dagnn"], ["improved"])
    for seed, pivots, encoder, variant in names:
        key = f"{pivots}/{encoder}/{variant}/{seed}"
        if key in cells:
            continue
        if options.suite == "networks":
            table = random_table(8 + seed % 5, options.rows, seed)
        cell = random_cell if encoder == "random" else search_cell
        cells[key] = cell(table, options, seed, pivots, encoder, variant)
        result["summary"] = summarise(cells)
        write_json(result, options.json)
        print(key, json.dumps(cells[key]), file=sys.stderr, flush=True)
    print(json.dumps(result.get("summary", {}), indent=2))
    return result


def _result(options: argparse.Namespace, arguments: list[str] | None) -> dict[str, Any]:
    """What is in the file, or the head of a new one."""
    sizes = {
        name: getattr(options, name)
        for name in ("suite", "rounds", "batch", "num_pivots", "epochs", "hidden", "rows", "device")
    }
    if options.json.exists():
        result: dict[str, Any] = json.loads(options.json.read_text(encoding="utf-8"))
        if result["sizes"] != sizes:
            raise SystemExit(f"{options.json} has cells of other sizes: {result['sizes']}")
        return result
    command = [
        "benchmarks/structure_search.py",
        *(sys.argv[1:] if arguments is None else arguments),
    ]
    return {
        "command": command,
        "environment": environment(torch.device(options.device)),
        "sizes": sizes,
        "cells": {},
    }


def search_cell(
    table: Table, options: argparse.Namespace, seed: int, pivots: str, encoder: str, variant: str
) -> dict[str, Any]:
    settings = replace(
        LearningSettings(
            pivots=pivots,  # type: ignore[arg-type]
            model=encoder,
            num_pivots=options.num_pivots,
            epochs=options.epochs,
            hidden_channels=options.hidden,
        ),
        **VARIANTS[variant],  # type: ignore[arg-type]
    )
    began, worked = time.perf_counter(), time.process_time()
    network = learn_network(
        table,
        rounds=options.rounds,
        batch=options.batch,
        seed=seed,
        bootstrap=0,
        settings=settings,
        device=options.device,
        folder=options.work / options.suite / f"{pivots}-{encoder}-{seed}",
    )
    report = network.report
    assert report is not None
    return {
        "variables": table.num_columns,
        "found": report.found,
        "best_pivot": report.best_pivot,
        "hill_climbing": report.hill_climbing,
        "exact": report.exact,
        "curve": [summary.best for summary in report.rounds],
        "scored": report.scored,
        "climbs": report.climbs,
        "seconds": time.perf_counter() - began,
        "cpu_seconds": time.process_time() - worked,
    }


def random_cell(
    table: Table, options: argparse.Namespace, seed: int, pivots: str, encoder: str, variant: str
) -> dict[str, Any]:
    """As many graphs as the search would decode, drawn like the pivots."""
    scores = FamilyScores(table)
    constraints = Constraints.over(table.names)
    sized = LearningSettings(num_pivots=options.num_pivots).sized(
        table.num_columns, options.device == "cuda"
    )
    assert sized.num_pivots is not None
    count = options.rounds * options.batch * int(VARIANTS[variant]["decodings"])
    first = draw_pivots(scores, constraints, sized.num_pivots, kind=pivots, seed=seed)  # type: ignore[arg-type]
    more = draw_pivots(scores, constraints, count, kind=pivots, seed=seed + 1_000_003)  # type: ignore[arg-type]
    best_pivot, drawn = float(first.score.max()), float(more.score.max())
    return {
        "variables": table.num_columns,
        "found": max(best_pivot, drawn),
        "best_pivot": best_pivot,
        "exact": exact_search(scores).score,
        "scored": len(more),
        "climbs": 0,
    }


def random_table(num_variables: int, rows: int, seed: int) -> Table:
    """Rows of a random network: two or three levels a variable, probabilities from a Dirichlet
    distribution, about two parents."""
    generator = np.random.default_rng(seed)
    adjacency = random_dags(num_variables, 1, order="random", seed=seed)[0]
    levels = generator.integers(2, 4, size=num_variables)
    codes = np.zeros((rows, num_variables), dtype=np.int64)
    for v in np.argsort(node_levels(adjacency), kind="stable"):
        parents = np.flatnonzero(adjacency[v])
        place = np.zeros(rows, dtype=np.int64)
        for u in parents:
            place = place * levels[u] + codes[:, u]
        chances = generator.dirichlet([0.7] * levels[v], size=int(np.prod(levels[parents])))
        below = chances.cumsum(axis=1)[place]  # [rows, levels]
        codes[:, v] = (generator.random((rows, 1)) > below[:, :-1]).sum(axis=1)
    names = [f"v{i}" for i in range(num_variables)]
    return Table.from_frame(pd.DataFrame(codes, columns=names).astype(str))


def summarise(cells: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Per configuration: how many seeds ended at the optimum, and mean gaps to it."""
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for key, cell in cells.items():
        groups[key.rpartition("/")[0]].append(cell)
    return {
        name: {
            "seeds": len(group),
            "at_optimum": sum(cell["exact"] - cell["found"] < SAME for cell in group),
            "mean_gap": float(np.mean([cell["exact"] - cell["found"] for cell in group])),
            "mean_gap_of_best_pivot": float(
                np.mean([cell["exact"] - cell["best_pivot"] for cell in group])
            ),
            "never_below_best_pivot": all(
                cell["found"] >= cell["best_pivot"] - SAME for cell in group
            ),
            **_hill_climbing_gap(group),
        }
        for name, group in sorted(groups.items())
    }


def _hill_climbing_gap(group: list[dict[str, Any]]) -> dict[str, float]:
    gaps = [cell["exact"] - cell["hill_climbing"] for cell in group if "hill_climbing" in cell]
    return {"mean_gap_of_hill_climbing": float(np.mean(gaps))} if gaps else {}


if __name__ == "__main__":
    main()
