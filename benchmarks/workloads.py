"""What is measured: batches of DAGs, each with the model that its users run on it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from benchmarks.code_graphs import standard_library_graphs
from dagnn import AddLevels, LevelSchedule

__all__ = ["WORKLOADS", "Architecture", "Workload", "copies", "fingerprint", "make_workload"]


@dataclass(frozen=True)
class Architecture:
    """The DAGNN that a workload asks for, and what stands on its graph vectors."""

    in_channels: int = 300
    hidden: int = 300
    layers: int = 2
    bidirectional: bool = True
    edge_types: int | None = 2
    out_channels: int | None = 300  # None: the pooled states are the output
    readout_layers: str = "all"
    aggregator: str = "attention"
    heads: int = 0  # 0: the loss is a fixed linear function of the output
    classes: int = 5002
    input_gradient: bool = True  # the features come from an embedding that learns


@dataclass(frozen=True, eq=False)
class Workload:
    """A batch on a device, its schedule, and what was needed to make them."""

    name: str
    title: str
    architecture: Architecture
    graphs: list[Data]  # on the CPU, with levels: what a loader would batch
    x: Tensor  # [N, C]
    edge_index: Tensor  # [2, E]
    edge_type: Tensor | None  # [E]
    batch: Tensor  # [N]
    labels: Tensor  # [B, heads]
    schedule: LevelSchedule
    chain_length: int | None = None  # all graphs are paths of so many nodes
    note: str = ""

    @property
    def num_graphs(self) -> int:
        return self.labels.size(0)

    @property
    def device(self) -> torch.device:
        return self.x.device

    def summary(self) -> dict[str, object]:
        widths = self.schedule.level_ptr.diff()
        return {
            "title": self.title,
            "note": self.note,
            "graphs": self.num_graphs,
            "nodes": self.schedule.num_nodes,
            "edges": self.schedule.num_edges,
            "levels": self.schedule.num_levels,
            "largest_level": int(widths.max()),
            "level_0_share": [round(float(w[0]) / self.schedule.num_nodes, 4) for w in widths],
            "architecture": vars(self.architecture),
            "fingerprint": fingerprint(self.edge_index),
        }


def fingerprint(edge_index: Tensor) -> str:
    """SHA-256 of the edges: two runs with the same one measured the same graphs."""
    return hashlib.sha256(edge_index.cpu().contiguous().numpy().tobytes()).hexdigest()


@dataclass(frozen=True)
class _Plan:
    title: str
    graphs: Callable[[bool, bool, int], list[Data]]  # (quick, accelerator, seed)
    architecture: Architecture
    chain_length: Callable[[bool], int] | None = None
    note: str = ""
    quick: dict[str, int] = field(default_factory=dict)


def make_workload(name: str, device: torch.device, seed: int, quick: bool) -> Workload:
    """Draw a workload's graphs and features; the same for the same seed on every device."""
    plan = WORKLOADS[name]
    graphs = [AddLevels()(g) for g in plan.graphs(quick, device.type == "cuda", seed)]
    settings = {**vars(plan.architecture), **(plan.quick if quick else {})}
    architecture = Architecture(**settings)
    batch = Batch.from_data_list(graphs)
    generator = torch.Generator().manual_seed(seed)
    # Random features, not embedded types: nodes with equal features tie in the max readout.
    x = torch.randn(batch.num_nodes, architecture.in_channels, generator=generator)
    if not architecture.input_gradient:
        x = torch.nn.functional.one_hot(batch.x, architecture.in_channels).float()
    labels = torch.randint(
        architecture.classes, (batch.num_graphs, architecture.heads), generator=generator
    )
    batch = batch.to(device)
    return Workload(
        name,
        plan.title,
        architecture,
        graphs,
        x.to(device),
        batch.edge_index,
        batch.edge_type if architecture.edge_types else None,
        batch.batch,
        labels.to(device),
        LevelSchedule.from_data(batch, reverse=architecture.bidirectional),
        plan.chain_length(quick) if plan.chain_length else None,
        plan.note,
    )


def copies(graphs: Sequence[Data], nodes: int) -> Data:
    """As many copies of a batch of graphs as give about so many nodes, with their levels."""
    one = Batch.from_data_list(list(graphs))
    count = max(1, round(nodes / one.num_nodes))
    node_offset = torch.arange(count).view(-1, 1, 1) * one.num_nodes
    graph_offset = torch.arange(count).view(-1, 1) * one.num_graphs
    edges = (one.edge_index.unsqueeze(0) + node_offset).transpose(0, 1)  # [2, count, E]
    return Data(
        edge_index=edges.reshape(2, -1),
        edge_type=one.edge_type.repeat(count),
        level=one.level.repeat(count),
        reverse_level=one.reverse_level.repeat(count),
        batch=(one.batch + graph_offset).view(-1),
        num_nodes=count * one.num_nodes,
        num_graphs=count * one.num_graphs,
    )


def _syntax_trees(quick: bool, accelerator: bool, seed: int) -> list[Data]:
    graphs = _code(quick, accelerator, seed)
    for graph in graphs:
        tree = graph.edge_type == 0
        graph.edge_index, graph.edge_type = graph.edge_index[:, tree], graph.edge_type[tree]
    return graphs


def _code(quick: bool, accelerator: bool, seed: int) -> list[Data]:
    return standard_library_graphs(4 if quick else 80, seed, next_token=True)


def _chains(quick: bool, accelerator: bool, seed: int) -> list[Data]:
    length = _chain_length(quick)
    return [path(length) for _ in range(4 if quick else 100)]


def _chain_length(quick: bool) -> int:
    return 6 if quick else 100


def path(length: int) -> Data:
    step = torch.arange(length - 1)
    edge_index = torch.stack([step, step + 1])
    return Data(edge_index=edge_index, edge_type=torch.zeros_like(step), num_nodes=length)


def _architectures(quick: bool, accelerator: bool, seed: int) -> list[Data]:
    """As ENAS draws them: each node follows the last one, and any earlier one at random."""
    generator = torch.Generator().manual_seed(seed)

    def graph() -> Data:
        skip = torch.rand(8, 8, generator=generator) < 0.5
        edges = [(u, v) for v in range(8) for u in range(v) if u == v - 1 or skip[u, v]]
        types = [6, *torch.randint(6, (6,), generator=generator).tolist(), 7]
        return _from_edges(edges, types)

    return [graph() for _ in range(4 if quick else 32)]


def _bayesian_networks(quick: bool, accelerator: bool, seed: int) -> list[Data]:
    """Random DAGs of 8 variables in a fixed order, between an input node and an output node."""
    generator = torch.Generator().manual_seed(seed)

    def graph() -> Data:
        draw = torch.rand(8, 8, generator=generator) < 2 / 7
        edges = [(u + 1, v + 1) for v in range(8) for u in range(v) if draw[u, v]]
        edges += [(0, v) for v in range(1, 9) if v not in {e[1] for e in edges}]
        edges += [(u, 9) for u in range(1, 9) if u not in {e[0] for e in edges}]
        return _from_edges(edges, list(range(10)))

    return [graph() for _ in range(4 if quick else 128)]


def _from_edges(edges: list[tuple[int, int]], types: list[int]) -> Data:
    edge_index = torch.tensor(edges).t().contiguous()
    kind = torch.zeros(len(edges), dtype=torch.long)
    return Data(x=torch.tensor(types), edge_index=edge_index, edge_type=kind, num_nodes=len(types))


def _wide(quick: bool, accelerator: bool, seed: int) -> list[Data]:
    """Four levels; each node has 3 predecessors in the level before."""
    generator = torch.Generator().manual_seed(seed)
    width = 16 if quick else 1024 if accelerator else 128

    def graph() -> Data:
        target = torch.arange(width, 4 * width).repeat_interleave(3)
        below = (target // width - 1) * width
        source = below + torch.randint(width, (len(target),), generator=generator)
        edge_type = torch.randint(2, (len(target),), generator=generator)
        return Data(
            edge_index=torch.stack([source, target]), edge_type=edge_type, num_nodes=4 * width
        )

    return [graph() for _ in range(2 if quick else 8)]


_SMALL = {"in_channels": 12, "hidden": 16, "classes": 50}
_CODE_QUICK = {**_SMALL, "out_channels": 16}

# In the order of importance: a run that ends early has the first ones.
WORKLOADS: dict[str, _Plan] = {
    "ast": _Plan(
        "80 functions, AST edges",
        _syntax_trees,
        Architecture(heads=5),
        quick=_CODE_QUICK,
    ),
    "full": _Plan(
        "80 functions, AST and next-token edges",
        _code,
        Architecture(heads=5),
        quick=_CODE_QUICK,
    ),
    "gated": _Plan(
        "80 functions, AST and next-token edges, D-VAE's encoder",
        _code,
        Architecture(
            layers=1, edge_types=None, readout_layers="last", aggregator="gated_sum", heads=5
        ),
        quick=_CODE_QUICK,
    ),
    "chains": _Plan(
        "100 paths of 100 nodes",
        _chains,
        Architecture(edge_types=None, out_channels=None, readout_layers="last"),
        _chain_length,
        "the output is the last layer's final state in each direction, as GRU's h_n",
        quick=_SMALL,
    ),
    "wide": _Plan(
        "8 DAGs of 4 wide levels, in-degree 3",
        _wide,
        Architecture(),
        quick=_CODE_QUICK,
    ),
    "bn": _Plan(
        "128 Bayesian networks of 10 nodes, hidden 501",
        _bayesian_networks,
        Architecture(
            in_channels=10, hidden=501, edge_types=None, out_channels=112, input_gradient=False
        ),
        note="output: mean and log-variance of 56 latent dimensions",
        quick={"hidden": 15},
    ),
    "na": _Plan(
        "32 architectures of 8 nodes, hidden 501",
        _architectures,
        Architecture(
            in_channels=8,
            hidden=501,
            bidirectional=False,
            edge_types=None,
            out_channels=112,
            input_gradient=False,
        ),
        note="output: mean and log-variance of 56 latent dimensions",
        quick={"hidden": 15},
    ),
}
