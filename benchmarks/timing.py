"""Clocks: interleaved medians, peak memory, and a budget of time."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.models import matmul_precision

__all__ = [
    "LEAST_REPEATS",
    "Budget",
    "Runner",
    "Samples",
    "captured",
    "interleave",
    "is_cut_short",
    "milliseconds",
    "peak_bytes",
]

Key = TypeVar("Key", bound=Hashable)

LEAST_REPEATS = 3


class Budget:
    """Seconds that a run may take. What was begun is finished; nothing new is begun."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._start = time.monotonic()

    @property
    def used(self) -> float:
        return time.monotonic() - self._start

    @property
    def is_spent(self) -> bool:
        return self.used >= self.seconds


@dataclass(frozen=True)
class Runner:
    """Something to time, and the precision of its float32 products."""

    run: Callable[[], None]
    precision: str = "fp32"
    prepare: Callable[[], object] = lambda: None  # not timed: sets the model's mode
    clear: Callable[[], object] = lambda: None  # drops what a run leaves behind


@dataclass(frozen=True)
class Samples:
    """Milliseconds of each repeat."""

    values: list[float]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    def to_json(self) -> dict[str, float | int]:
        low, high = min(self.values), max(self.values)
        if len(self.values) > 1:
            low, _, high = statistics.quantiles(self.values, n=4, method="inclusive")
        return {
            "median_ms": self.median,
            "quartile_1_ms": low,
            "quartile_3_ms": high,
            "least_ms": min(self.values),
            "repeats": len(self.values),
        }


def is_cut_short(timings: Iterable[Mapping[str, Any]], repeats: int) -> bool:
    """Whether the budget ended before all had the least number of rounds."""
    return any(timing["repeats"] < min(LEAST_REPEATS, repeats) for timing in timings)


def milliseconds(run: Callable[[], object], device: torch.device, inner: int = 1) -> float:
    """The time of one call, over :obj:`inner` calls in a row."""
    if device.type == "cuda":
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize(device)
        start.record()
        for _ in range(inner):
            run()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / inner
    begin = time.perf_counter()
    for _ in range(inner):
        run()
    return (time.perf_counter() - begin) * 1e3 / inner


def captured(runner: Runner, device: torch.device) -> Runner:
    """The same as one CUDA graph, so that the host has next to nothing to do."""
    runner.prepare()
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    graph = torch.cuda.CUDAGraph()
    with matmul_precision(runner.precision):
        with torch.cuda.stream(stream):  # libraries choose and set up what they need
            for _ in range(3):
                runner.run()
        torch.cuda.current_stream(device).wait_stream(stream)
        runner.clear()
        with torch.cuda.graph(graph):
            runner.run()
    return Runner(graph.replay, runner.precision)


def interleave(
    runners: dict[Key, Runner],
    device: torch.device,
    repeats: int,
    seconds_each: float,
    budget: Budget,
) -> dict[Key, Samples]:
    """Time all runners in turns, so that a drift of the machine meets all of them alike.

    Short runs on an accelerator are repeated in a row without waiting for it, as in training.
    A runner that has used its :obj:`seconds_each` sits out later rounds.
    """
    inner, cost = {}, {}
    for key, runner in runners.items():
        runner.prepare()
        with matmul_precision(runner.precision):
            estimate = milliseconds(runner.run, device)
            if (
                estimate < 1e3 and not budget.is_spent
            ):  # the first call compiled and allocated: look again
                for _ in range(3 if device.type == "cuda" else 1):
                    estimate = milliseconds(runner.run, device)
        few = min(10, math.ceil(20 / max(estimate, 1e-3)))
        inner[key] = few if device.type == "cuda" else 1
        cost[key] = estimate * inner[key] / 1e3
    samples: dict[Key, list[float]] = {key: [] for key in runners}
    for turn in range(repeats):
        for key, runner in runners.items():
            if turn >= LEAST_REPEATS and turn * cost[key] > seconds_each:
                continue
            if turn and budget.is_spent:
                break
            runner.prepare()
            with matmul_precision(runner.precision):
                samples[key].append(milliseconds(runner.run, device, inner[key]))
    return {key: Samples(values) for key, values in samples.items()}


def peak_bytes(runner: Runner, device: torch.device) -> int:
    """The most memory that a step holds at once, beyond what lay there before it.

    On the CPU, from the allocations that PyTorch's profiler reports.
    """
    runner.prepare()
    with matmul_precision(runner.precision):
        runner.run()  # what is allocated once, such as workspaces, is not the step's
        runner.clear()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
            torch.cuda.reset_peak_memory_stats(device)
            before = torch.cuda.memory_allocated(device)
            runner.run()
            torch.cuda.synchronize(device)
            return torch.cuda.max_memory_allocated(device) - before
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
            runner.run()
    assert record.profiler is not None
    events = [e for e in record.profiler.kineto_results.events() if e.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak
