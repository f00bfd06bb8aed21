"""Python functions as DAGs: DAGNN beside a GCN on the two tasks of the paper's Table 1, in small.

The standard library becomes a corpus, split by module. TOK asks for the words of a function's name,
LP for the longest path of its syntax tree. At the end DAGNN names functions of a module that was in
neither the training nor the validation split.

    python examples/code_demo.py                                # a few minutes on 2 cores
    python examples/code_demo.py --seed 1 --out runs/demo-1     # other weights and batches

Everything is kept in the folder --out: what is finished is not done again, and what was interrupted
goes on.
"""

from __future__ import annotations

import argparse
import inspect
import json
import multiprocessing
import optparse
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from dagnn import predict_names
from dagnn.datasets.code_dataset import load_code_dataset
from dagnn.datasets.corpus import build_corpus
from dagnn.datasets.workers import end_with_parent
from dagnn.tasks.code_protocol import CodeRun, preset
from dagnn.tasks.code_training import train_code
from dagnn.tasks.naming import FunctionNames
from dagnn.tasks.simple_baselines import simple_baselines

UNSEEN = optparse  # a module of the test split
METRICS = {"tok": "f1", "lp": "accuracy"}
TITLES = {"dagnn": "DAGNN", "gcn": "GCN, 5 layers"}


@dataclass(frozen=True)
class Config:
    sources: tuple[str, ...] = ("stdlib",)
    split_seed: int = 0  # of the corpus: the same for all seeds below
    tok_functions: int | None = None  # of the training split; all
    tok_epochs: int = 4
    lp_functions: int | None = 4000
    lp_epochs: int = 8
    channels: int = 96
    shown: int = 8  # names at the end
    seed: int = 0
    out: Path = Path("runs/demo")

    def runs(self) -> list[CodeRun]:
        """The cells of the table, the longest first, so that two processes end together."""
        return [self._run(*cell) for cell in (("tok", "dagnn"), ("tok", "gcn"), ("lp", "dagnn"),
                                              ("lp", "gcn"))]  # fmt: skip

    def _run(self, task: str, model: str) -> CodeRun:
        run = preset("quick", task, model)
        return replace(
            run,
            encoder=replace(run.encoder, channels=self.channels),
            epochs=self.tok_epochs if task == "tok" else self.lp_epochs,
            train_limit=self.tok_functions if task == "tok" else self.lp_functions,
            seed=self.seed,
        )

    def folder(self, run: CodeRun) -> Path:
        return self.out / f"{run.task}-{run.encoder.model}"


# --- corpus and training --------------------------------------------------------------------------


def make_corpus(config: Config, console: Console) -> Path:
    """Parse the sources, if they are not parsed already."""
    corpus = config.out / "corpus"
    with bars(console, "files") as progress:
        task = progress.add_task("Parsing", total=None, text="")
        report = build_corpus(
            config.sources,
            corpus,
            seed=config.split_seed,
            progress=lambda done, total: progress.update(task, completed=done, total=total),
        )
    sizes = " + ".join(f"{count:,}" for count in report.functions.values())
    console.print(f"{sizes} functions (training + validation + test) of {report.projects} modules")
    return corpus


def train(run: CodeRun, corpus: Path, folder: Path) -> dict[str, Any]:
    """One cell of the table, in a process of its own."""
    import torch

    torch.set_num_threads(1)  # graphs are small: two models side by side use two cores best
    data = load_code_dataset(corpus, edges=run.edges)
    return train_code(run, data, folder, device="cpu", progress=False)


def train_all(config: Config, corpus: Path, console: Console) -> list[dict[str, Any]]:
    """All cells, two at a time, with a bar of epochs for each."""
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(2, mp_context=context, initializer=end_with_parent)
    with closing_early(pool), bars(console, "epochs") as progress:
        waiting: dict[Future[dict[str, Any]], tuple[CodeRun, Any]] = {}
        for run in config.runs():
            title = f"{run.task.upper()}  {TITLES[run.encoder.model]}"
            bar = progress.add_task(title, total=run.epochs, text="")
            waiting[pool.submit(train, run, corpus, config.folder(run))] = run, bar
        while not all(future.done() for future in waiting):
            time.sleep(0.2)
            for run, bar in waiting.values():
                rows = epochs_so_far(config.folder(run))
                if rows:
                    metric = METRICS[run.task]
                    best = max(row[f"valid_{metric}"] for row in rows)
                    text = f"validation {metric} {100 * best:.1f}%"
                    progress.update(bar, completed=len(rows), text=text)
            for future in waiting:
                if future.done():
                    future.result()  # an error ends the demo at once
        return [future.result() for future in waiting]


@contextmanager
def closing_early(pool: ProcessPoolExecutor) -> Iterator[None]:
    """After an error, or Ctrl-C, what has not begun does not begin."""
    try:
        yield
    finally:
        pool.shutdown(cancel_futures=True)


def epochs_so_far(folder: Path) -> list[dict[str, Any]]:
    path = folder / "metrics.jsonl"
    return [json.loads(line) for line in path.open()] if path.exists() else []


def bars(console: Console, unit: str) -> Progress:
    return Progress(
        TextColumn("{task.description:<20}"),
        BarColumn(20),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeElapsedColumn(),
        TextColumn("{task.fields[text]}"),
        console=console,
    )


# --- report ---------------------------------------------------------------------------------------


def make_table(records: Sequence[dict[str, Any]], corpus: Path) -> Table:
    """Models and simple baselines on the test split, as in Table 1."""
    table = Table(title="Table 1 in small, test split", title_justify="left")
    table.add_column("Model")
    for heading in ("TOK: F1", "LP: accuracy"):
        table.add_column(heading, justify="right")
    cells = {(record["config"]["encoder"]["model"], record["config"]["task"]): record
             for record in records}  # fmt: skip
    for model, title in TITLES.items():
        scores = [
            cells[model, task]["metrics"][f"test_{metric}"] for task, metric in METRICS.items()
        ]
        style = "bold" if model == "dagnn" else None
        table.add_row(title, *(f"{100 * score:.1f}%" for score in scores), style=style)
    for task in METRICS:
        data = load_code_dataset(corpus, edges="full" if task == "tok" else "ast")
        baselines = simple_baselines(task, data.valid, data.test, data.vocabulary)
        for name, score in baselines.items():
            row = [f"{100 * score:.1f}%" if column == task else "" for column in METRICS]
            table.add_row(name, *row, style="dim")
    return table


def surest(functions: Sequence[FunctionNames], count: int) -> list[FunctionNames]:
    """The functions of which the model is surest, one for each first suggestion."""
    ranked = sorted(functions, key=lambda f: -f.suggestions[0].probability)
    by_name = {function.suggestions[0].name: function for function in reversed(ranked)}
    return sorted(by_name.values(), key=lambda f: -f.suggestions[0].probability)[:count]


def make_names(functions: Sequence[FunctionNames], config: Config) -> Table:
    """What the model calls functions it has not seen, where it is surest."""
    title = f"{UNSEEN.__name__}.py, never seen: the {config.shown} names DAGNN is surest of"
    table = Table(title=title, title_justify="left")
    table.add_column("Function")
    table.add_column("Suggestions")
    for function in surest(functions, config.shown):
        suggestions = ", ".join(
            f"[bold]{s.name}[/] {s.probability:.0%}" for s in function.suggestions
        )
        table.add_row(function.qualified_name, suggestions)
    return table


# --- run ------------------------------------------------------------------------------------------


def run(config: Config, messages: Console, results: Console) -> list[dict[str, Any]]:
    corpus = make_corpus(config, messages)
    records = train_all(config, corpus, messages)
    results.print(make_table(records, corpus))
    checkpoint = config.folder(config.runs()[0]) / "best.ckpt"
    results.print(make_names(predict_names(inspect.getsource(UNSEEN), checkpoint, count=3), config))
    results.print(f"Your own code: dagnn name FILE.py --checkpoint {checkpoint}", highlight=False)
    return records


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=Config.seed, help="of weights and batches")
    parser.add_argument("--out", type=Path, default=Config.out, help="the folder to keep all in")
    arguments = parser.parse_args()
    try:
        run(Config(seed=arguments.seed, out=arguments.out), Console(stderr=True), Console())
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        print("interrupted; the same command goes on where it stopped", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
