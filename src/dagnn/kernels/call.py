"""Calling kernels. Triton looks at every argument of every call to find the kernel compiled for it,
which takes longer than the launch; here the kernel is remembered by the little that can differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = ["INTERPRETED", "call", "ceil_div", "next_power_of_2"]

# Whether kernels run in Triton's interpreter, which has no inline assembly.
INTERPRETED = tl.constexpr(bool(triton.knobs.runtime.interpret))

_compiled: dict[tuple[Any, ...], tuple[Any, list[Any]]] = {}


def call(
    kernel: Any,
    grid: tuple[int, int],
    arguments: Sequence[Any],
    constants: dict[str, Any],
    options: dict[str, Any],
) -> None:
    """Launch a kernel on the device of its arguments.

    Args:
        kernel: Made by ``triton.jit``; its integers are not specialized.
        grid: The numbers of programs.
        arguments: Tensors, tuples of tensors, integers and None, in the kernel's order.
        constants: The compile-time constants, by name; they come last in the kernel's signature.
        options: Such as ``num_warps``.
    """
    if INTERPRETED:
        kernel[grid](*arguments, **constants, **options)
        return
    known = [kernel.__name__, kernel.__module__, *constants.values(), *options.values()]
    device = _describe(arguments, known)
    if device.index != torch.cuda.current_device():
        with torch.cuda.device(device):
            return call(kernel, grid, arguments, constants, options)
    key = (device.index, *known)
    found = _compiled.get(key)
    if found is None:
        compiled = kernel[grid](*arguments, **constants, **options)
        last = [constants[name] for name in kernel.arg_names if name in constants]
        _compiled[key] = compiled, last
        return
    compiled, last = found
    compiled[(*grid, 1)](*arguments, *last)


def _describe(arguments: Sequence[Any], known: list[Any]) -> Any:
    """Add what a kernel is specialized on: types, alignment, and whether an integer is a long one.

    Returns the device of the arguments.
    """
    device = None
    for argument in arguments:
        if type(argument) is int:  # first, and without a function of their own: most are
            known.append(argument >> 31)
        elif isinstance(argument, Tensor):
            device = argument.device
            known.append(argument.dtype)
            # Kernels do not ask for the alignment of indices.
            if argument.is_floating_point():
                known.append(argument.data_ptr() % 16 == 0)
        elif isinstance(argument, tuple):
            known.append(len(argument))
            device = _describe(argument, known) or device
        else:
            known.append(argument if argument is None else argument >> 31)
    return device


# Triton's own two are compile-time functions, and slow when Python calls them.
def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def next_power_of_2(n: int) -> int:
    return 1 << max(0, n - 1).bit_length()
