"""The demo on a few small modules: what it prints, what it keeps, and that it goes on."""

from __future__ import annotations

import importlib.util
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from rich.console import Console

from dagnn.datasets.corpus_splits import split_of
from dagnn.datasets.workers import end_with_parent
from dagnn.tasks.naming import FunctionNames, Suggestion

EXAMPLE = Path(__file__).parents[2] / "examples" / "code_demo.py"


@pytest.fixture(scope="module")
def example() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("code_demo_example", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


class InThisProcess:
    """Stands in for a pool of processes, which could not import a module without a name."""

    def __init__(self, workers: int, *, initializer: object, **options: object) -> None:
        assert initializer is end_with_parent

    def shutdown(self, *, cancel_futures: bool) -> None:
        pass

    def submit(self, work: object, *arguments: object) -> object:
        from concurrent.futures import Future

        future: Future[object] = Future()
        future.set_result(work(*arguments))  # type: ignore[operator]
        return future


def write_modules(folder: Path) -> None:
    folder.mkdir()
    for i in range(30):
        lines = [
            f"def get_name{j}(self, row):\n    for {'ab'[j % 2]} in row:\n        yield self.x{i}\n"
            for j in range(4)
        ]
        (folder / f"module{i}.py").write_text("\n".join(lines))


def test_demo_tells_and_goes_on(
    example: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_modules(tmp_path / "code")
    monkeypatch.setattr(example, "ProcessPoolExecutor", InThisProcess)
    config = example.Config(
        sources=(str(tmp_path / "code"),), tok_epochs=1, lp_epochs=1, channels=8,
        out=tmp_path / "demo",
    )  # fmt: skip
    messages, results = (Console(record=True, width=120, file=io.StringIO()) for _ in range(2))
    records = example.run(config, messages, results)
    text = results.export_text()
    for words in ("DAGNN", "GCN, 5 layers", "TargetInGraph", "MajorityInValid", "optparse.py",
                  "dagnn name FILE.py"):  # fmt: skip
        assert words in text
    assert "30 modules" in messages.export_text()
    assert {record["config"]["task"] for record in records} == {"tok", "lp"}

    written = (config.folder(config.runs()[0]) / "best.ckpt").stat().st_mtime_ns
    again = example.run(config, messages, results)
    assert (config.folder(config.runs()[0]) / "best.ckpt").stat().st_mtime_ns == written
    assert [r["metrics"]["test_loss"] for r in again] == [
        r["metrics"]["test_loss"] for r in records
    ]


def test_module_to_name_is_of_the_test_split(example: ModuleType) -> None:
    module = f"stdlib/{example.UNSEEN.__name__}"
    assert split_of(module, example.Config.split_seed) == "test"


def test_models_see_the_same(example: ModuleType) -> None:
    for task in ("tok", "lp"):
        dagnn, gcn = (run for run in example.Config().runs() if run.task == task)
        for name in ("epochs", "train_limit", "batch_size", "learning_rate", "seed", "edges"):
            assert getattr(dagnn, name) == getattr(gcn, name), name


def test_surest(example: ModuleType) -> None:
    def function(name: str, suggestion: str, probability: float) -> FunctionNames:
        return FunctionNames(name, name, 1, [Suggestion(suggestion, probability)], 1.0)

    functions = [function("a", "x", 0.2), function("b", "y", 0.5), function("c", "x", 0.9)]
    assert [f.name for f in example.surest(functions, 2)] == ["c", "b"]
