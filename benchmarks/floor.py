"""The matrix products that a step cannot avoid, and nothing else: a lower bound on its time."""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.workloads import Workload

__all__ = ["Floor"]


class Floor:
    """A DAGNN's products as large ``mm`` calls into preallocated outputs.

    Per direction and layer: the input product over all nodes, and the recurrent product over all
    nodes with predecessors (of a gated sum also that of gates and maps, over all nodes that have
    successors), each forward, with respect to its input and to its weight. Then the linear layer
    on the pooled states, and the heads.
    """

    def __init__(self, workload: Workload, precision: str) -> None:
        a = workload.architecture
        self._device = workload.device
        self._dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        self._forward: list[tuple[Tensor, Tensor, Tensor]] = []
        self._backward: list[tuple[Tensor, Tensor, Tensor]] = []
        self.flops = {"train": 0, "infer": 0}
        schedule = workload.schedule
        nodes = schedule.num_nodes
        for d, level_ptr in enumerate(schedule.level_ptr):
            with_predecessors = nodes - int(level_ptr[1])
            with_successors = int(schedule.succ_ptr[d].diff().count_nonzero())
            for layer in range(a.layers):
                width = a.hidden if layer else a.in_channels
                wants_input = bool(layer) or a.input_gradient
                self._add(nodes, width, 3 * a.hidden, input_gradient=wants_input)
                self._add(with_predecessors, a.hidden, 3 * a.hidden)
                if a.aggregator == "gated_sum":
                    self._add(with_successors, a.hidden, 2 * a.hidden)
        pooled = a.hidden
        if a.readout_layers == "all":
            pooled = a.layers * a.hidden + a.in_channels
        if a.out_channels:
            width = schedule.num_directions * pooled
            self._add(workload.num_graphs, width, a.out_channels)
            if a.heads:
                self._add(workload.num_graphs, a.out_channels, a.heads * a.classes)

    def _add(self, rows: int, width: int, out: int, input_gradient: bool = True) -> None:
        def tensor(*shape: int) -> Tensor:
            return torch.randn(shape, device=self._device).to(self._dtype)

        x, weight, y = tensor(rows, width), tensor(out, width), tensor(rows, out)
        self._forward.append((x, weight.t(), y))
        if input_gradient:
            self._backward.append((y, weight, tensor(rows, width)))
        self._backward.append((y.t(), x, tensor(out, width)))
        flops = 2 * rows * width * out
        self.flops["infer"] += flops
        self.flops["train"] += flops * (3 if input_gradient else 2)

    @torch.no_grad()
    def train_step(self) -> None:
        for a, b, out in self._forward:
            torch.mm(a, b, out=out)
        for a, b, out in self._backward:
            torch.mm(a, b, out=out)

    @torch.no_grad()
    def infer(self) -> None:
        for a, b, out in self._forward:
            torch.mm(a, b, out=out)
