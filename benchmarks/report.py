"""What a run says about itself, its JSON, and its tables."""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

__all__ = ["environment", "print_scaling", "print_workloads", "write_json"]

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("torch", "triton", "torch_geometric", "numpy", "numba")


def environment(device: torch.device) -> dict[str, Any]:
    """Versions, hardware and commit: what a number needs to be quoted."""
    return {
        "versions": {
            "python": platform.python_version(),
            **{name: _version(name) for name in PACKAGES},
            "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version() if device.type == "cuda" else None,
        },
        "hardware": {
            "device": torch.cuda.get_device_name(device) if device.type == "cuda" else _cpu_name(),
            "cpu": _cpu_name(),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
        },
        "commit": _git("rev-parse", "HEAD"),
        "uncommitted_changes": bool(_git("status", "--porcelain", "--untracked-files=no")),
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def write_json(result: dict[str, Any], path: Path) -> None:
    """Write to a temporary file, then rename: a killed run leaves the last whole state."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(_finite(result), indent=1, ensure_ascii=False, allow_nan=False)
    with tempfile.NamedTemporaryFile(
        "w", dir=path.parent, prefix=path.name, delete=False, encoding="utf-8"
    ) as file:
        file.write(text + "\n")
    os.chmod(file.name, 0o644)
    os.replace(file.name, path)


def _finite(value: Any) -> Any:
    """JSON has no NaN: say it in words."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _console() -> Console:
    # In a log, wide enough for all columns.
    return Console(width=None if sys.stdout.isatty() else 160)


def _number(value: float | None, digits: int = 2) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _milliseconds(value: float) -> str:
    return f"{value:.3f}" if value < 10 else f"{value:.1f}"


def print_workloads(workloads: dict[str, dict[str, Any]]) -> None:
    """One row per workload and model."""
    table = Table(title="Training step and inference, and ratios of the training step")
    for name in ("workload", "model", "precision"):
        table.add_column(name, no_wrap=True)
    for name in (
        "train ms", "infer ms", "/ GCN-5", "captured", "/ floor", "/ GRU", "/ reference",
        "infer / train", "build / train", "memory / ref.", "max error",
    ):  # fmt: skip
        table.add_column(name, justify="right")
    for name, result in workloads.items():
        table.add_section()
        ratios = {(r["model"], r["precision"]): r for r in result["ratios"]}
        for key, phases in _by_model(result["timings"]).items():
            train, infer = phases["train"], phases["infer"]
            ratio = ratios.get(key)
            row = [name, *key, _milliseconds(train), _milliseconds(infer)]
            if ratio is not None:
                mark = "" if ratio["passed"] else " !"
                row += [
                    _number(ratio["train_over_gcn"]),
                    _number(ratio["captured_over_gcn"]),
                    _number(ratio["train_over_floor"]),
                    _number(ratio["train_over_gru"]),
                    _number(ratio["train_over_reference"], 3),
                    _number(ratio["infer_over_train"]),
                    _number(ratio["build_over_train"], 3),
                    _number(ratio["memory_over_reference"]),
                    f"{max(ratio['output_error'], ratio['gradient_error']):.0e}{mark}",
                ]
            table.add_row(*row)
    console = _console()
    console.print(table)
    for name, result in workloads.items():
        console.print(
            f"{name}: {result['title']}; {result['graphs']} graphs, {result['nodes']:,} nodes, "
            f"{result['edges']:,} edges, {result['levels']} levels, "
            f"{result['floor_gflop']['train']:.1f} GFLOP in the floor of a training step",
            highlight=False,
        )
        for refusal in result["refused"]:
            console.print(
                f"  {refusal['model']} in {refusal['precision']}: {refusal['reason']}",
                style="red",
                markup=False,
                highlight=False,
            )


def _by_model(timings: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, float]]:
    rows: dict[tuple[str, str], dict[str, float]] = {}
    for timing in timings:
        row = rows.setdefault((timing["model"], timing["precision"]), {})
        row[timing["phase"]] = timing["median_ms"]
    return {key: row for key, row in rows.items() if {"train", "infer"} <= row.keys()}


def print_scaling(result: dict[str, Any]) -> None:
    console = _console()
    if "scaling" in result:
        table = Table(title=f"Growth: a training step on copies of {result['scaling']['of']!r}")
        for name in ("model", "nodes", "edges", "ms", "ns / node", "bytes / node"):
            table.add_column(name, justify="left" if name == "model" else "right")
        for series in result["scaling"]["series"]:
            table.add_section()
            name = (
                f"{series['backend']}, {series['precision']}, hidden {series['hidden']}, "
                f"{series['layers']} layers"
            )
            for point in series["points"]:
                table.add_row(
                    name,
                    f"{point['nodes']:,}",
                    f"{point['edges']:,}",
                    _milliseconds(point["median_ms"]),
                    _number(point["ns_per_node"], 1),
                    _number(point.get("bytes_per_node"), 0),
                )
        console.print(table)
        for series in result["scaling"]["series"]:
            console.print(
                f"hidden {series['hidden']}: time grows as nodes to the power of "
                f"{_number(series['exponent'])}, between the two largest sizes "
                f"{_number(series['exponent_at_the_end'])}"
                + (f"; stopped: {series['stopped']}" if series["stopped"] else ""),
                highlight=False,
            )
    if "path" in result:
        p = result["path"]
        verdict = "below" if p["passed"] else "NOT below"
        console.print(
            f"path of {p['nodes']:,} nodes, hidden {p['hidden']}, {p['backend']}, "
            f"{p['precision']}: training step {_milliseconds(p['median_ms'])} ms, error "
            f"{p['error']:.0e} of torch.nn.GRU in float64, {verdict} {p['bar']:.0e}",
            highlight=False,
        )
