"""Names and vectors for functions that a model has never seen."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch_geometric.data import Batch

from dagnn.datasets.code_dataset import graphs_of
from dagnn.datasets.functions import (
    FunctionGraph,
    decode_source,
    functions_of,
    functions_of_snippet,
)
from dagnn.graph.flat import FlatGraphs
from dagnn.tasks.code_training import choose_device, load_task
from dagnn.tasks.default_checkpoint import default_checkpoint
from dagnn.tasks.graph_task import CodeTask
from dagnn.tasks.name_search import best_names, name_surprise
from dagnn.tasks.token_prediction import TokenPrediction
from dagnn.training.threads import SINGLE_THREADS, work_alone

__all__ = ["FunctionNames", "Suggestion", "embed", "name", "predict_names"]

Result = TypeVar("Result")

BATCH = 64  # functions
CHUNK = 4096  # functions that are graphs at the same time


@dataclass(frozen=True)
class Suggestion:
    """A name and its probability under the model."""

    name: str
    probability: float


@dataclass(frozen=True)
class FunctionNames:
    """What a model would call a function.

    Args:
        name: The name that it has.
        qualified_name: With the classes and functions around it.
        line: Where it begins.
        suggestions: The most probable names, best first.
        surprise: How little the model expected the given name: bits per word. Words outside of its
            vocabulary are all one to it, the unknown word.
    """

    name: str
    qualified_name: str
    line: int
    suggestions: list[Suggestion]
    surprise: float


def predict_names(
    source: str | os.PathLike[str],
    checkpoint: str | os.PathLike[str] | CodeTask | None = None,
    *,
    count: int = 5,
    device: str = "auto",
) -> list[FunctionNames]:
    """Suggest names for all functions of some Python source code.

    Methods, ``async`` functions and functions inside of functions are functions of their own; a
    ``lambda``, which has no name, is only part of the function around it.

    Args:
        source: The text of a module, or of functions that are indented alike, or a file as a
            :class:`pathlib.Path`. It is parsed, never executed.
        checkpoint: Of a model trained with ``dagnn train tok``, or the folder of its run. By
            default that of the environment variable ``DAGNN_CHECKPOINT``, or else
            ``runs/tok/dagnn/seed0/best.ckpt``. To read it once for many calls, give what
            :func:`dagnn.tasks.code_training.load_task` returns.
        count: The number of names for each function.
        device: ``"auto"``, ``"cpu"`` or ``"cuda"``.

    Raises:
        SyntaxError: With line and column; of indented text, the column from its margin on.
        TypeError: If the source is neither text nor a path.
        ValueError: If the text is the name of a file.
    """
    functions = _functions(source)
    if isinstance(checkpoint, CodeTask):
        task = checkpoint
    else:
        task = load_task(default_checkpoint(checkpoint))
    return name(task, functions, count=count, device=device)


def _functions(source: str | os.PathLike[str]) -> list[FunctionGraph]:
    if isinstance(source, os.PathLike):
        filename = os.fspath(source)
        return functions_of(decode_source(Path(source).read_bytes(), filename), filename)
    if not isinstance(source, str):
        raise TypeError(
            "expected Python source code as a str, or a file as a pathlib.Path, got "
            f"{type(source).__name__}"
        )
    # The name of a file often is an expression, a module without functions.
    if source.endswith(".py") and "\n" not in source:
        raise ValueError(
            f"expected Python source code, got the name of a file; give Path({source!r})"
        )
    return functions_of_snippet(source.removeprefix("\ufeff"))  # as when a file is read


def name(
    task: CodeTask, functions: Sequence[FunctionGraph], *, count: int = 5, device: str = "auto"
) -> list[FunctionNames]:
    """Suggest names for parsed functions, in their order."""
    if not isinstance(task, TokenPrediction):
        raise ValueError(f"expected a model trained on tok, got one trained on {task.kind}")
    tokens = task.vocabulary.tokens
    unknown, eos = len(tokens) - 2, len(tokens) - 1
    if isinstance(count, bool) or not hasattr(count, "__index__"):
        raise TypeError(f"expected a whole number of names, got {count!r}")
    count = operator.index(count)
    if not 1 <= count <= unknown:
        raise ValueError(f"expected 1 to {unknown} names for each function, got {count}")

    def search(batch: Batch) -> tuple[list[Any], list[Any], list[float]]:
        log_probability = task(batch).float().log_softmax(-1)
        best = best_names(log_probability, count, unknown, eos)
        surprise = name_surprise(log_probability, batch.tokens, eos)
        return best.tokens.tolist(), best.log_probability.exp().tolist(), surprise.tolist()

    out: dict[int, FunctionNames] = {}
    for places, (names, probabilities, surprises) in _results(task, functions, device, search):
        for i, place in enumerate(places):
            function = functions[place]
            suggestions = [
                Suggestion("_".join(tokens[t] for t in words if t != eos), probability)
                for words, probability in zip(names[i], probabilities[i], strict=True)
            ]
            out[place] = FunctionNames(
                function.name, function.qualified_name, function.line, suggestions, surprises[i]
            )
    return [out[place] for place in range(len(functions))]


def embed(task: CodeTask, functions: Sequence[FunctionGraph], *, device: str = "auto") -> Tensor:
    """One vector per parsed function, in their order: what the classifiers see. ``[F, C]``"""
    out = torch.empty(len(functions), task.encoder.out_channels)
    for places, vectors in _results(task, functions, device, task.encoder):
        out[places] = vectors.float().cpu()
    return out


def _results(
    task: CodeTask,
    functions: Sequence[FunctionGraph],
    device: str,
    work: Callable[[Batch], Result],
) -> Iterator[tuple[list[int], Result]]:
    """What :obj:`work` makes of batches of functions of similar depth, and which functions they
    are.

    On the CPU, each thread works on a batch of its own: the levels of a batch are too small to be
    shared by threads.
    """
    where = choose_device(device)
    task.to(where).eval()
    with (
        SINGLE_THREADS as threads,
        ThreadPoolExecutor(threads if where.type == "cpu" else 1, initializer=work_alone) as pool,
    ):
        for start in range(0, len(functions), CHUNK):
            graphs = graphs_of(functions[start : start + CHUNK], task.vocabulary, task.edges)
            order = torch.argsort(graphs.depths, stable=True).tolist()
            chunks = [order[i : i + BATCH] for i in range(0, len(order), BATCH)]

            def run(chunk: list[int], graphs: FlatGraphs = graphs) -> Result:
                schedule = task.encoder.is_recurrent
                with torch.inference_mode():
                    return work(graphs.batch(chunk, schedule=schedule, device=where))

            for chunk, result in zip(chunks, pool.map(run, chunks), strict=True):
                yield [start + place for place in chunk], result
