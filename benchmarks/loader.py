"""What batches cost: time per batch beside PyG's loader, and levels per epoch.

    python benchmarks/loader.py --corpus github_functions.parquet --json results/loader_cpu.json
    python benchmarks/loader.py --device cuda --json results/loader_cuda.json

Graphs are code DAGs (AST and next-token edges): of a corpus in the schema of
``github_functions.parquet`` (its training split; needs pyarrow), or without one the functions of
the standard library. All ways of loading take turns, batch by batch, so that what else the machine
does disturbs them alike; medians are reported. Batches of both loaders are compared first.
"""

from __future__ import annotations

import argparse
import itertools
import os
import platform
import shlex
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

if __package__ in (None, ""):  # run as a file: the folder above is not on the path
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import nn
from torch_geometric.data import Batch
from torch_geometric.loader import DataLoader

from benchmarks.code_graphs import standard_library_graphs
from benchmarks.report import environment, write_json
from dagnn import (
    DAGNN,
    DepthBucketSampler,
    FlatGraphs,
    FlatLoader,
    GraphBatchSampler,
    LevelSchedule,
)

BATCH_SIZE = 80
IN_MEMORY = 4000  # graphs that PyG's loader holds as a list of Data
NUM_TYPES, HIDDEN, HEADS, CLASSES = 256, 300, 5, 5002


def corpus_graphs(path: Path, next_token: bool) -> FlatGraphs:
    """The training functions of a corpus, straight from its columns to flat tensors."""
    import pyarrow.compute
    import pyarrow.parquet

    pointers, types, edges, edge_types, edge_counts = [np.zeros(1, np.int64)], [], [], [], []
    file = pyarrow.parquet.ParquetFile(path)
    wanted = ["split", "node_type", "parent_offset", "attribute"]
    for table in file.iter_batches(20_000, columns=wanted):
        table = table.filter(pyarrow.compute.equal(table["split"], "train"))
        if len(table) == 0:
            continue
        starts = np.asarray(table["parent_offset"].offsets)
        starts = starts - starts[0]
        graph = np.repeat(np.arange(len(starts) - 1), np.diff(starts))  # [N]
        node = np.arange(len(graph)) - starts[graph]  # counted from zero in each graph
        offset = np.asarray(table["parent_offset"].flatten()).astype(np.int64)
        child = np.flatnonzero(offset > 0)
        token = np.flatnonzero(~np.asarray(table["attribute"].flatten().is_null()))
        token = np.stack([token[:-1], token[1:]])[:, graph[token[1:]] == graph[token[:-1]]]
        token = token if next_token else token[:, :0]
        ends = np.concatenate([np.stack([child - offset[child], child]), token], axis=1)
        kind = np.repeat([0, 1], [len(child), token.shape[1]])
        order = np.argsort(graph[ends[0]], kind="stable")  # graph by graph
        edges.append(node[ends[:, order]].astype(np.int32))
        edge_types.append(kind[order])
        edge_counts.append(np.bincount(graph[ends[0]], minlength=len(table)))
        types.append(np.asarray(table["node_type"].flatten()).astype(np.int64))
        pointers.append(pointers[-1][-1] + starts[1:])
    edge_ptr = np.concatenate([[0], np.cumsum(np.concatenate(edge_counts))])
    return FlatGraphs(
        torch.from_numpy(np.concatenate(pointers)),
        torch.from_numpy(edge_ptr),
        torch.from_numpy(np.concatenate(edges, axis=1)),
        node={"x": torch.from_numpy(np.concatenate(types))},
        edge={"edge_type": torch.from_numpy(np.concatenate(edge_types))},
    )


def levels_per_epoch(depths: np.ndarray, epochs: int = 3) -> dict[str, Any]:
    """Levels of all batches of an epoch: those of its deepest graph, in each batch."""

    def total(sampler: GraphBatchSampler) -> float:
        runs = [sum(int(depths[batch].max()) for batch in sampler) for _ in range(epochs)]
        return statistics.mean(runs)

    at_random = total(GraphBatchSampler(len(depths), BATCH_SIZE))
    pools = {
        pool: total(DepthBucketSampler(depths, BATCH_SIZE, pool=pool))
        for pool in (5, 10, 20, 50, 200, 1000, len(depths))
    }
    return {
        "graphs": len(depths),
        "mean_depth": float(depths.mean()),
        "deepest": int(depths.max()),
        "random": at_random,
        "levels_of_a_random_batch": at_random / len(GraphBatchSampler(len(depths), BATCH_SIZE)),
        "bucketed_by_pool": pools,
        "ratio_by_pool": {pool: at_random / levels for pool, levels in pools.items()},
        "default_pool": DepthBucketSampler(depths, BATCH_SIZE).pool,
    }


class TokenModel(nn.Module):
    """DAGNN as it predicts tokens: embedded node types in, five classifiers out."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(NUM_TYPES, HIDDEN)
        self.encoder = DAGNN(HIDDEN, HIDDEN, 2, HIDDEN, bidirectional=True, edge_types=2)
        self.heads = nn.Linear(HIDDEN, HEADS * CLASSES)

    def forward(self, batch: Batch) -> torch.Tensor:
        vectors = self.encoder(
            self.embed(batch.x),
            edge_type=batch.edge_type,
            batch=batch.batch,
            schedule=batch.schedule,
            batch_size=batch.num_graphs,
        )
        scores = self.heads(vectors).view(-1, CLASSES)
        return nn.functional.cross_entropy(scores, scores.new_zeros(len(scores), dtype=torch.long))


def forever(loader: Any) -> Iterator[Batch]:
    while True:
        yield from loader


def ways_to_load(flat: FlatGraphs, device: torch.device) -> dict[str, Callable[[], Batch]]:
    """Each call gives the next batch, on the device."""
    few = flat.select(range(min(IN_MEMORY, len(flat))))
    graphs = list(few)  # type: ignore[call-overload]
    resident = flat.to(device)

    def from_pyg(schedule: bool) -> Callable[[], Batch]:
        batches = forever(DataLoader(graphs, BATCH_SIZE, shuffle=True))

        def load() -> Batch:
            batch = next(batches).to(device)
            if schedule:
                batch.schedule = LevelSchedule.from_data(batch)
            return batch

        return load

    def from_flat(source: FlatGraphs, schedule: bool) -> Callable[[], Batch]:
        loader = FlatLoader(
            source, BATCH_SIZE, shuffle=True, device=device, schedule=schedule, prefetch=0
        )
        return forever(loader).__next__

    ways = {
        "PyG DataLoader": from_pyg(schedule=False),
        "PyG DataLoader, LevelSchedule.from_data": from_pyg(schedule=True),
        "FlatLoader without schedule": from_flat(flat, schedule=False),
        "FlatLoader with schedule": from_flat(flat, schedule=True),
    }
    if device.type != "cpu":
        ways["FlatLoader with schedule, attributes on the device"] = from_flat(resident, True)
    return ways


def check(flat: FlatGraphs) -> None:
    """The batches that are timed are the same."""
    indices = list(range(0, len(flat), max(1, len(flat) // BATCH_SIZE)))[:BATCH_SIZE]
    batch = flat.batch(indices, schedule=True)
    expected = Batch.from_data_list([flat[i] for i in indices])
    for key in expected.keys():  # noqa: SIM118 - a Batch is not a dict
        same = batch[key] == expected[key]
        assert same if isinstance(same, bool) else bool(same.all()), key
    schedule = LevelSchedule.from_data(expected)
    for name in LevelSchedule.__dataclass_fields__:
        assert getattr(batch.schedule, name).equal(getattr(schedule, name)), name


def time_batches(
    flat: FlatGraphs, device: torch.device, repeats: int
) -> tuple[dict[str, dict[str, float]], dict[str, float]]:
    """Milliseconds until the call returns (host) and until the batch is there (total)."""
    wait = torch.cuda.synchronize if device.type == "cuda" else (lambda: None)
    ways = ways_to_load(flat, device)
    host: dict[str, list[float]] = {name: [] for name in ways}
    total: dict[str, list[float]] = {name: [] for name in ways}
    sizes = []
    for repeat, (name, load) in itertools.product(range(-3, repeats), ways.items()):
        wait()
        start = time.perf_counter()
        batch = load()
        returned = time.perf_counter()
        wait()
        if repeat >= 0:
            host[name].append(1e3 * (returned - start))
            total[name].append(1e3 * (time.perf_counter() - start))
            sizes.append((batch.num_nodes, batch.num_edges))
    nodes, edges = (statistics.mean(size) for size in zip(*sizes, strict=True))
    times = {
        name: {"host_ms": statistics.median(host[name]), "total_ms": statistics.median(total[name])}
        for name in ways
    }
    return times, {"mean_nodes": nodes, "mean_edges": edges}


def time_training(flat: FlatGraphs, device: torch.device, steps: int) -> dict[str, float]:
    """Milliseconds of a training step on a batch that is there, and with the loader in the loop."""
    wait = torch.cuda.synchronize if device.type == "cuda" else (lambda: None)
    model = TokenModel().to(device)
    optimizer = torch.optim.Adam(model.parameters())
    source = flat.to(device)
    order = list(GraphBatchSampler(len(flat), BATCH_SIZE, drop_last=True))[: steps + 2]

    def step(batch: Batch) -> None:
        optimizer.zero_grad()
        model(batch).backward()
        optimizer.step()

    ready = [source.batch(graphs, schedule=True) for graphs in order]
    for batch in ready[:2]:
        step(batch)
    alone, loaded = [], []
    with_loader = iter(FlatLoader(source, batch_sampler=order))
    for batch in itertools.islice(with_loader, 2):
        step(batch)
    # On the GPU, the host may run ahead: whole stretches are timed, in turns.
    stretch = 1 if device.type == "cpu" else 10
    for first in range(2, len(order) - stretch + 1, stretch):
        for times, batches in (
            (alone, iter(ready[first : first + stretch])),
            (loaded, itertools.islice(with_loader, stretch)),
        ):
            wait()
            start = time.perf_counter()
            for batch in batches:
                step(batch)
            wait()
            times.append(1e3 * (time.perf_counter() - start) / stretch)
    return {"step_ms": statistics.median(alone), "step_with_loader_ms": statistics.median(loaded)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpus", type=Path, help="a Parquet file of functions")
    parser.add_argument("--device", default="cpu", help="where batches are needed")
    parser.add_argument("--repeats", type=int, default=100, help="batches of each loader")
    parser.add_argument("--steps", type=int, default=7, help="training steps; 0 for none")
    parser.add_argument("--threads", type=int, default=0, help="of torch; 0 for its own choice")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    options = parser.parse_args()
    device = torch.device(options.device)

    if options.threads:
        torch.set_num_threads(options.threads)

    def graphs(next_token: bool) -> FlatGraphs:
        if options.corpus is not None:
            return corpus_graphs(options.corpus, next_token)
        return FlatGraphs.from_data_list(standard_library_graphs(IN_MEMORY, 0, next_token))

    source = f"functions of the standard library of Python {platform.python_version()}"
    if options.corpus is not None:
        source = f"training functions of {options.corpus.name}"
    ast_depths = graphs(next_token=False).depths.numpy()
    start = time.perf_counter()
    flat = graphs(next_token=True)
    built = time.perf_counter() - start
    check(flat)
    levels = {
        "AST and next-token edges": levels_per_epoch(flat.depths.numpy()),
        "AST edges alone": levels_per_epoch(ast_depths),
    }
    times, sizes = time_batches(flat, device, options.repeats)
    report: dict[str, Any] = {
        "command": shlex.join(["python", "benchmarks/loader.py", *sys.argv[1:]]),
        "environment": environment(device),
        "load_average": os.getloadavg()[0],
        "graphs": source,
        "data_set": {
            "num_graphs": len(flat),
            "num_nodes": flat.num_nodes,
            "num_edges": flat.num_edges,
            "seconds_to_read_and_build": built,
        },
        "batch": {"graphs": BATCH_SIZE, **sizes},
        "milliseconds_per_batch": times,
        "levels_per_epoch": levels,
    }
    if options.steps:
        report["training"] = time_training(flat, device, options.steps)
        ours = list(times.values())[-1]["total_ms"]
        report["training"]["batch_share_of_step"] = ours / report["training"]["step_ms"]
    show(report)
    if options.json:
        write_json(report, options.json)


def show(report: dict[str, Any]) -> None:
    console = Console()
    batch = report["batch"]
    table = Table(
        title=f"A batch of {batch['graphs']} code graphs ({batch['mean_nodes']:.0f} nodes, "
        f"{batch['mean_edges']:.0f} edges on average)"
    )
    table.add_column("loader")
    for column in ("host, ms", "total, ms", "× ours"):
        table.add_column(column, justify="right")
    ours = list(report["milliseconds_per_batch"].values())[-1]["total_ms"]
    for name, row in report["milliseconds_per_batch"].items():
        ratio = row["total_ms"] / ours
        table.add_row(name, f"{row['host_ms']:.2f}", f"{row['total_ms']:.2f}", f"{ratio:.1f}")
    console.print(table)
    for edges, levels in report["levels_per_epoch"].items():
        table = Table(title=f"Levels per epoch, {levels['graphs']} graphs, {edges}")
        for column in ("batches", "levels", "random / this"):
            table.add_column(column, justify="right")
        table.add_row("random", f"{levels['random']:.0f}", "1.0")
        for pool, total in levels["bucketed_by_pool"].items():
            mark = " (default)" if pool == levels["default_pool"] else ""
            ratio = levels["random"] / total
            table.add_row(f"pool of {pool}{mark}", f"{total:.0f}", f"{ratio:.1f}")
        console.print(table)
    if "training" in report:
        training = report["training"]
        console.print(
            f"training step {training['step_ms']:.1f} ms, with the loader "
            f"{training['step_with_loader_ms']:.1f} ms; a batch takes "
            f"{100 * training['batch_share_of_step']:.2f}% of a step"
        )


if __name__ == "__main__":
    main()
