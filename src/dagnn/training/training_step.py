"""A training step, launched kernel by kernel or replayed as a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch

from dagnn.graph.padding import has_filler, sizes_of, tensors_of, with_tensors
from dagnn.training.captured_step import CapturedStep

__all__ = ["TrainingStep"]


class TrainingStep:
    """The loss of a batch, its gradient, clipping and the optimizer's step, for a training loop of
    your own; on a GPU as one CUDA graph for each size of the batch, so that the host, which else
    takes longer to launch the kernels of a small model than they take to run, launches one thing.

    A graph is recorded when a size is first seen, so batches must come in few sizes: padded ones of
    :class:`dagnn.FlatLoader`. Their last graph is a filler; the loss has to leave it out. Nothing
    in a recorded step may wait for the device: no ``.item()``, no boolean masks.
    :class:`dagnn.DAGNN` with a fused path does not, and runs in it.

    Args:
        module: What is trained: its parameters and buffers.
        optimizer: Of its parameters: Adam, or another of torch's that can be captured.
        loss: The loss of a batch.
        clip: The largest norm of the gradient; by default any.
        half: Whether to compute the loss in bfloat16, by autocast.
        captured: Whether steps are CUDA graphs; by default if the module is on a GPU.

    Example:
        >>> from torch_geometric.data import Data
        >>> from dagnn import DAGNN, FlatGraphs, FlatLoader
        >>> path = Data(x=torch.ones(2, 4), edge_index=torch.tensor([[0], [1]]), y=torch.ones(1, 1))
        >>> graphs = FlatGraphs.from_data_list([path] * 6)
        >>> model = DAGNN(4, 8, out_channels=1)
        >>> def loss(batch):
        ...     out = model(batch)[: len(batch.y)]  # without the filler
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
        half: bool = False,
        captured: bool | None = None,
    ) -> None:
        self._module, self._optimizer, self._loss = module, optimizer, loss
        self._clip, self._half = clip, half
        changed = [*module.parameters(), *module.buffers()]
        if captured is None:
            captured = changed[0].is_cuda
        self._graphs = CapturedStep(changed, optimizer) if captured else None

    @property
    def captured(self) -> bool:
        """Whether steps are CUDA graphs, and batches must be padded."""
        return self._graphs is not None

    def __call__(self, batch: Batch) -> Tensor:
        """Take a step.

        Returns:
            The loss before it; that of a captured step is overwritten by the next one.
        """
        if self._graphs is None:
            return self._run(batch)
        if not has_filler(batch):
            raise ValueError(
                "expected a padded batch for a captured step, got one of its own size; use "
                "FlatLoader(…, padded=True), or captured=False"
            )

        def run(inputs: list[Tensor]) -> Tensor:
            return self._run(with_tensors(batch, inputs))

        return self._graphs(sizes_of(batch), tensors_of(batch), run)

    def _run(self, batch: Batch) -> Tensor:
        self._optimizer.zero_grad(set_to_none=True)
        kind = batch.batch.device.type
        # Of an autocast around the whole step, backward is not meant to be a part.
        with torch.autocast(kind, enabled=False):
            # Without a cache of casts, which would outlive the capture.
            with torch.autocast(kind, torch.bfloat16, enabled=self._half, cache_enabled=False):
                loss = self._loss(batch)
            loss.backward()
        if self._clip is not None:
            nn.utils.clip_grad_norm_(self._module.parameters(), self._clip)
        self._optimizer.step()
        return loss.detach()
