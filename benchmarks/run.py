"""Speed and memory of the DAG recurrence, as ratios measured side by side in one run."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import traceback
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
if __package__ in (None, ""):  # run as a file: the folder above is not on the path
    sys.path.insert(0, str(ROOT))

for _package in ("torch", "torch_geometric", "numba", "rich"):
    if find_spec(_package) is None:
        sys.exit(f"expected {_package} to be installed, but {sys.executable} does not have it")

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # PyTorch's profiler reports every start and end
import torch  # noqa: E402

from benchmarks.measure import Settings, measure_workload  # noqa: E402
from benchmarks.models import BACKENDS, PRECISIONS  # noqa: E402
from benchmarks.report import (  # noqa: E402
    environment,
    print_scaling,
    print_workloads,
    write_json,
)
from benchmarks.scaling import measure_path, measure_scaling  # noqa: E402
from benchmarks.timing import LEAST_REPEATS, Budget, is_cut_short  # noqa: E402
from benchmarks.workloads import WORKLOADS, make_workload  # noqa: E402

ALL = (*WORKLOADS, "scaling", "path")

EXAMPLES = """\
examples:
  python benchmarks/run.py                              all on the best device, to results/
  python benchmarks/run.py --device cpu --only ast full
  python benchmarks/run.py --device cuda --only chains --precisions bf16 --backends triton
  python benchmarks/run.py --device cuda --only full --backends triton-layers triton-wave
  python benchmarks/run.py --quick                      tiny sizes: does it run?

workloads, in the order in which they run:
""" + "\n".join(
    [f"  {name:<9} {plan.title}" for name, plan in WORKLOADS.items()]
    + [
        "  scaling   copies of a batch of syntax trees, up to 2,000,000 nodes on CUDA",
        "  path      one path of 36,123 nodes",
    ]
)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    default_device = "cuda" if torch.cuda.is_available() else "cpu"
    add("--device", choices=("cpu", "cuda"), default=default_device)
    add("--only", nargs="+", choices=ALL, metavar="WORKLOAD", help="these workloads alone")
    add("--quick", action="store_true", help="tiny sizes, for a test of the script itself")
    add("--repeats", type=int, help="timed rounds (CUDA: 20, CPU: 7)")
    add(
        "--budget",
        type=float,
        metavar="SECONDS",
        help="begin nothing new after (CUDA: 300, CPU: 1500)",
    )
    add("--seed", type=int, default=0)
    add("--threads", type=int, help="PyTorch's threads on the CPU (its own default)")
    add("--backends", nargs="+", choices=BACKENDS)
    add("--precisions", nargs="+", choices=PRECISIONS, help="on CUDA (all); the CPU has fp32")
    add("--time-failed", action="store_true", help="time backends that fail their check too")
    add(
        "--json",
        type=Path,
        metavar="FILE",
        help="the results (results/engine_DEVICE.json; with --only or --quick: none)",
    )
    options = parser.parse_args(arguments)
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("expected a CUDA device for --device cuda, but PyTorch sees none")
    on_cuda = options.device == "cuda"
    if options.precisions is None:
        options.precisions = list(PRECISIONS) if on_cuda else ["fp32"]
    elif not on_cuda and options.precisions != ["fp32"]:
        parser.error("expected --precisions fp32 on the CPU")
    if options.backends is None:
        options.backends = ["reference", "triton" if on_cuda else "cpu"]
    if options.repeats is None:
        options.repeats = 3 if options.quick else 20 if on_cuda else 7
    if options.budget is None:
        options.budget = 300.0 if on_cuda else 1500.0
    if options.json is None and not (options.only or options.quick):
        options.json = ROOT / "results" / f"engine_{options.device}.json"
    return options


def is_whole(result: dict[str, Any]) -> bool:
    """Whether nothing failed, and of every workload that was begun some backend was measured."""
    return not result["failed"] and all(of["ratios"] for of in result["workloads"].values())


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    options = parse(arguments)
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    device = torch.device(options.device)
    budget = Budget(options.budget)
    settings = Settings(
        tuple(options.backends),
        tuple(options.precisions),
        options.repeats,
        4.0 if options.device == "cuda" else 20.0,
        options.seed,
        options.time_failed,
    )
    given = sys.argv[1:] if arguments is None else arguments
    result: dict[str, Any] = {
        "command": shlex.join(["python", "benchmarks/run.py", *given]),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "config": {**vars(settings), "device": options.device, "quick": options.quick},
        "seed": options.seed,
        **environment(device),
        "workloads": {},
        "not_measured": [],
        "cut_short": [],
        "failed": {},
    }

    def save() -> None:
        result["seconds"] = round(budget.used, 1)
        if options.json is not None:
            write_json(result, options.json)

    def measure(name: str) -> None:
        if name == "path":
            result["path"] = measure_path(device, settings, options.quick)
        elif name == "scaling":
            of = "wide" if options.quick else "ast"
            family = make_workload(of, device, options.seed, options.quick)
            result["scaling"] = measure_scaling(family, settings, budget, options.quick)
        else:
            workload = make_workload(name, device, options.seed, options.quick)
            result["workloads"][name] = measure_workload(workload, settings, budget)
            if is_cut_short(result["workloads"][name]["timings"], settings.repeats):
                result["cut_short"].append(name)

    for name in [name for name in ALL if options.only is None or name in options.only]:
        if budget.is_spent:
            result["not_measured"].append(name)
            continue
        print(f"[{budget.used:6.1f} s] {name}", file=sys.stderr, flush=True)
        try:
            measure(name)
        except Exception as error:  # the other workloads are still worth their time
            result["failed"][name] = traceback.format_exc()
            print(f"{name} failed: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        save()
        if options.device == "cuda":
            torch.cuda.empty_cache()
    save()

    print_workloads(result["workloads"])
    print_scaling(result)
    if result["not_measured"]:
        print(f"not measured, since the time was used up: {', '.join(result['not_measured'])}")
    if result["cut_short"]:
        print(
            f"timed in fewer than {LEAST_REPEATS} rounds, since the time was used up, and worth "
            f"little: {', '.join(result['cut_short'])}"
        )
    if options.json is not None:
        print(f"written: {options.json}")
    return result


if __name__ == "__main__":
    sys.exit(not is_whole(main()))
