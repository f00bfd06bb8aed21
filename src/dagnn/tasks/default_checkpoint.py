"""Which model names functions if none is named."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["default_checkpoint"]

TRAINED_BY_DEFAULT = Path("runs/tok/dagnn/seed0/best.ckpt")


def default_checkpoint(given: str | os.PathLike[str] | None = None) -> Path:
    """Where the model is: a checkpoint, or the folder of a run."""
    path = Path(given or os.environ.get("DAGNN_CHECKPOINT") or TRAINED_BY_DEFAULT)
    if not path.exists():
        raise ValueError(
            f"expected the checkpoint of a model at {path}; train one with `dagnn train tok`, or "
            "name another (best.ckpt of a run, or its folder), here or in DAGNN_CHECKPOINT"
        )
    return path
