r"""Models that are wider than asked for, by units that are dead.

A GPU multiplies matrices whose widths are multiples of 64 up to three times as fast as those of the
paper's 501 units. All weights into and out of the units that are added are zero, and their biases.
So are then their states (:math:`\tanh 0 = \mathrm{ReLU}(0) = 0`, and a gate of 1/2 lets zero
through as zero), what comes back to them, and the gradients of these weights, products of the two:
Adam never wakes them. The model is the one that was asked for, up to the order of its sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["DeadUnits", "JoinedLinear", "padded_width"]

MULTIPLE = 64
MOST = 1.05  # times as wide; more units would cost what they save


def padded_width(hidden_channels: int) -> int:
    """The next multiple of 64, if that is at most a twentieth more; otherwise the width itself.

    Example:
        >>> [padded_width(width) for width in (7, 64, 300, 501)]
        [7, 64, 300, 512]
    """
    width = -(-hidden_channels // MULTIPLE) * MULTIPLE
    return width if width <= MOST * hidden_channels else hidden_channels


class JoinedLinear(nn.Linear):
    """A linear map of vectors side by side, of these widths: states, and others that are not."""

    def __init__(self, widths: Sequence[int], out_channels: int, bias: bool = True) -> None:
        super().__init__(sum(widths), out_channels, bias)
        self.widths = list(widths)


class DeadUnits:
    """Where the parameters of a model lie in those of the same model with wider states.

    Args:
        model: The model.
        wider: The wider one. It gets the model's parameters, with zeros for all further units, and
            from then on loads those of either width (as a whole: its parts do not).
        hidden_channels: Width of the model's states.
        width: That of the wider one's.
    """

    def __init__(
        self, model: nn.Module, wider: nn.Module, hidden_channels: int, width: int
    ) -> None:
        self._axes: dict[str, list[Tensor]] = {}  # which entries are live, along each axis
        for name, parameter in model.named_parameters():
            shapes = list(parameter.shape), list(wider.get_parameter(name).shape)
            parts = [_blocks(*sizes, hidden_channels, width) for sizes in zip(*shapes, strict=True)]
            path, _, kind = name.rpartition(".")
            own, other = model.get_submodule(path), wider.get_submodule(path)
            if isinstance(own, JoinedLinear) and kind == "weight":
                assert isinstance(other, JoinedLinear)
                parts[1] = own.widths, other.widths
            axes = [_live(*widths) for widths in parts]
            sizes = [int(axis.sum()) for axis in axes], [len(axis) for axis in axes]
            assert sizes == shapes, f"{name} needs a JoinedLinear"
            self._axes[name] = axes
        wider.register_load_state_dict_pre_hook(self._pad_loaded)
        wider.load_state_dict(model.state_dict())

    def pad(self, name: str, tensor: Tensor) -> Tensor:
        """A tensor that is shaped as the model's parameter, with zeros for all further units; any
        other as it is."""
        if list(tensor.shape) != [int(axis.sum()) for axis in self._axes[name]]:
            return tensor
        for dim, axis in enumerate(self._axes[name]):
            shape = [*tensor.shape[:dim], len(axis), *tensor.shape[dim + 1 :]]
            index = axis.nonzero().squeeze(-1).to(tensor.device)
            tensor = tensor.new_zeros(shape).index_copy_(dim, index, tensor)
        return tensor

    def pad_optimizer(self, state: dict[str, Any], names: Sequence[str]) -> None:
        """Pad the moments in a state of Adam that may be of the narrower model, in place: weights
        care for themselves when they are loaded, but an optimizer takes what it is given.

        Args:
            state: What ``optimizer.state_dict()`` gave.
            names: The parameters' names, in the optimizer's order.
        """
        for number, moments in state["state"].items():
            for kind, value in moments.items():
                if isinstance(value, Tensor) and value.dim():
                    moments[kind] = self.pad(names[number], value)

    def _pad_loaded(
        self, module: nn.Module, state: dict[str, Any], prefix: str, *_: object
    ) -> None:
        for name in self._axes:
            value = state.get(prefix + name)
            if isinstance(value, Tensor):  # anything else is for torch to refuse
                state[prefix + name] = self.pad(name, value)


def _blocks(size: int, wider: int, hidden_channels: int, width: int) -> tuple[list[int], list[int]]:
    """The parts of an axis in both models: states alone, or none."""
    if size == wider:
        return [size], [size]
    blocks = wider // width
    return [hidden_channels] * blocks, [width] * blocks


def _live(widths: list[int], wider: list[int]) -> Tensor:
    """Which entries of wider parts side by side are those of the narrower ones."""
    parts = zip(widths, wider, strict=True)
    return torch.cat([torch.arange(there, device="cpu") < own for own, there in parts])
