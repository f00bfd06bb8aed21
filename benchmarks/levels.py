"""Speed of ``topological_levels``, beside networkx and over sizes.

    python benchmarks/levels.py --json results/levels.json

Times are medians of interleaved runs, after compilation. networkx gets its graphs ready-made.
"""

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import networkx as nx
import numpy as np
import torch
from code_graphs import standard_library_graphs
from torch import Tensor
from torch_geometric.data import Batch, Data

from dagnn import LevelSchedule, topological_levels

SIZES = (10_000, 30_000, 100_000, 300_000, 1_000_000)
EDGES_PER_NODE = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()

    topological_levels(torch.tensor([[0], [1]]))  # compile
    results = {
        "command": " ".join(["python", *sys.argv]),
        "environment": environment(),
        "repeats": arguments.repeats,
        "seed": arguments.seed,
        "code_graphs": code_graphs(arguments.repeats, arguments.seed),
        "growth": growth(arguments.repeats, arguments.seed),
    }
    if arguments.json:
        unfinished = arguments.json.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(results, indent=2) + "\n")
        os.replace(unfinished, arguments.json)


def code_graphs(repeats: int, seed: int) -> dict[str, Any]:
    """A batch of 1,000 code graphs, with networkx beside."""
    graphs = standard_library_graphs(1000, seed, next_token=True)
    batch = Batch.from_data_list(graphs)
    ready = [networkx_graph(graph) for graph in graphs]
    ready_batch = networkx_graph(batch)
    levels = topological_levels(batch.edge_index, batch.num_nodes)
    schedule = LevelSchedule.from_edge_index(batch.edge_index, batch.num_nodes)
    for i, generation in enumerate(nx.topological_generations(ready_batch)):
        assert set((levels == i).nonzero().view(-1).tolist()) == set(generation)

    seconds = interleaved(
        {
            "dagnn, batch": lambda: topological_levels(batch.edge_index, batch.num_nodes),
            "dagnn, graph by graph": lambda: [
                topological_levels(graph.edge_index, graph.num_nodes) for graph in graphs
            ],
            "networkx, batch": lambda: list(nx.topological_generations(ready_batch)),
            "networkx, graph by graph": lambda: [
                list(nx.topological_generations(graph)) for graph in ready
            ],
            "dagnn, schedule of the batch": lambda: LevelSchedule.from_edge_index(
                batch.edge_index, batch.num_nodes
            ),
        },
        repeats,
    )
    best_networkx = min(seconds["networkx, batch"], seconds["networkx, graph by graph"])
    speedup = best_networkx / seconds["dagnn, batch"]
    print(
        f"1,000 functions of the standard library: {batch.num_nodes:,} nodes, "
        f"{batch.num_edges:,} edges, {schedule.num_levels} levels"
    )
    for name, value in seconds.items():
        print(f"  {name:<30}{1e3 * value:9.2f} ms")
    print(f"  {'speed-up over networkx':<30}{speedup:9.0f} x   (asked: 50 x)\n")
    return {
        "nodes": batch.num_nodes,
        "edges": batch.num_edges,
        "levels": schedule.num_levels,
        "median_seconds": seconds,
        "speedup_over_networkx": speedup,
    }


def growth(repeats: int, seed: int) -> list[dict[str, Any]]:
    """Paths, random DAGs and batches of code graphs of growing size."""
    rng = np.random.default_rng(seed)
    some = Batch.from_data_list(standard_library_graphs(100, seed, next_token=True))
    families: dict[str, Callable[[int], tuple[Tensor, int]]] = {
        "path": path,
        "random DAG": lambda n: random_dag(n, rng),
        "code graphs": lambda n: copies(some, max(1, round(n / some.num_nodes))),
    }
    rows = []
    print(f"{'growth':<14}{'nodes':>12}{'edges':>12}{'ms':>10}{'ns per node and edge':>22}")
    for family, make in families.items():
        inputs = {str(size): make(size) for size in SIZES}
        seconds = interleaved(
            {
                name: lambda graph=graph: topological_levels(*graph)
                for name, graph in inputs.items()
            },
            repeats,
        )
        for name, (edge_index, nodes) in inputs.items():
            edges = edge_index.size(1)
            row = {"family": family, "nodes": nodes, "edges": edges, "seconds": seconds[name]}
            row["ns_per_node_and_edge"] = 1e9 * seconds[name] / (nodes + edges)
            rows.append(row)
            print(
                f"{family:<14}{nodes:>12,}{edges:>12,}{1e3 * row['seconds']:>10.2f}"
                f"{row['ns_per_node_and_edge']:>22.1f}"
            )
    print("(asked: under 2 s for each of 1,000,000 nodes)")
    return rows


def path(nodes: int) -> tuple[Tensor, int]:
    return torch.stack([torch.arange(nodes - 1), torch.arange(1, nodes)]), nodes


def random_dag(nodes: int, rng: np.random.Generator) -> tuple[Tensor, int]:
    """Uniform pairs, directed by a random order that the labels do not betray."""
    u = rng.integers(0, nodes, EDGES_PER_NODE * nodes)
    v = (u + rng.integers(1, nodes, u.size)) % nodes
    label = rng.permutation(nodes)
    edges = np.stack([label[np.minimum(u, v)], label[np.maximum(u, v)]])
    return torch.from_numpy(edges), nodes


def copies(graph: Data, count: int) -> tuple[Tensor, int]:
    offset = torch.arange(count).repeat_interleave(graph.num_edges) * graph.num_nodes
    return graph.edge_index.repeat(1, count) + offset, count * graph.num_nodes


def networkx_graph(data: Data) -> nx.DiGraph:
    graph = nx.DiGraph()
    graph.add_nodes_from(range(data.num_nodes))
    graph.add_edges_from(data.edge_index.t().tolist())
    return graph


def interleaved(runs: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """The median seconds of each run; one of each in turn, so that a busy moment hits all."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for round_ in range(repeats + 1):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            if round_ > 0:  # the first round warms caches
                seconds[name].append(time.perf_counter() - start)
    return {name: median(values) for name, values in seconds.items()}


def environment() -> dict[str, Any]:
    cpu = platform.processor() or platform.machine()
    information = Path("/proc/cpuinfo")
    if information.exists():
        names = [line for line in information.read_text().splitlines() if "model name" in line]
        cpu = names[0].split(":")[1].strip() if names else cpu
    packages = ("torch", "torch_geometric", "numba", "numpy", "networkx")
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        **{name: version(name) for name in packages},
    }


if __name__ == "__main__":
    main()
