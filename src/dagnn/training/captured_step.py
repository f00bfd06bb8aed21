"""Whole training steps as CUDA graphs, one per size of the batch.

Launching the hundreds of small kernels of a step one by one often takes longer than running them;
a CUDA graph is one launch. It asks for sizes that are known beforehand, tensors that stay where
they are, and a step that never waits for the device.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

__all__ = ["CapturedStep"]

# Captures of several threads, and whatever empties torch's cache, come one after the other.
CAPTURING = threading.Lock()
WARM_UP = 3  # runs before a capture, in which libraries choose and set up what they need


@dataclass(frozen=True)
class _Captured:
    graph: torch.cuda.CUDAGraph
    inputs: list[Tensor]
    loss: Tensor  # the same memory in every run


class CapturedStep:
    """A training step as CUDA graphs, each captured when its size is first seen.

    The optimizer is made capturable, and its learning rate becomes a tensor on the device, so
    that a change reaches the captured steps; a schedule may change or replace it between steps.
    All else about it is recorded, and changes are refused. What recording a step draws from the
    device's generator is given back.

    Args:
        changed: All that the step changes beside the optimizer's state, on a CUDA device: what
            it trains, and buffers such as running statistics.
        optimizer: Their optimizer, :class:`torch.optim.Adam` or :class:`torch.optim.AdamW`, whose
            state begins with zeros: that of others could not be restored after the warm-up.
    """

    def __init__(self, changed: Sequence[Tensor], optimizer: torch.optim.Optimizer) -> None:
        self._changed, self._optimizer = list(changed), optimizer
        device = self._changed[0].device
        if not isinstance(optimizer, torch.optim.Adam | torch.optim.AdamW):
            raise ValueError(
                "expected torch.optim.Adam or torch.optim.AdamW for captured steps, got "
                f"{type(optimizer).__name__}"
            )
        if device.type != "cuda":
            raise ValueError(
                f"expected tensors on a CUDA device for captured steps, got {device}; leave out "
                "captured"
            )
        self._stream = _own_stream(device)
        self._rates = [
            torch.tensor(float(group["lr"]), device=device) for group in optimizer.param_groups
        ]
        self._captured: dict[Hashable, _Captured] = {}
        self._pool = torch.cuda.graph_pool_handle()
        self._recorded: tuple[Any, ...] = ()  # what is not to change any more
        for group in optimizer.param_groups:
            group["capturable"] = True
        for state in optimizer.state.values():  # of a run without captured steps
            state["step"] = state["step"].to(device)

    def __call__(
        self, key: Hashable, inputs: Sequence[Tensor], step: Callable[[list[Tensor]], Tensor]
    ) -> Tensor:
        """Run a step.

        Args:
            key: What the sizes of the inputs, and all else that may differ, follow from.
            inputs: What differs from step to step.
            step: The step as a function of the inputs: gradients are cleared, the loss, backward,
                clipping, the optimizer. It is called only when a key is new, with copies of the
                inputs whose memory then stays.

        Returns:
            The loss. It is overwritten by the next step.
        """
        self._check_unchanged()
        self._follow_rates()
        captured = self._captured.get(key)
        if captured is None:
            with CAPTURING:
                captured = self._captured[key] = self._capture(inputs, step)
        torch._foreach_copy_(captured.inputs, list(inputs))
        captured.graph.replay()
        return captured.loss

    def __len__(self) -> int:
        """The number of sizes that were seen."""
        return len(self._captured)

    def _fixed(self) -> tuple[Any, ...]:
        """What stays as it is recorded: where the optimizer's state is, and all its options but
        the learning rate."""
        names = sorted(self._optimizer.defaults.keys() - {"lr"})
        groups = self._optimizer.param_groups
        return id(self._optimizer.state), *(group[name] for group in groups for name in names)

    def _check_unchanged(self) -> None:
        if self._captured and self._fixed() != self._recorded:
            raise ValueError(
                "expected nothing of the optimizer to change but its learning rate, since steps "
                "are recorded, got other options or a loaded state; make the step after that"
            )

    def _follow_rates(self) -> None:
        for group, rate in zip(self._optimizer.param_groups, self._rates, strict=True):
            if group["lr"] is not rate:
                rate.fill_(float(group["lr"]))
                group["lr"] = rate

    def _capture(
        self, inputs: Sequence[Tensor], step: Callable[[list[Tensor]], Tensor]
    ) -> _Captured:
        device = self._changed[0].device
        generator = torch.cuda.get_rng_state(device)
        try:
            return self._record([tensor.clone() for tensor in inputs], step, device)
        finally:
            # The first step of a size draws what it would draw if it had been recorded before.
            torch.cuda.set_rng_state(generator, device)

    def _record(
        self, kept: list[Tensor], step: Callable[[list[Tensor]], Tensor], device: torch.device
    ) -> _Captured:
        before = self._snapshot()
        self._stream.wait_stream(torch.cuda.current_stream(device))
        try:
            with torch.cuda.stream(self._stream):
                for _ in range(WARM_UP):
                    step(kept)
        finally:  # nothing is trained by a step that fails
            torch.cuda.current_stream(device).wait_stream(self._stream)
            self._restore(before)
        # Gradients of the warm-up are dropped, so that the graph has its own.
        self._optimizer.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()
        # Other threads, such as one that makes batches, may use the device meanwhile.
        with torch.cuda.graph(
            graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"
        ):
            loss = step(kept)
        self._recorded = self._fixed()
        return _Captured(graph, kept, loss)

    def _snapshot(self) -> list[tuple[Tensor, Tensor]]:
        """All that a step changes, each with a copy."""
        tensors = self._changed + self._state()
        return [(tensor, tensor.detach().clone()) for tensor in tensors]

    @torch.no_grad()
    def _restore(self, before: list[tuple[Tensor, Tensor]]) -> None:
        """Undo the warm-up, in place: the graph refers to these very tensors."""
        known = {id(tensor): copy for tensor, copy in before}
        for tensor in self._changed + self._state():
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


def _own_stream(device: torch.device) -> torch.cuda.Stream:
    """Where to capture: not on the stream that torch has for all captures, for the workspace of
    cuBLAS is the stream's, and graphs that run at the same time would share it; and not on the
    default stream, which cannot be captured."""
    current = torch.cuda.current_stream(device)
    is_default = current == torch.cuda.default_stream(device)
    return torch.cuda.Stream(device) if is_default else current
