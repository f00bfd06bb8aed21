"""What a result is worth nothing without: its config, versions, hardware, commit and time."""

from __future__ import annotations

import json
import math
import os
import platform
import statistics
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from dagnn.training.checkpoints import write_atomically
from dagnn.training.processes import number

__all__ = ["median_time", "origin", "origins_of", "run_record", "write_json"]

PACKAGES = ("dagnn", "torch", "torch_geometric", "lightning", "numpy", "triton")


def run_record(
    config: Mapping[str, Any],
    metrics: Mapping[str, Any],
    *,
    seed: int,
    seconds: float,
    data: Mapping[str, Any],
    origins: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """A result and what led to it, as it stands in a JSON file: what is at work here, and under
    ``earlier`` where else, or by which other code, it was trained.

    Args:
        config: What was run.
        metrics: What came out.
        seed: Of all that was random.
        seconds: How long it took.
        data: The name and the fingerprint of the data.
        origins: Of the training, such as those of :class:`dagnn.training.FitResult`.
    """
    here = origin()
    earlier = [dict(other) for other in origins if other != here]
    return {
        "config": dict(config),
        "seed": seed,
        "metrics": dict(metrics),
        "data": dict(data),
        "seconds": round(seconds, 3),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        **here,
        **({"earlier": earlier} if earlier else {}),
    }


def origin() -> dict[str, Any]:
    """What is at work here: ``commit``, ``versions`` and ``hardware``."""
    return {
        "commit": _commit_of(Path(__file__)),
        "versions": {"python": platform.python_version(), **_versions()},
        "hardware": _hardware(),
    }


def origins_of(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """All that were at work on a record, the last one last."""
    last = {name: record[name] for name in ("commit", "versions", "hardware")}
    return [*record.get("earlier", []), last]


def median_time(history: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """``train_seconds``, the median over the epochs whose time is known and that had their device
    to themselves, if there are any."""
    alone = (row for row in history if not row.get("shared"))
    times = [row["train_seconds"] for row in alone if "train_seconds" in row]
    return {"train_seconds": statistics.median(times)} if times else {}


def write_json(path: str | os.PathLike[str], value: Any) -> None:
    """Write a JSON file; it appears only when it is complete.

    Raises:
        ValueError: If a number in it is not finite: JSON has no word for that.
    """
    bad = ", ".join(f"{number} in {place}" for place, number in _non_finite(value))
    if bad:
        raise ValueError(f"expected finite numbers for {os.fspath(path)}, got {bad}")
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=2) + "\n"
    write_atomically(path, lambda file: file.write(text.encode()))


def _non_finite(value: Any, place: str = "") -> Iterator[tuple[str, float]]:
    """The numbers that are not finite, and where they are, as ``metrics.f1``."""
    if isinstance(value, float) and not math.isfinite(value):
        yield place or "the value", value
    elif isinstance(value, Mapping | list | tuple):
        inside = value.items() if isinstance(value, Mapping) else enumerate(value)
        for key, item in inside:
            yield from _non_finite(item, f"{place}.{key}" if place else str(key))


def _versions() -> dict[str, str]:
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:  # such as triton, where there is no GPU
            continue
    return versions


def _hardware() -> dict[str, Any]:
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "gpu": gpu,
        "processes": number(),
    }


def _commit_of(file: Path) -> str | None:
    """The commit of the repository that has a file, with a mark if files differ from it."""

    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", *words],
            cwd=file.parent,
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
        return done.stdout.strip()

    try:
        # Installed, it may lie in a repository that knows nothing of it, as in somebody's .venv.
        git("ls-files", "--error-unmatch", file.name)
        return git("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
    except (OSError, subprocess.SubprocessError):  # no git, no repository, or not its own
        return None
