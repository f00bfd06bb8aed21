"""Everything that is measured on one workload."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch_geometric.data import Batch

from benchmarks.checks import Check, Oracle
from benchmarks.floor import Floor
from benchmarks.models import VARIANTS, DAGNNTask, GRUTask, MPNNTask, Task, make_dagnn
from benchmarks.timing import (
    Budget,
    Runner,
    Samples,
    captured,
    interleave,
    milliseconds,
    peak_bytes,
)
from benchmarks.workloads import Workload
from dagnn import LevelSchedule
from dagnn.graph.flat import FlatGraphs

__all__ = ["Settings", "measure_workload"]

# Timed as CUDA graphs too.
CAPTURED = ("dagnn/triton", *(f"dagnn/{variant}" for variant in VARIANTS), "gcn", "gin")


@dataclass(frozen=True)
class Settings:
    backends: tuple[str, ...]
    precisions: tuple[str, ...]
    repeats: int
    seconds_each: float  # after which a slow model is not repeated more often
    seed: int
    time_failed: bool  # time a backend that fails its check too


class _Key(NamedTuple):
    model: str
    precision: str
    phase: str


def measure_workload(workload: Workload, settings: Settings, budget: Budget) -> dict[str, Any]:
    """Check, then time, then memory; a JSON object."""
    result: dict[str, Any] = {**workload.summary(), "checks": [], "refused": []}
    oracle = Oracle(workload, settings.seed)
    tasks: dict[tuple[str, str], Task | Floor] = {}
    for backend, precision in _pairs(settings):
        try:
            check = oracle.check(backend, precision)
        except Exception as error:  # a backend that cannot run is reported, and the run goes on
            result["refused"].append(_refusal(backend, precision, _describe(error)))
            continue
        result["checks"].append(check.to_json())
        # The eager reference is the yardstick, not a candidate: it is timed whatever its error.
        if not (check.passed or backend == "reference" or settings.time_failed):
            result["refused"].append(_refusal(backend, precision, _describe_failure(check)))
            continue
        model = make_dagnn(workload, backend)
        model.load_state_dict(oracle.state)
        tasks[_model_name(backend), precision] = DAGNNTask(workload, model, precision, backend)
    del oracle
    result["refused"] += _add_baselines(tasks, workload, settings)

    samples = _time(tasks, workload, settings, budget, result)
    result["timings"] = [
        {**key._asdict(), **sample.to_json()} for key, sample in samples.items() if sample.values
    ]
    result["memory"] = _memory(tasks, workload.device, budget)
    result["build"] = _time_building(workload, settings)
    result["floor_gflop"] = {
        phase: flop / 1e9
        for phase, flop in next(t for t in tasks.values() if isinstance(t, Floor)).flops.items()
    }
    result["ratios"] = _ratios(result)
    return result


def _pairs(settings: Settings) -> Iterator[tuple[str, str]]:
    for precision in settings.precisions:
        for backend in settings.backends:
            yield backend, precision


def _model_name(backend: str) -> str:
    return f"dagnn/{backend}"


def _refusal(backend: str, precision: str, reason: str) -> dict[str, str]:
    return {"model": _model_name(backend), "precision": precision, "reason": reason}


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip()[:500]}"


def _describe_failure(check: Check) -> str:
    return (
        f"not timed: relative error {check.output_error:.1e} of the output and "
        f"{check.gradient_error:.1e} of the gradient of {check.worst_gradient}, "
        f"expected below {check.bar:.0e}"
    )


def _add_baselines(
    tasks: dict[tuple[str, str], Task | Floor], workload: Workload, settings: Settings
) -> list[dict[str, str]]:
    refused = []
    for precision in settings.precisions:
        torch.manual_seed(settings.seed)
        for kind in ("gcn", "gin"):
            tasks[kind, precision] = MPNNTask(workload, kind, precision)
        tasks["floor", precision] = Floor(workload, precision)
        if workload.chain_length is None:
            continue
        for name, pair in (("gru", False), ("gru_pair", True)):
            try:
                task = GRUTask(workload, precision, pair)
                task.train_step()
            except RuntimeError as error:  # not every cuDNN has a GRU in bfloat16
                refused.append({"model": name, "precision": precision, "reason": _describe(error)})
            else:
                tasks[name, precision] = task
    return refused


def _time(
    tasks: dict[tuple[str, str], Task | Floor],
    workload: Workload,
    settings: Settings,
    budget: Budget,
    result: dict[str, Any],
) -> dict[_Key, Samples]:
    device = workload.device
    runners = {}
    still = {}  # what CUDA graphs refer to
    for (model, precision), task in tasks.items():
        for phase, runner in _runners(task, precision).items():
            runners[_Key(model, precision, phase)] = runner
        if device.type == "cuda" and model in CAPTURED:
            if model == "gcn":
                task = MPNNTask(workload, model, precision, given_loops=True)
            still[model, precision] = task
            for phase, runner in _runners(task, precision).items():
                runners[_Key(model, precision, f"{phase}_captured")] = captured(runner, device)
    start = time.monotonic()
    samples = interleave(runners, device, settings.repeats, settings.seconds_each, budget)
    result["timing_seconds"] = time.monotonic() - start
    for task in (*tasks.values(), *still.values()):
        if isinstance(task, Task):
            task.clear()
    return samples


def _runners(task: Task | Floor, precision: str) -> dict[str, Runner]:
    train = Runner(task.train_step, precision)
    infer = Runner(task.infer, precision)
    if isinstance(task, Task):
        train = replace(train, prepare=task.train, clear=task.clear)
        infer = replace(infer, prepare=task.eval)
    return {"train": train, "infer": infer}


def _memory(
    tasks: dict[tuple[str, str], Task | Floor], device: torch.device, budget: Budget
) -> list[dict[str, object]]:
    rows = []
    for (model, precision), task in tasks.items():
        if isinstance(task, Task) and not budget.is_spent:
            runner = Runner(task.train_step, precision, task.train, task.clear)
            peak = peak_bytes(runner, device)
            task.clear()
            rows.append({"model": model, "precision": precision, "peak_bytes": peak})
    return rows


def _time_building(workload: Workload, settings: Settings) -> dict[str, object]:
    """A batch with its schedule, from flat tensors and from PyG's ``Data`` with stored levels."""
    device, reverse = workload.device, workload.architecture.bidirectional
    flat = FlatGraphs.from_data_list(workload.graphs).to(device)
    indices = list(range(len(flat)))

    def collate() -> Batch:
        return Batch.from_data_list(workload.graphs).to(device)

    batch = collate()
    makers: dict[str, Callable[[], object]] = {
        "flat": lambda: flat.batch(indices, schedule=True),
        "collate": collate,
        "schedule": lambda: LevelSchedule.from_data(batch, reverse=reverse),
    }
    samples: dict[str, list[float]] = {name: [] for name in makers}
    for _ in range(1 + settings.repeats):
        for name, make in makers.items():
            samples[name].append(milliseconds(make, device))
    return {name: Samples(values[1:]).to_json() for name, values in samples.items()}


def _ratios(result: dict[str, Any]) -> list[dict[str, object]]:
    """Per DAGNN backend and precision, its training step beside everything else's."""
    medians = {
        _Key(t["model"], t["precision"], t["phase"]): t["median_ms"] for t in result["timings"]
    }
    memory = {(m["model"], m["precision"]): m["peak_bytes"] for m in result["memory"]}
    errors = {(_model_name(c["backend"]), c["precision"]): c for c in result["checks"]}
    build = result["build"]["flat"]["median_ms"]
    rows = []
    for (model, precision), check in errors.items():
        train = medians.get(_Key(model, precision, "train"))
        if train is None:
            continue
        infer = medians[_Key(model, precision, "infer")]

        def over(
            name: str, phase: str = "train", own: float = train, precision: str = precision
        ) -> float | None:
            other = medians.get(_Key(name, precision, phase))
            return None if other is None else own / other

        gru = [r for r in (over("gru"), over("gru_pair")) if r is not None]
        replayed = medians.get(_Key(model, precision, "train_captured"))
        replayed_infer = medians.get(_Key(model, precision, "infer_captured"))
        peak = memory.get((model, precision))
        reference_peak = memory.get(("dagnn/reference", precision))
        rows.append(
            {
                "model": model,
                "precision": precision,
                "train_ms": train,
                "infer_ms": infer,
                "train_over_gcn": over("gcn"),
                "train_over_gin": over("gin"),
                "train_over_floor": over("floor"),
                "train_over_gru": max(gru, default=None),  # against the faster one
                "train_over_reference": over("dagnn/reference"),
                "infer_over_train": infer / train,
                "captured_ms": replayed,
                "captured_over_gcn": replayed and over("gcn", own=replayed),
                "captured_over_captured_gcn": replayed
                and over("gcn", "train_captured", own=replayed),
                "captured_over_captured_gin": replayed
                and over("gin", "train_captured", own=replayed),
                "captured_infer_over_train": replayed
                and replayed_infer
                and replayed_infer / replayed,
                "infer_over_gcn": over("gcn", "infer", infer),
                "infer_over_floor": over("floor", "infer", infer),
                "infer_over_reference": over("dagnn/reference", "infer", infer),
                "build_over_train": build / train,
                "memory_over_reference": peak / reference_peak if peak and reference_peak else None,
                "output_error": check["output_error"],
                "gradient_error": check["gradient_error"],
                "passed": check["passed"],
            }
        )
    return rows
