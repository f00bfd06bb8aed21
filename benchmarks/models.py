"""The models side by side: DAGNN, GCN and GIN on the same batch with the same heads, and GRU."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor, nn
from torch_geometric.nn import global_mean_pool
from torch_geometric.nn.models import GCN, GIN

from benchmarks.workloads import Workload
from dagnn import DAGNN

__all__ = [
    "BACKENDS",
    "PRECISIONS",
    "VARIANTS",
    "DAGNNTask",
    "GRUTask",
    "MPNNTask",
    "Task",
    "autocast",
    "make_dagnn",
    "matmul_precision",
    "wavefront",
]

PRECISIONS = ("fp32", "tf32", "bf16")
# Triton's layers one after the other, or two at a time, whatever the batch.
VARIANTS = {"triton-layers": "never", "triton-wave": "always"}
BACKENDS = ("reference", "cpu", "triton", *VARIANTS)


@contextmanager
def wavefront(backend: str) -> Iterator[None]:
    """What a variant of a backend asks for; without one, ``DAGNN_WAVEFRONT`` stays as it is."""
    name = "DAGNN_WAVEFRONT"
    if backend not in VARIANTS:
        yield
        return
    before = os.environ.get(name)
    os.environ[name] = VARIANTS[backend]
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


@contextmanager
def matmul_precision(precision: str) -> Iterator[None]:
    """Float32 products in full precision, or (for ``"tf32"``) in TF32; cuDNN's too."""
    products, cudnn = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(products)
        torch.backends.cudnn.allow_tf32 = cudnn


def autocast(precision: str, device: torch.device) -> AbstractContextManager[object]:
    if precision != "bf16":
        return nullcontext()
    return torch.autocast(device.type, torch.bfloat16)


def make_dagnn(
    workload: Workload, backend: str, readout: str = "max", dtype: torch.dtype = torch.float32
) -> DAGNN:
    a = workload.architecture
    model = DAGNN(
        a.in_channels,
        a.hidden,
        a.layers,
        a.out_channels,
        bidirectional=a.bidirectional,
        aggregator=a.aggregator,
        edge_types=a.edge_types,
        readout=readout,
        readout_layers=a.readout_layers,
        backend=backend.partition("-")[0],
    )
    return model.to(workload.device, dtype)


class Task(nn.Module):
    """A model, its heads and its loss on one batch."""

    def __init__(self, workload: Workload, width: int, precision: str = "fp32") -> None:
        super().__init__()
        self.precision = precision  # only "bf16" matters here, see matmul_precision for the rest
        a = workload.architecture
        self.labels = workload.labels.flatten()  # [B * heads]
        self.classes = a.classes
        # Five classifiers side by side are one product.
        self.heads = nn.Linear(width, a.heads * a.classes) if a.heads else None
        self.x = workload.x.clone().requires_grad_(a.input_gradient)
        generator = torch.Generator().manual_seed(0)
        slope = torch.randn(workload.num_graphs, width, generator=generator)
        self.slope = slope.to(workload.device) / width**0.5

    def output(self) -> Tensor:
        """One vector per graph. ``[B, width]``"""
        raise NotImplementedError

    def loss(self) -> Tensor:
        out = self.output()
        if self.heads is None:
            return (out * self.slope).sum()
        logits = self.heads(out).view(-1, self.classes)
        return nn.functional.cross_entropy(logits, self.labels)

    def clear(self) -> None:
        """Drop all gradients."""
        self.x.grad = None
        for parameter in self.parameters():
            parameter.grad = None

    def train_step(self) -> None:
        """Forward, loss, backward; no optimizer."""
        self.clear()
        with autocast(self.precision, self.x.device):
            loss = self.loss()
        loss.backward()

    @torch.no_grad()
    def infer(self) -> None:
        with autocast(self.precision, self.x.device):
            out = self.output()
            if self.heads is not None:
                self.heads(out)


class DAGNNTask(Task):
    """DAGNN with a ready schedule."""

    def __init__(
        self, workload: Workload, model: DAGNN, precision: str = "fp32", backend: str = ""
    ) -> None:
        super().__init__(workload, model.out_channels, precision)
        self.model = model
        self.backend = backend  # or a variant of it
        self.workload = workload
        self.to(workload.device)

    def output(self) -> Tensor:
        w = self.workload
        out: Tensor = self.model(
            self.x,
            edge_type=w.edge_type,
            batch=w.batch,
            schedule=w.schedule,
            batch_size=w.num_graphs,
        )
        return out

    def train_step(self) -> None:
        with wavefront(self.backend):
            super().train_step()

    def infer(self) -> None:
        with wavefront(self.backend):
            super().infer()


class MPNNTask(Task):
    """Five layers over edges and their inverses, batch normalization, mean pooling.

    Edge features are left out, which makes these baselines a little cheaper than those of the
    paper.

    PyG's GCN looks for loops among the edges in every layer, and waits for their number; with
    :obj:`given_loops` it is given them as edges, computes the same, and can be a CUDA graph.
    """

    def __init__(
        self, workload: Workload, kind: str, precision: str = "fp32", *, given_loops: bool = False
    ) -> None:
        a = workload.architecture
        hidden = min(300, a.hidden)
        width = a.out_channels or hidden
        super().__init__(workload, width, precision)
        make = {"gcn": GCN, "gin": GIN}[kind]
        options = {"add_self_loops": False} if given_loops else {}
        self.model = make(a.in_channels, hidden, num_layers=5, norm="batch_norm", **options)
        self.lin = nn.Linear(hidden, width) if width != hidden else nn.Identity()
        edge_index = workload.edge_index
        self.edge_index = torch.cat([edge_index, edge_index.flip(0)], 1)
        if given_loops:
            node = torch.arange(len(workload.x), device=workload.device)
            self.edge_index = torch.cat([self.edge_index, node.expand(2, -1)], 1)
        self.batch, self.num_graphs = workload.batch, workload.num_graphs
        self.to(workload.device)

    def output(self) -> Tensor:
        h = self.model(self.x, self.edge_index)
        out: Tensor = self.lin(global_mean_pool(h, self.batch, self.num_graphs))
        return out


class GRUTask(Task):
    """:class:`torch.nn.GRU` on the workload's chains, given as one sequence-major tensor.

    ``pair=False`` is PyTorch's own bidirectional GRU, whose layers read both directions of the
    layer below. ``pair=True`` is one GRU per direction: DAGNN's very function on a chain.
    """

    def __init__(self, workload: Workload, precision: str, pair: bool) -> None:
        a = workload.architecture
        directions = 2 if a.bidirectional else 1
        super().__init__(workload, directions * a.hidden)
        self.pair = pair
        if pair:
            models = [nn.GRU(a.in_channels, a.hidden, a.layers) for _ in range(directions)]
        else:
            models = [nn.GRU(a.in_channels, a.hidden, a.layers, bidirectional=a.bidirectional)]
        self.models = nn.ModuleList(models)
        assert workload.chain_length is not None
        x = workload.x.view(-1, workload.chain_length, a.in_channels).transpose(0, 1).contiguous()
        # Autocast would run cuDNN's GRU in float16: in bf16 the module itself is cast.
        dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        self.x = x.to(dtype).requires_grad_(a.input_gradient)  # [T, B, C]
        self.to(workload.device, dtype)

    def output(self) -> Tensor:
        if not self.pair:
            h_n = self.models[0](self.x)[1]  # [L * S, B, H]
            top = h_n[-2:] if self.models[0].bidirectional else h_n[-1:]
            return top.transpose(0, 1).flatten(1)
        inputs = [self.x, self.x.flip(0)][: len(self.models)]
        return torch.cat([gru(x)[1][-1] for gru, x in zip(self.models, inputs, strict=True)], 1)
