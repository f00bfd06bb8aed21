"""Large buffers, and rows that begin where a cache line does."""

from __future__ import annotations

import ctypes
import mmap
import sys
from functools import cache
from typing import Any

from torch import Tensor

__all__ = ["aligned", "new_buffer"]

LARGE = 4 << 20  # bytes
LINE = 16  # numbers, of float32


def aligned(width: int) -> int:
    """The next width at which rows of a buffer begin with a cache line, all of them.

    BLAS writes to such rows a quarter faster than to others; what it reads may be as it likes.
    """
    return (width + LINE - 1) // LINE * LINE


def new_buffer(like: Tensor, *shape: int) -> Tensor:
    """An uninitialised tensor.

    Large ones come fresh from the system in every step, and to touch their pages for the first
    time costs more than a pass over them. With huge pages it costs a quarter of that, so they are
    asked for, as numpy does; PyTorch does it only if an environment variable is set.
    """
    buffer = like.new_empty(shape)
    size = buffer.numel() * buffer.element_size()
    if size >= LARGE and _madvise() is not None:
        start = -(-buffer.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE
        end = (buffer.data_ptr() + size) // mmap.PAGESIZE * mmap.PAGESIZE
        _madvise()(start, end - start, mmap.MADV_HUGEPAGE)  # a hint: whether it fails is no matter
    return buffer


@cache
def _madvise() -> Any:
    if not sys.platform.startswith("linux") or not hasattr(mmap, "MADV_HUGEPAGE"):
        return None
    function = ctypes.CDLL(None).madvise
    function.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return function
