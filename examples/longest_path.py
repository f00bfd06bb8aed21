"""How long is the longest path of a DAG? DAGNN, a graph convolutional network, and a guess.

The paper's LP task in the small. Every model sees the same random DAGs: nodes without features,
in random order, as many nodes and edges in deep graphs as in shallow ones. What is left to learn
from is the order of the nodes, which DAGNN walks through and a convolution sees 5 hops of.

    python examples/longest_path.py                       # about a minute and a half on 2 cores
    python examples/longest_path.py --seed 1 --epochs 20 --out runs/demo/seed1.png
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import torch
from matplotlib.figure import Figure  # unlike pyplot, it needs no screen
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, PercentFormatter
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import BatchNorm, GCNConv, global_max_pool, global_mean_pool

from dagnn import DAGNN, AddLevels, longest_path_length


@dataclass(frozen=True)
class Config:
    # data
    train_graphs: int = 4000
    validation_graphs: int = 500
    test_graphs: int = 1000
    path_lengths: tuple[int, int] = (3, 18)  # nodes on the longest path, both ends included
    graph_sizes: tuple[int, int] = (24, 48)  # nodes of a graph
    edges_per_node: tuple[float, float] = (1.3, 2.0)
    # models, of about the same number of parameters
    dagnn_layers: int = 2
    dagnn_channels: int = 48
    gcn_layers: int = 5
    gcn_channels: int = 48
    # training, the same for both but for the learning rates: the best of a few tried for each
    epochs: int = 16
    batch_size: int = 32
    dagnn_learning_rate: float = 0.007
    gcn_learning_rate: float = 0.02
    clip: float = 0.25
    # run
    seed: int = 0
    out: Path = Path("runs/demo/longest_path.png")

    @property
    def num_classes(self) -> int:
        return self.path_lengths[1] - self.path_lengths[0] + 1


# --- data -----------------------------------------------------------------------------------------


def random_dag(length: int, config: Config, rng: np.random.Generator) -> Data:
    """A DAG whose longest path has `length` nodes, and whose size says nothing about it."""
    num_nodes = int(rng.integers(config.graph_sizes[0], config.graph_sizes[1] + 1))
    num_edges = int(num_nodes * rng.uniform(*config.edges_per_node))

    # From one thin path beside a few crowded levels (0.3) to levels of about one size (10).
    evenness = rng.choice([0.3, 1.0, 10.0])
    share = rng.dirichlet(np.full(length, evenness))
    size = 1 + rng.multinomial(num_nodes - length, share)  # [length] nodes in each level
    start = np.cumsum(size) - size
    level = np.repeat(np.arange(length), size)  # [num_nodes]

    # One predecessor in the level below puts each node in its level: paths have `length` nodes.
    child = np.arange(size[0], num_nodes)
    below = level[child] - 1
    parent = start[below] + rng.integers(size[below])
    # Shortcuts, which make no path longer, bring the number of edges to num_edges.
    pair = rng.integers(num_nodes, size=(2, 20 * num_nodes))
    shortcut = pair[:, level[pair[0]] < level[pair[1]]]
    edges = np.concatenate([np.stack([parent, child]), shortcut], axis=1)
    _, first = np.unique(edges[0] * num_nodes + edges[1], return_index=True)
    edges = edges[:, np.sort(first)[:num_edges]]

    edge_index = torch.from_numpy(rng.permutation(num_nodes)[edges])  # new names for the nodes
    label = longest_path_length(edge_index, num_nodes) - config.path_lengths[0]
    return Data(x=torch.ones(num_nodes, 1), edge_index=edge_index, y=label.view(1))


def make_splits(config: Config) -> list[list[Data]]:
    """Training, validation and test graphs, with all lengths equally likely."""
    rng = np.random.default_rng(config.seed)
    add_levels = AddLevels()  # levels are computed here, once, and not in every training step
    shortest, longest = config.path_lengths
    return [
        [add_levels(random_dag(int(rng.integers(shortest, longest + 1)), config, rng))
         for _ in range(size)]
        for size in (config.train_graphs, config.validation_graphs, config.test_graphs)
    ]  # fmt: skip


# --- models ---------------------------------------------------------------------------------------


def make_dagnn(config: Config) -> nn.Module:
    return DAGNN(1, config.dagnn_channels, config.dagnn_layers, config.num_classes)


class GCN(nn.Module):
    """Graph convolutions along the edges and against them, with weights of their own.

    The strongest of the small recipes tried here: one weight for both directions, a residual
    connection, no batch norm, or pooling by mean, maximum or sum alone did no better.
    """

    def __init__(self, channels: int, num_layers: int, num_classes: int) -> None:
        super().__init__()
        self.embed = nn.Linear(1, channels)
        self.along = nn.ModuleList(GCNConv(channels, channels) for _ in range(num_layers))
        self.against = nn.ModuleList(GCNConv(channels, channels) for _ in range(num_layers))
        self.norms = nn.ModuleList(BatchNorm(channels) for _ in range(num_layers))
        self.classify = nn.Linear(2 * channels, num_classes)

    def forward(self, data: Data) -> Tensor:
        h = self.embed(data.x)  # [N, H]
        reverse_edge_index = data.edge_index.flip(0)
        for along, against, norm in zip(self.along, self.against, self.norms, strict=True):
            h = norm(along(h, data.edge_index) + against(h, reverse_edge_index)).relu()
        pooled = [global_max_pool(h, data.batch), global_mean_pool(h, data.batch)]
        return self.classify(torch.cat(pooled, dim=-1))  # [B, num_classes]


def make_gcn(config: Config) -> nn.Module:
    return GCN(config.gcn_channels, config.gcn_layers, config.num_classes)


# --- training -------------------------------------------------------------------------------------


@dataclass
class Result:
    name: str
    predicted: Tensor  # [test_graphs] classes
    actual: Tensor  # [test_graphs] classes
    parameters: int = 0
    seconds: float = 0.0
    losses: list[float] = field(default_factory=list)  # by epoch, on the training graphs
    accuracies: list[float] = field(default_factory=list)  # by epoch, on the validation graphs

    @property
    def accuracy(self) -> float:
        return (self.predicted == self.actual).float().mean().item()

    @property
    def near_accuracy(self) -> float:
        """How often the answer is off by one at most."""
        return ((self.predicted - self.actual).abs() <= 1).float().mean().item()


@torch.no_grad()
def predict(model: nn.Module, graphs: list[Data]) -> Tensor:
    model.eval()
    batches = DataLoader(graphs, batch_size=250)
    return torch.cat([model(batch).argmax(dim=-1) for batch in batches])


def labels(graphs: list[Data]) -> Tensor:
    return torch.cat([graph.y for graph in graphs])


def majority(splits: list[list[Data]]) -> Result:
    """Always answers with the most frequent length of the training graphs."""
    train, _, test = splits
    actual = labels(test)
    return Result("Majority", labels(train).mode().values.expand_as(actual), actual)


def train(
    name: str,
    model: nn.Module,
    learning_rate: float,
    splits: list[list[Data]],
    config: Config,
    progress: Progress,
) -> Result:
    """Trains for a fixed number of steps, and keeps the weights of the best validation epoch."""
    began = time.perf_counter()
    train_graphs, validation_graphs, test_graphs = splits
    shuffle = torch.Generator().manual_seed(config.seed)
    loader = DataLoader(train_graphs, config.batch_size, shuffle=True, generator=shuffle)
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate)
    steps = config.epochs * len(loader)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, learning_rate, total_steps=steps)

    losses: list[float] = []
    accuracies: list[float] = []
    best: dict[str, Tensor] = {}
    task = progress.add_task(name, total=steps, loss=float("nan"), accuracy=float("nan"))
    for _ in range(config.epochs):
        model.train()
        total = 0.0
        for batch in loader:
            loss = nn.functional.cross_entropy(model(batch), batch.y)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), config.clip)
            optimizer.step()
            schedule.step()
            total += loss.item() * batch.num_graphs
            progress.update(task, advance=1, loss=loss.item())
        losses.append(total / len(train_graphs))
        correct = predict(model, validation_graphs) == labels(validation_graphs)
        accuracies.append(correct.float().mean().item())
        progress.update(task, loss=losses[-1], accuracy=accuracies[-1])
        if accuracies[-1] == max(accuracies):
            best = {key: value.clone() for key, value in model.state_dict().items()}

    model.load_state_dict(best)
    return Result(
        name,
        predict(model, test_graphs),
        labels(test_graphs),
        sum(parameter.numel() for parameter in model.parameters()),
        time.perf_counter() - began,
        losses,
        accuracies,
    )


# --- report ---------------------------------------------------------------------------------------


def make_table(results: Sequence[Result]) -> Table:
    table = Table(title="Longest path of random DAGs, test graphs", title_justify="left")
    table.add_column("Model")
    for heading in ("Accuracy", "Off by ≤ 1", "Parameters", "Training"):
        table.add_column(heading, justify="right")
    for result in results:
        table.add_row(
            result.name,
            f"{result.accuracy:.1%}",
            f"{result.near_accuracy:.1%}",
            f"{result.parameters:,}",
            f"{result.seconds:.1f} s",
            style="bold" if result is max(results, key=lambda r: r.accuracy) else None,
        )
    return table


INK, GREY, GRID = "#1f2933", "#7b8794", "#e4e7eb"
COLORS = {"DAGNN": "#0b7285", "GCN": "#e8590c", "Majority": GREY}


def color_of(result: Result) -> str:
    return COLORS[result.name.split(",")[0]]


def plot(results: Sequence[Result], config: Config) -> None:
    """Learning curves, and accuracy by the length of the longest path."""
    style: Any = {
        "font.size": 10, "axes.titlesize": 11, "text.color": INK, "axes.labelcolor": INK,
        "axes.edgecolor": GREY, "xtick.color": GREY, "ytick.color": GREY,
    }  # fmt: skip
    with matplotlib.rc_context(style):
        figure = Figure(figsize=(10, 4), layout="constrained")
        left, right = figure.subplots(1, 2, sharey=True, width_ratios=[2, 3])
        left.set_title("Learning: validation accuracy", loc="left", weight="bold")
        left.set_xlabel("epoch")
        epochs = range(1, config.epochs + 1)
        for result in results:
            if result.accuracies:
                left.plot(epochs, result.accuracies, color=color_of(result), linewidth=2.2)
            else:
                left.axhline(result.accuracy, color=GREY, linewidth=1.5, linestyle=(0, (4, 3)))

        right.set_title("What was learned: test accuracy by path length", loc="left", weight="bold")
        right.set_xlabel("nodes on the longest path")
        lengths = np.arange(config.path_lengths[0], config.path_lengths[1] + 1)
        models = [result for result in results if result.accuracies]
        width = 0.8 / len(models)
        for i, result in enumerate(models):
            by_length = [accuracy_at(result, int(c)) for c in lengths - config.path_lengths[0]]
            offset = (i - (len(models) - 1) / 2) * width
            right.bar(lengths + offset, by_length, width * 0.9, color=color_of(result))

        for axes in (left, right):
            axes.spines[["top", "right", "left"]].set_visible(False)
            axes.set_axisbelow(True)
            axes.grid(axis="y", color=GRID)
            axes.tick_params(length=0)
            axes.set_ylim(0, 1.04)
            axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        left.xaxis.set_major_locator(MaxNLocator(integer=True))
        right.set_xticks(lengths)
        handles = [Line2D([], [], color=color_of(r), linewidth=5, solid_capstyle="butt")
                   for r in results]  # fmt: skip
        captions = [f"{result.name}  {result.accuracy:.1%}" for result in results]
        figure.legend(handles, captions, loc="outside upper left", ncols=len(results),
                      frameon=False, handlelength=1.0)  # fmt: skip

        config.out.parent.mkdir(parents=True, exist_ok=True)
        unfinished = config.out.with_name(f".{config.out.name}.unfinished")
        figure.savefig(unfinished, dpi=160, format="png")
        unfinished.replace(config.out)  # so that a picture is there as a whole or not at all


def accuracy_at(result: Result, label: int) -> float:
    of_this_length = result.actual == label
    return (result.predicted == label)[of_this_length].float().mean().item()


# --- run ------------------------------------------------------------------------------------------


def run(config: Config, console: Console) -> list[Result]:
    torch.manual_seed(config.seed)
    with console.status("Drawing random DAGs …"):
        splits = make_splits(config)
    describe(splits, config, console)
    with Progress(
        TextColumn("{task.description:<13}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]:.3f}  accuracy {task.fields[accuracy]:.1%}"),
        TimeElapsedColumn(),
        console=console,
    ) as progress:
        dagnn = train(
            "DAGNN", make_dagnn(config), config.dagnn_learning_rate, splits, config, progress
        )
        gcn = train(
            f"GCN, {config.gcn_layers} layers", make_gcn(config), config.gcn_learning_rate,
            splits, config, progress,
        )  # fmt: skip
    results = [dagnn, gcn, majority(splits)]
    plot(results, config)
    console.print()
    console.print(make_table(results))
    console.print(f"Plot: {config.out}")
    return results


def describe(splits: list[list[Data]], config: Config, console: Console) -> None:
    train_graphs = splits[0]
    nodes, edges = ([getattr(graph, name) for graph in train_graphs]
                    for name in ("num_nodes", "num_edges"))  # fmt: skip
    correlation = np.corrcoef([labels(train_graphs).numpy(), nodes, edges])[0]
    sizes = " + ".join(f"{len(split):,}" for split in splits)
    console.print(
        f"{sizes} random DAGs (training + validation + test), {config.graph_sizes[0]} to "
        f"{config.graph_sizes[1]} nodes each; the longest path has {config.path_lengths[0]} to "
        f"{config.path_lengths[1]} nodes. Its correlation with the number of nodes is "
        f"{correlation[1]:+.3f}, with the number of edges {correlation[2]:+.3f}."
    )


def parse(arguments: Sequence[str] | None) -> Config:
    default = Config()
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n")[0],
        epilog="example: python examples/longest_path.py --seed 1 --epochs 20",
    )
    parser.add_argument("--seed", type=int, default=default.seed,
                        help="of data, weights and batches (default: %(default)s)")  # fmt: skip
    parser.add_argument("--epochs", type=int, default=default.epochs,
                        help="passes over the training graphs (default: %(default)s)")  # fmt: skip
    parser.add_argument("--out", type=Path, default=default.out,
                        help="where the plot goes, a PNG (default: %(default)s)")  # fmt: skip
    options = parser.parse_args(arguments)
    if options.epochs < 1:
        parser.error(f"argument --epochs: expected at least 1, got {options.epochs}")
    if options.seed < 0:
        parser.error(f"argument --seed: expected 0 or more, got {options.seed}")
    if options.out.is_dir():
        parser.error(f"argument --out: expected a file, got the folder {options.out}")
    return replace(default, **vars(options))


def main(arguments: Sequence[str] | None = None) -> int:
    config = parse(arguments)
    console = Console()
    # The same seed gives the same numbers, whatever the number of cores. The models are small:
    # one thread is about as fast as two.
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    try:
        run(config, console)
    except KeyboardInterrupt:
        console.print(f"\nStopped before the end; {config.out} was not written.")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
