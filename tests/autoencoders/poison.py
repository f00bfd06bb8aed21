"""Memory that is handed out with NaN in it, so that whoever forgets to write to it is found out."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["Poisoned"]

EMPTY = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided")


class Poisoned(TorchDispatchMode):
    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        out = function(*args, **(kwargs or {}))
        if function.overloadpacket.__name__ in EMPTY and out.is_floating_point():
            out.fill_(torch.nan)
        return out
