"""How cost grows with size: many nodes, and a path as deep as they come."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.checks import BARS, largest
from benchmarks.measure import Settings
from benchmarks.models import matmul_precision, wavefront
from benchmarks.timing import Budget, Runner, Samples, milliseconds, peak_bytes
from benchmarks.workloads import Workload, copies, fingerprint, path
from dagnn import DAGNN, LevelSchedule

__all__ = ["measure_path", "measure_scaling"]

PATH_NODES = 36_123
CUDA_SIZES = (62_500, 125_000, 250_000, 500_000, 1_000_000, 2_000_000)
CPU_SIZES = (5_000, 10_000, 20_000, 40_000, 80_000)
QUICK_SIZES = (500, 1_000, 2_000)


def measure_scaling(
    workload: Workload, settings: Settings, budget: Budget, quick: bool
) -> dict[str, Any]:
    """A training step on more and more copies of one batch of code graphs.

    Models smaller than that of the other workloads, so that 2,000,000 nodes fit into the memory:
    64 wide with 2 layers, and (on an accelerator) 300 wide with 1 layer.
    """
    device = workload.device
    sizes = QUICK_SIZES if quick else CUDA_SIZES if device.type == "cuda" else CPU_SIZES
    shapes = [(64, 2)] if quick or device.type == "cpu" else [(64, 2), (300, 1)]
    backend, precision = _fastest(settings)
    series = []
    for hidden, layers in shapes:
        torch.manual_seed(settings.seed)
        name = backend.partition("-")[0]
        model = DAGNN(hidden, hidden, layers, bidirectional=True, edge_types=2, backend=name)
        model.to(device)
        points, stopped = [], None
        for nodes in sizes:
            if budget.is_spent:
                stopped = "the time was used up"
                break
            try:
                with matmul_precision(precision), wavefront(backend):
                    points.append(_one_size(workload, model, hidden, nodes, precision, settings))
            except RuntimeError as error:
                stopped = f"{type(error).__name__}: {str(error)[:300]}"
                break
            finally:
                model.zero_grad(set_to_none=True)
                if device.type == "cuda":
                    torch.cuda.empty_cache()
        series.append(
            {
                "hidden": hidden,
                "layers": layers,
                "backend": backend,
                "precision": precision,
                "points": points,
                "stopped": stopped,
                **_growth(points),
            }
        )
    return {"of": workload.name, "series": series}


def _fastest(settings: Settings) -> tuple[str, str]:
    fused = [backend for backend in settings.backends if backend != "reference"]
    precision = "tf32" if "tf32" in settings.precisions else settings.precisions[0]
    return (fused[0] if fused else "reference"), precision


def _one_size(
    workload: Workload,
    model: DAGNN,
    hidden: int,
    nodes: int,
    precision: str,
    settings: Settings,
) -> dict[str, Any]:
    device = workload.device
    data = copies(workload.graphs, nodes).to(device)
    schedule = LevelSchedule.from_data(data)
    x = torch.randn(data.num_nodes, hidden, device=device, requires_grad=True)

    def clear() -> None:
        x.grad = None
        model.zero_grad(set_to_none=True)

    def step() -> None:
        clear()
        out = model(
            x,
            edge_type=data.edge_type,
            batch=data.batch,
            schedule=schedule,
            batch_size=data.num_graphs,
        )
        out.square().mean().backward()

    step()
    values = [milliseconds(step, device) for _ in range(min(settings.repeats, 5))]
    samples = Samples(values)
    assert x.grad is not None
    if not bool(x.grad.isfinite().all()):
        raise RuntimeError(f"the gradient at {data.num_nodes} nodes is not finite")
    point: dict[str, Any] = {
        "nodes": data.num_nodes,
        "edges": data.num_edges,
        **samples.to_json(),
        "ns_per_node": samples.median * 1e6 / data.num_nodes,
        "schedule_ms": milliseconds(lambda: LevelSchedule.from_data(data), device),
    }
    if device.type == "cuda":
        point["peak_bytes"] = peak_bytes(Runner(step, precision, clear=clear), device)
        point["bytes_per_node"] = point["peak_bytes"] / data.num_nodes
    return point


def _growth(points: list[dict[str, Any]]) -> dict[str, float | None]:
    """The slope of log(time) over log(nodes), over all sizes and over the two largest."""
    logs = [(math.log(p["nodes"]), math.log(p["median_ms"])) for p in points]
    if len(logs) < 2:
        return {"exponent": None, "exponent_at_the_end": None}
    mean_x, mean_y = (sum(column) / len(logs) for column in zip(*logs, strict=True))
    slope = sum((x - mean_x) * (y - mean_y) for x, y in logs)
    slope /= sum((x - mean_x) ** 2 for x, _ in logs)
    (x0, y0), (x1, y1) = logs[-2:]
    return {"exponent": slope, "exponent_at_the_end": (y1 - y0) / (x1 - x0)}


def measure_path(device: torch.device, settings: Settings, quick: bool) -> dict[str, Any]:
    """One training step on one very long path, checked against :class:`torch.nn.GRU`.

    On a path, a layer is a GRU over the sequence; float64 makes it an exact oracle.
    """
    length, hidden = (300, 16) if quick else (PATH_NODES, 64)
    backend, precision = _fastest(settings)
    data = path(length).to(device)
    schedule = LevelSchedule.from_data(data, reverse=False)
    torch.manual_seed(settings.seed)
    model = DAGNN(
        hidden, hidden, 1, backend=backend.partition("-")[0], readout="mean",
        readout_nodes="all", readout_layers="last",
    ).to(device)  # fmt: skip
    x = torch.randn(length, hidden, device=device, requires_grad=True)

    def step() -> Tensor:
        x.grad = None
        model.zero_grad(set_to_none=True)
        out: Tensor = model(x, schedule=schedule)
        out.sum().backward()
        return out

    with matmul_precision(precision):
        first = milliseconds(step, device)
        again = [first] if first > 10e3 else [milliseconds(step, device) for _ in range(3)]
        out = step()

    gru = nn.GRU(hidden, hidden).to(device, torch.float64)
    cell = model.forward_layers[0].cell
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    for name in names:
        getattr(gru, f"{name}_l0").data.copy_(getattr(cell, name).data)
    exact_x = x.detach().double().requires_grad_()
    exact_out = gru(exact_x.unsqueeze(1))[0].mean(0)
    exact_out.sum().backward()
    assert x.grad is not None
    assert exact_x.grad is not None
    pairs = [(out, exact_out), (x.grad, exact_x.grad)]
    pairs += [(getattr(cell, name).grad, getattr(gru, f"{name}_l0").grad) for name in names]
    with torch.no_grad():
        error = largest([float((a.double() - b).norm() / b.norm()) for a, b in pairs])
    return {
        "nodes": length,
        "levels": schedule.num_levels,
        "hidden": hidden,
        "layers": 1,
        "bidirectional": False,
        "backend": backend,
        "precision": precision,
        **Samples(again).to_json(),
        "error": error,
        "bar": BARS[precision],
        "passed": error < BARS[precision],
        "fingerprint": fingerprint(data.edge_index),
    }
