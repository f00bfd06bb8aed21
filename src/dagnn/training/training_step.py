"""A training step, launched kernel by kernel or replayed as a CUDA graph."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch

from dagnn.graph.padding import has_filler, sizes_of, tensors_of, with_tensors
from dagnn.training.captured_step import CapturedStep
from dagnn.training.processes import number

__all__ = ["TrainingStep", "check_clip"]


def check_clip(clip: float | None) -> None:
    """See that it is a norm: gradients clipped to less than none would go the other way."""
    if clip is not None and not (0 < clip < math.inf):
        raise ValueError(f"expected clip > 0, or None for gradients of any norm, got {clip}")


class TrainingStep:
    """The loss of a batch, its gradient, clipping and the optimizer's step, for a training loop of
    your own; on a GPU as one CUDA graph for each size of the batch, so that the host, which else
    takes longer to launch the kernels of a small model than they take to run, launches one thing.

    What a CUDA graph asks for:

    - Batches of few sizes, for a graph is recorded when a size is first seen: padded ones of
      :class:`dagnn.FlatLoader`. Their last graph is a filler. The loss leaves it out, by
      :func:`dagnn.without_filler`, and so must layers in which graphs meet: batch normalization of
      nodes by :class:`dagnn.nn.kept_rows.KeptRowsNorm`.
    - A loss that never waits for the device: no ``.item()``, no boolean masks, nothing that is
      decided in Python by values of tensors. Its Python runs while a graph is recorded, not again.
      A :class:`dagnn.DAGNN` with a fused path (see its ``repr``) is of that kind.
    - An optimizer whose learning rate alone changes from step to step, as a scheduler does it, and
      whose state, if there is any, is loaded before the first step. Saved and loaded on a CPU, it
      has to be told ``capturable=False``.
    - Parameters that are all trained, or frozen, from the first step on.
    - One process, and memory: each recorded size (:attr:`num_recorded`) keeps its batch and its
      activations. Gradients are those of the step that was recorded last.

    Losses that are not finite are not looked for, since that would wait for the device.

    Args:
        module: What is trained: its parameters and buffers.
        optimizer: Of its parameters; for captured steps :class:`torch.optim.Adam` or
            :class:`torch.optim.AdamW`.
        loss: The loss of a batch, a single number.
        clip: The largest norm of the gradient; by default any.
        bf16: Whether to compute the loss in bfloat16, by autocast. An autocast around the step
            changes nothing.
        captured: Whether steps are CUDA graphs; by default if the module is on a GPU, and there is
            one process.

    Example:
        >>> from torch_geometric.data import Data
        >>> from dagnn import DAGNN, FlatGraphs, FlatLoader, without_filler
        >>> path = Data(x=torch.ones(2, 4), edge_index=torch.tensor([[0], [1]]), y=torch.ones(1, 1))
        >>> graphs = FlatGraphs.from_data_list([path] * 6)
        >>> model = DAGNN(4, 8, out_channels=1)
        >>> def loss(batch):
        ...     out = without_filler(model(batch), batch)
        ...     return torch.nn.functional.mse_loss(out, batch.y)
        >>> step = TrainingStep(model, torch.optim.Adam(model.parameters(), lr=0.01), loss)
        >>> for batch in FlatLoader(graphs, batch_size=3, padded=step.captured):
        ...     value = step(batch)
    """

    def __init__(
        self,
        module: nn.Module,
        optimizer: torch.optim.Optimizer,
        loss: Callable[[Batch], Tensor],
        *,
        clip: float | None = None,
        bf16: bool = False,
        captured: bool | None = None,
    ) -> None:
        parameters = list(module.parameters())
        if not parameters:
            raise ValueError("expected a module with parameters to train, got one without any")
        check_clip(clip)
        own = set(map(id, parameters))
        if any(id(p) not in own for group in optimizer.param_groups for p in group["params"]):
            raise ValueError(
                "expected an optimizer of the module's parameters, got one of others, too; make it "
                "after the module is on its device: torch.optim.Adam(module.parameters())"
            )
        self._module, self._optimizer, self._loss = module, optimizer, loss
        self._clip, self._bf16 = clip, bf16
        self._device = parameters[0].device
        if captured is None:
            captured = self._device.type == "cuda" and number() == 1
        elif captured and number() > 1:
            raise ValueError(
                f"expected one process for captured steps, got {number()}; leave out captured"
            )
        changed = [*parameters, *module.buffers()]
        self._graphs = CapturedStep(changed, optimizer) if captured else None

    @property
    def captured(self) -> bool:
        """Whether steps are CUDA graphs, and batches must be padded."""
        return self._graphs is not None

    @property
    def num_recorded(self) -> int:
        """The number of CUDA graphs: one for each size that was seen."""
        return 0 if self._graphs is None else len(self._graphs)

    def __call__(self, batch: Batch) -> Tensor:
        """Take a step, and return the loss before it."""
        if self._graphs is None:
            return self._run(batch)
        if not has_filler(batch):
            raise ValueError(
                "expected a padded batch for a captured step, got one of its own size; use "
                "FlatLoader(…, padded=True), or captured=False"
            )

        def run(inputs: list[Tensor]) -> Tensor:
            return self._run(with_tensors(batch, inputs))

        key = sizes_of(batch), _other_attributes(batch), self._module.training
        # A copy, for the next step writes to the same place.
        return self._graphs(key, tensors_of(batch), run).clone()

    def _run(self, batch: Batch) -> Tensor:
        self._optimizer.zero_grad(set_to_none=True)
        kind = self._device.type
        # Of an autocast around the whole step, backward is not meant to be a part.
        with torch.autocast(kind, enabled=False):
            # Without a cache of casts, which would outlive the capture.
            with torch.autocast(kind, torch.bfloat16, enabled=self._bf16, cache_enabled=False):
                loss = self._loss(batch)
            if not isinstance(loss, Tensor) or loss.numel() != 1:
                got = list(loss.shape) if isinstance(loss, Tensor) else type(loss).__name__
                raise ValueError(f"expected a loss that is a tensor of one number, got {got}")
            loss.backward()
        if self._clip is not None:
            nn.utils.clip_grad_norm_(self._module.parameters(), self._clip)
        self._optimizer.step()
        return loss.detach()


def _other_attributes(batch: Batch) -> tuple[tuple[str, Any], ...]:
    """What a recorded step would not see change: attributes that are no tensors."""
    found = [(name, value) for name, value in batch if not isinstance(value, Tensor)]
    found = [(name, value) for name, value in found if name != "schedule"]
    for name, value in found:
        if not isinstance(value, bool | int | float | str | None):
            raise ValueError(
                f"expected tensors, numbers and words in batches for captured steps, got "
                f"{type(value).__name__} in {name!r}"
            )
    return tuple(found)
