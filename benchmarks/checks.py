"""Outputs and every gradient against the float64 reference, before anything is timed."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmarks.models import DAGNNTask, autocast, make_dagnn, matmul_precision, wavefront
from benchmarks.workloads import Workload

__all__ = ["BARS", "Check", "Oracle", "largest"]

# Relative error, in the norm of each tensor, that a backend must stay under.
BARS = {"fp32": 1e-5, "tf32": 1e-3, "bf16": 1e-2}

# A gradient this small beside all others together is zero but for float64's own rounding: its
# error is measured against the norm of all others.
ZERO = 1e-12


@dataclass(frozen=True)
class Check:
    """How far a backend is from float64."""

    backend: str
    precision: str
    output_error: float
    gradient_error: float  # the largest of all gradients
    worst_gradient: str
    gradient_errors: dict[str, float]

    @property
    def error(self) -> float:
        return largest([self.output_error, self.gradient_error])

    @property
    def bar(self) -> float:
        return BARS[self.precision]

    @property
    def passed(self) -> bool:
        # Never true for NaN.
        return self.output_error < self.bar and self.gradient_error < self.bar

    def to_json(self) -> dict[str, object]:
        return {**vars(self), "bar": self.bar, "passed": self.passed}


@dataclass(frozen=True)
class _Results:
    outputs: list[Tensor]
    gradients: dict[str, Tensor]


class Oracle:
    """The float64 reference on one workload, with one set of parameters.

    Gradients are compared through a mean readout. The maximum is not differentiable where two
    nodes tie, and a rounding error that swaps the winner moves a whole gradient to another node:
    that would measure the readout, which is the same for all backends. For the same reason the
    linear map after it, which is PyTorch's, is never in half precision there: around an exact
    recurrence it alone moves an attention's edge weights by 3e-3 to 2e-2, by the seed. Outputs are
    compared through both readouts, and through the map as it is timed.
    """

    def __init__(self, workload: Workload, seed: int) -> None:
        self.workload = workload
        torch.manual_seed(seed)
        self.state = make_dagnn(workload, "reference").state_dict()
        generator = torch.Generator().manual_seed(seed)
        width = make_dagnn(workload, "reference").out_channels
        slope = torch.randn(workload.num_graphs, width, generator=generator)
        self._slope = slope.to(workload.device)
        self._expected = self._run("reference", "fp64")

    def check(self, backend: str, precision: str) -> Check:
        with matmul_precision(precision), wavefront(backend):
            found = self._run(backend, precision)
        pairs = zip(found.outputs, self._expected.outputs, strict=True)
        output_error = largest([_relative_error(a, b, _norm([b])) for a, b in pairs])
        expected = self._expected.gradients
        total = _norm(list(expected.values()))
        errors = {}
        for name, gradient in expected.items():
            norm = _norm([expected[other] for other in _measured_together(name, expected)])
            scale = total if norm < ZERO * total else norm
            errors[name] = _relative_error(found.gradients[name], gradient, scale)
        worst = max(errors, key=lambda name: (math.isnan(errors[name]), errors[name]))
        return Check(backend, precision, output_error, errors[worst], worst, errors)

    def _run(self, backend: str, precision: str) -> _Results:
        dtype = torch.float64 if precision == "fp64" else torch.float32
        device = self.workload.device
        tasks = []
        for readout in ("mean", "max"):
            model = make_dagnn(self.workload, backend, readout, dtype)
            model.load_state_dict(self.state)
            task = DAGNNTask(self.workload, model)
            task.x = task.x.detach().to(dtype).requires_grad_(task.x.requires_grad)
            tasks.append(task)
        smooth, timed = tasks
        if (linear := smooth.model.lin) is not None:
            linear.forward = torch.autocast(device.type, enabled=False)(linear.forward)
        with autocast(precision, device):
            out = smooth.output()
            with torch.no_grad():
                outputs = [out.detach(), timed.output()]
        (out.to(dtype) * self._slope.to(dtype)).sum().backward()
        gradients = {
            name: torch.zeros_like(p) if p.grad is None else p.grad
            for name, p in smooth.model.named_parameters()
        }
        if smooth.x.grad is not None:
            gradients["x"] = smooth.x.grad
        return _Results(outputs, gradients)


def _measured_together(name: str, gradients: dict[str, Tensor]) -> list[str]:
    """The gradients whose common norm an error is measured against.

    A gradient stands for itself, but those of one attention's parameters stand together. They are
    all sums of the scores' gradients, which cancel within each softmax: the query's is exactly
    zero, and that of a few edge types is small beside its own terms, and so beside their rounding.
    """
    layer, found, _ = name.partition(".aggregator.")
    owner = layer + found
    if not found or f"{owner}key.weight" not in gradients:
        return [name]
    return [other for other in gradients if other.startswith(owner)]


def _norm(tensors: list[Tensor]) -> float:
    return float(torch.stack([tensor.norm() for tensor in tensors]).norm())


def largest(errors: list[float]) -> float:
    """The maximum; NaN is the largest error of all."""
    return max(errors, key=lambda error: (math.isnan(error), error))


def _relative_error(found: Tensor, expected: Tensor, scale: float) -> float:
    difference = float((found.double() - expected.double()).norm())
    return difference / scale if scale else difference
