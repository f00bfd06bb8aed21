r"""One training step of an autoencoder: loss, backward, clipping, Adam.

On the CPU it runs operation by operation. On a GPU the whole step is one CUDA graph per batch
size: shapes do not depend on the graphs, and nothing is read back. Launching its hundreds of small
kernels one by one would take several times as long as running them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from dagnn.autoencoders.vae import DagVAE
from dagnn.datasets.small_dags import SmallDags

__all__ = ["CapturedStep", "EagerStep", "make_step"]

WARM_UP = 3  # runs before a capture, in which libraries choose and set up what they need


class EagerStep:
    """A step, operation by operation.

    Args:
        model: The autoencoder.
        optimizer: Its optimizer.
        graphs: The data set, on the model's device.
        clip: The largest norm of the gradient.
        backward: How to run backward; by default ``loss.backward()``.
    """

    def __init__(
        self,
        model: DagVAE,
        optimizer: torch.optim.Optimizer,
        graphs: SmallDags,
        clip: float | None = None,
        backward: Callable[[Tensor], None] = Tensor.backward,
    ) -> None:
        self.model, self.optimizer, self.graphs = model, optimizer, graphs
        self.clip, self.backward = clip, backward
        self.parameters = list(model.parameters())

    def loss(self, graphs: SmallDags, noise: Tensor) -> Tensor:
        return self.model.loss(graphs, noise).total

    def __call__(self, index: Tensor, noise: Tensor) -> Tensor:
        """Train on the graphs with these indices ``[B]`` and noise ``[B, latent_channels]``; the
        loss, summed over graphs. ``[]``"""
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss(self.graphs.index_select(index), noise)
        self.backward(loss)
        if self.clip is not None:
            torch.nn.utils.clip_grad_norm_(self.parameters, self.clip)
        self.optimizer.step()
        return loss.detach()


@dataclass(frozen=True)
class _Captured:
    graph: torch.cuda.CUDAGraph
    index: Tensor
    noise: Tensor
    loss: Tensor  # the same memory in every run


class CapturedStep:
    """A step as one CUDA graph, captured when a batch size is first seen.

    The optimizer is made capturable, and its learning rate becomes a tensor on the device, so
    that a change reaches the captured steps; a schedule may change or replace it between steps.

    Args:
        model: The autoencoder, on a CUDA device.
        optimizer: Its optimizer.
        graphs: The data set, on the same device.
        clip: The largest norm of the gradient.
    """

    def __init__(
        self,
        model: DagVAE,
        optimizer: torch.optim.Optimizer,
        graphs: SmallDags,
        clip: float | None = None,
    ) -> None:
        self._eager = EagerStep(model, optimizer, graphs, clip)
        self._optimizer = optimizer
        self._rates = [
            torch.tensor(float(group["lr"]), device=graphs.device)
            for group in optimizer.param_groups
        ]
        self._captured: dict[int, _Captured] = {}
        self._pool = torch.cuda.graph_pool_handle()
        for group in optimizer.param_groups:
            group["capturable"] = True

    def __call__(self, index: Tensor, noise: Tensor) -> Tensor:
        """As :class:`EagerStep`. The loss is overwritten by the next step."""
        self._follow_rates()
        captured = self._captured.get(len(index))
        if captured is None:
            captured = self._captured[len(index)] = self._capture(index, noise)
        captured.index.copy_(index)
        captured.noise.copy_(noise)
        captured.graph.replay()
        return captured.loss

    def _follow_rates(self) -> None:
        for group, rate in zip(self._optimizer.param_groups, self._rates, strict=True):
            if group["lr"] is not rate:
                rate.fill_(float(group["lr"]))
                group["lr"] = rate

    def _capture(self, index: Tensor, noise: Tensor) -> _Captured:
        index, noise = index.clone(), noise.clone()
        device = noise.device
        before = self._snapshot()
        stream = torch.cuda.Stream(device)
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP):
                self._eager(index, noise)
        torch.cuda.current_stream(device).wait_stream(stream)
        self._restore(before)
        # Gradients of the warm-up are dropped, so that the graph has its own.
        self._optimizer.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()
        # Other threads, such as one that writes logs, may use the device meanwhile.
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            loss = self._eager(index, noise)
        return _Captured(graph, index, noise, loss)

    def _snapshot(self) -> list[tuple[Tensor, Tensor]]:
        """All that a step changes, each with a copy."""
        tensors = self._eager.parameters + self._state()
        return [(tensor, tensor.detach().clone()) for tensor in tensors]

    @torch.no_grad()
    def _restore(self, before: list[tuple[Tensor, Tensor]]) -> None:
        """Undo the warm-up, in place: the graph refers to these very tensors."""
        known = {id(tensor): copy for tensor, copy in before}
        for tensor in self._eager.parameters + self._state():
            copy = known.get(id(tensor))
            if copy is None:
                tensor.zero_()  # a state that the first step made begins with zero
            else:
                tensor.copy_(copy)

    def _state(self) -> list[Tensor]:
        """Adam's: the step, and the means of gradients and squares."""
        return [
            value
            for state in self._optimizer.state.values()
            for value in state.values()
            if isinstance(value, Tensor)
        ]


def make_step(
    model: DagVAE,
    optimizer: torch.optim.Optimizer,
    graphs: SmallDags,
    clip: float | None = None,
    backward: Callable[[Tensor], None] = Tensor.backward,
) -> EagerStep | CapturedStep:
    """The step for the device of the data: captured on a GPU, eager elsewhere."""
    if graphs.device.type == "cuda":
        return CapturedStep(model, optimizer, graphs, clip)
    return EagerStep(model, optimizer, graphs, clip, backward)
