r"""One training step of an autoencoder: loss, backward, clipping, Adam.

On the CPU it runs operation by operation. On a GPU the whole step is one CUDA graph per batch
size: shapes do not depend on the graphs, and nothing is read back. Launching its hundreds of small
kernels one by one would take several times as long as running them.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from dagnn.autoencoders.vae import DagVAE, VaeLoss
from dagnn.datasets.small_dags import SmallDags
from dagnn.training import captured_step
from dagnn.training.processes import number

__all__ = ["CapturedStep", "EagerStep", "make_step"]


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

    def loss(self, graphs: SmallDags, noise: Tensor) -> VaeLoss:
        return self.model.loss(graphs, noise)

    def __call__(self, index: Tensor, noise: Tensor) -> Tensor:
        """Train on the graphs with these indices ``[B]`` and noise ``[B, latent_channels]``; the
        fields of :class:`VaeLoss`, summed over graphs. ``[3]``"""
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss(self.graphs.index_select(index), noise)
        self.backward(loss.total)
        if self.clip is not None:
            torch.nn.utils.clip_grad_norm_(self.parameters, self.clip)
        self.optimizer.step()
        return torch.stack(loss).detach()


class CapturedStep:
    """A step as one CUDA graph per batch size; see :mod:`dagnn.training.captured_step`.

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
        self._captured = captured_step.CapturedStep(self._eager.parameters, optimizer)

    def __call__(self, index: Tensor, noise: Tensor) -> Tensor:
        """As :class:`EagerStep`. The losses are overwritten by the next step."""
        return self._captured(len(index), [index, noise], lambda inputs: self._eager(*inputs))


def make_step(
    model: DagVAE,
    optimizer: torch.optim.Optimizer,
    graphs: SmallDags,
    clip: float | None = None,
    backward: Callable[[Tensor], None] = Tensor.backward,
) -> EagerStep | CapturedStep:
    """The step for the device of the data: captured on a GPU, eager elsewhere, and where several
    processes share a batch."""
    if graphs.device.type == "cuda" and number() == 1:
        return CapturedStep(model, optimizer, graphs, clip)
    return EagerStep(model, optimizer, graphs, clip, backward)
