"""Files that appear as a whole or not at all, and are read without executing anything."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import torch
from lightning.fabric.plugins.io import CheckpointIO
from torch import nn

from dagnn.graph.files import replacing

__all__ = [
    "AtomicCheckpointIO",
    "find_checkpoint",
    "load_weights",
    "read_checkpoint",
    "write_atomically",
]


def write_atomically(path: str | os.PathLike[str], write: Callable[[BinaryIO], object]) -> None:
    """Let :obj:`write` fill a temporary file in the same folder, then give it its name."""
    with replacing(Path(path)) as unfinished, open(unfinished, "xb") as file:
        write(file)


def find_checkpoint(path: str | os.PathLike[str], name: str = "best.ckpt") -> Path:
    """The checkpoint that is meant by a file, or by the folder of a run.

    Args:
        path: The file or the folder.
        name: The file of a run's folder.

    Raises:
        FileNotFoundError: If there is nothing.
        ValueError: If the folder is not that of a run; the error names runs that it holds.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(
            f"expected a checkpoint, or the folder of a run, got {path}, which is not there; "
            "train one first, see: dagnn train --help"
        )
    if not path.is_dir():
        return path
    if (path / name).is_file():
        return path / name
    runs = sorted(str(found.parent) for found in path.glob(f"*/{name}"))
    if runs:
        raise ValueError(
            f"expected the folder of one run, got {path}, which holds runs; name one: "
            f"{', '.join(runs)}"
        )
    raise ValueError(
        f"expected a checkpoint, or the folder of a run, got {path} without {name}; a run has one "
        "after its first epoch"
    )


def read_checkpoint(path: str | os.PathLike[str]) -> dict[str, Any]:
    """A checkpoint, on the CPU; only tensors, numbers, words and collections of them are read.

    Raises:
        ValueError: If the file is no such checkpoint, or is damaged.
    """
    try:
        with zipfile.ZipFile(path) as file:  # torch does not look at the checksums
            damaged = file.testzip()
        if damaged is not None:
            raise ValueError(f"{damaged} in it is damaged")
        checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    except (FileNotFoundError, PermissionError, IsADirectoryError):
        raise
    except Exception as error:  # of any kind: damaged bytes lead anywhere
        reason = str(error).partition("\n")[0]
        raise ValueError(f"expected a checkpoint, got {os.fspath(path)}: {reason}") from error
    if not isinstance(checkpoint, dict) or "state_dict" not in checkpoint:
        raise ValueError(
            f"expected a checkpoint with a state_dict, got {os.fspath(path)} with "
            f"{type(checkpoint).__name__}; best.ckpt and last.ckpt of a run are checkpoints"
        )
    return checkpoint


def load_weights(module: nn.Module, path: str | os.PathLike[str]) -> None:
    """Give a module the weights of a checkpoint, such as a run's ``best.ckpt``."""
    try:
        module.load_state_dict(read_checkpoint(path)["state_dict"])
    except RuntimeError as error:
        raise ValueError(f"{os.fspath(path)} holds another model: {error}") from error


class AtomicCheckpointIO(CheckpointIO):
    """How Lightning writes and reads checkpoints here."""

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None
    ) -> None:
        write_atomically(path, lambda file: torch.save(checkpoint, file))

    def load_checkpoint(
        self, path: Any, map_location: Any = None, weights_only: bool | None = True
    ) -> dict[str, Any]:
        return read_checkpoint(path)

    def remove_checkpoint(self, path: Any) -> None:
        Path(path).unlink(missing_ok=True)
