"""How many functions a second get a name, or a vector: read, parsed, through the model.

The model has the sizes of ``dagnn train tok`` (its default, or with ``--preset paper`` the paper's)
and random weights, which take as long as trained ones. Functions are those of a folder of Python
files, by default an installed package.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
if __package__ in (None, ""):  # run as a file: the folder above is not on the path
    sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

from benchmarks.report import environment, write_json  # noqa: E402
from dagnn.cli.function_files import read_functions  # noqa: E402
from dagnn.datasets.code_vocabulary import CodeVocabulary  # noqa: E402
from dagnn.datasets.functions import NODE_TYPES  # noqa: E402
from dagnn.tasks import naming  # noqa: E402
from dagnn.tasks.code_protocol import PRESETS, preset  # noqa: E402
from dagnn.tasks.token_prediction import TokenPrediction  # noqa: E402

NUM_ATTRIBUTES, NUM_TOKENS = 10_000, 5_000  # as those of a real vocabulary


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--folder", type=Path, metavar="DIR", help="of Python files (the package networkx)")
    add("--preset", choices=PRESETS, default="quick", help="whose sizes the model has")
    add("--repeats", type=int, default=3)
    add("--json", type=Path, metavar="FILE", help="where the result goes")
    return parser.parse_args(arguments)


def make_task(name: str) -> TokenPrediction:
    run = preset(name, "tok", "dagnn")
    attributes = {f"attribute{i}": 1 for i in range(NUM_ATTRIBUTES)}
    tokens = {f"token{i}": 1 for i in range(NUM_TOKENS)}
    torch.manual_seed(0)
    vocabulary = CodeVocabulary.of(NODE_TYPES, attributes, tokens)
    return TokenPrediction(run.encoder, vocabulary, edges=run.edges).eval()


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    options = parse(arguments)
    folder = options.folder
    if folder is None:
        spec = find_spec("networkx")
        assert spec is not None, "dagnn needs networkx"
        assert spec.origin is not None
        folder = Path(spec.origin).parent
    task = make_task(options.preset)

    def functions() -> list[Any]:
        return read_functions([str(folder)])[1]

    found = functions()  # also warms up
    nodes = sum(len(function) for function in found)
    naming.embed(task, found[:256], device="cpu")  # compiles
    works = {
        "parse": functions,
        "name": lambda: naming.name(task, functions(), count=3, device="cpu"),
        "embed": lambda: naming.embed(task, functions(), device="cpu"),
    }
    times = {name: [seconds(work) for _ in range(options.repeats)] for name, work in works.items()}
    result = {
        "command": ["benchmarks/naming.py", *(sys.argv[1:] if arguments is None else arguments)],
        **environment(torch.device("cpu")),
        "model": {"preset": options.preset, "channels": task.encoder.config.channels},
        "folder": folder.name,
        "functions": len(found),
        "nodes_a_function": round(nodes / len(found), 1),
        "seconds": times,
        "functions_a_second": {
            name: round(len(found) / statistics.median(of), 1) for name, of in times.items()
        },
    }
    if options.json is not None:
        write_json(result, options.json)
    print(f"{len(found):,} functions of {folder.name}, {result['nodes_a_function']} nodes each")
    for name, speed in result["functions_a_second"].items():
        print(f"{name:<6} {speed:,.0f} functions a second")
    return result


if __name__ == "__main__":
    main()
