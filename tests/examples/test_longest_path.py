"""The demo on a few graphs: what it prints, what it draws, and that it repeats itself."""

from __future__ import annotations

import importlib.util
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import matplotlib.image
import networkx as nx
import numpy as np
import pytest
import torch
from rich.console import Console

from dagnn.graph.convert import to_networkx

EXAMPLE = Path(__file__).parents[2] / "examples" / "longest_path.py"


@pytest.fixture(scope="module")
def example() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("longest_path_example", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture(autouse=True)
def settings_of_main() -> Iterator[None]:
    """What main sets for the whole process, set here and taken back."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)
    torch.set_num_threads(threads)


def tiny(example: ModuleType, out: Path, **changes: Any) -> Any:
    settings = {"train_graphs": 96, "validation_graphs": 16, "test_graphs": 32, "epochs": 2,
                "path_lengths": (3, 6), "graph_sizes": (8, 12), "batch_size": 16,
                "dagnn_channels": 16, "gcn_channels": 16}  # fmt: skip
    return example.Config(**{**settings, "out": out, **changes})


def test_run_tells_and_draws(example: ModuleType, tmp_path: Path) -> None:
    out = tmp_path / "not" / "there" / "yet.png"
    console = Console(record=True, width=100, file=io.StringIO())
    results = example.run(tiny(example, out), console)
    text = console.export_text()
    for name in ("DAGNN", "GCN, 5 layers", "Majority"):
        assert sum(line.lstrip("│ ").startswith(name) for line in text.splitlines()) >= 1
    for heading in ("Accuracy", "Parameters", "Training", str(out.name)):
        assert heading in text
    assert out.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert matplotlib.image.imread(out).std() > 0.05  # not one flat colour
    assert [path.name for path in out.parent.iterdir()] == [out.name]  # nothing half-written left
    dagnn, gcn, majority = results
    assert dagnn.losses[-1] < dagnn.losses[0]
    assert len(dagnn.losses) == len(dagnn.accuracies) == 2
    assert dagnn.parameters == pytest.approx(gcn.parameters, rel=0.5)
    assert majority.predicted.unique().numel() == 1
    for result in results:
        assert 0 <= result.accuracy <= result.near_accuracy <= 1


def test_same_seed_same_numbers(example: ModuleType, tmp_path: Path) -> None:
    def numbers(seed: int) -> list[Any]:
        config = tiny(example, tmp_path / "plot.png", seed=seed, epochs=1)
        results = example.run(config, Console(quiet=True))
        return [(r.losses, r.accuracies, r.predicted.tolist()) for r in results]

    first = numbers(seed=3)
    assert numbers(seed=3) == first
    assert numbers(seed=4) != first


def test_graphs_are_what_they_claim(example: ModuleType) -> None:
    config = example.Config(train_graphs=400, validation_graphs=1, test_graphs=1)
    graphs = example.make_splits(config)[0]
    for graph in graphs[:100]:
        digraph = to_networkx(graph)
        assert type(digraph) is nx.DiGraph  # no edge twice
        longest = nx.dag_longest_path_length(digraph) + 1
        assert graph.y.item() == longest - config.path_lengths[0]
        assert config.graph_sizes[0] <= graph.num_nodes <= config.graph_sizes[1]
        assert graph.x.unique().numel() == 1  # no feature tells nodes apart
    length = example.labels(graphs).numpy()
    assert set(length) == set(range(config.num_classes))
    for size in ("num_nodes", "num_edges"):
        given_away = np.corrcoef(length, [getattr(graph, size) for graph in graphs])[0, 1]
        assert abs(given_away) < 0.15  # three standard errors of a correlation of zero
    first_nodes = [int(graph.level[0]) for graph in graphs]
    assert np.corrcoef(first_nodes, length)[0, 1] < 0.75  # the order of the nodes is random


@pytest.mark.parametrize("asked", [[40, 3], [9, 9]])
def test_length_asked_for_is_length_got(example: ModuleType, asked: list[int]) -> None:
    num_nodes, length = asked
    config = example.Config(path_lengths=(1, 40), graph_sizes=(num_nodes, num_nodes))
    graph = example.random_dag(length, config, np.random.default_rng(0))
    assert graph.y.item() == length - 1


def test_help_has_an_example(example: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_info:
        example.main(["--help"])
    assert exit_info.value.code == 0
    shown = capsys.readouterr().out
    assert "example: python examples/longest_path.py" in shown
    for option in ("--seed", "--epochs", "--out"):
        assert option in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--epochs", "0"], "--epochs: expected at least 1, got 0"),
        (["--seed", "-1"], "--seed: expected 0 or more, got -1"),
        (["--out", "."], "--out: expected a file"),
    ],
)
def test_bad_options(
    example: ModuleType,
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as exit_info:
        example.main(arguments)
    assert exit_info.value.code == 2
    assert message in capsys.readouterr().err


def test_interruption_ends_cleanly(
    example: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(example, "make_splits", interrupt)
    out = tmp_path / "plot.png"
    assert example.main(["--out", str(out)]) == 130
    shown = " ".join(capsys.readouterr().out.split())
    assert "Stopped before the end" in shown
    assert not out.exists()
