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

ZIP = b"PK\x03\x04"  # how a checkpoint begins
NAMED = 5  # runs in an error
MEANT = "best.ckpt or last.ckpt of a run, or its folder"


def write_atomically(path: str | os.PathLike[str], write: Callable[[BinaryIO], object]) -> None:
    """Let :obj:`write` fill a temporary file in the same folder, then give it its name."""
    with replacing(Path(path)) as unfinished, open(unfinished, "xb") as file:
        write(file)


def find_checkpoint(path: str | os.PathLike[str], name: str = "best.ckpt") -> Path:
    """The checkpoint that is meant by a file, by the folder of a run, or by one that holds one run.

    Args:
        path: The file or the folder.
        name: The file of a run's folder.

    Raises:
        FileNotFoundError: If there is nothing.
        ValueError: If the folder holds no run, or several; the error names them.
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
    for below in ("*", "*/*", "*/*/*"):  # such as runs/TASK/MODEL/SEED
        found = sorted(path.glob(f"{below}/{name}"))
        if len(found) == 1:
            return found[0]
        if found:
            runs = ", ".join(str(file.parent) for file in found[:NAMED])
            more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
            raise ValueError(
                f"expected the folder of one run, got {path}, which holds runs; name one: "
                f"{runs}{more}"
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
    with open(path, "rb") as file:
        is_another_kind = not ZIP.startswith(file.read(len(ZIP)))
    if is_another_kind:
        raise ValueError(
            f"expected a checkpoint ({MEANT}), got a file of another kind: {os.fspath(path)}"
        )
    try:
        with zipfile.ZipFile(path) as archive:  # torch does not look at the checksums
            damaged = archive.testzip()
        if damaged is not None:
            raise ValueError(f"{damaged} in it is damaged")
        checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # of any kind: damaged bytes lead anywhere
        reason = str(error).partition("\n")[0]
        raise ValueError(
            f"expected a checkpoint, got {os.fspath(path)}, which cannot be read as one "
            f"({reason}); a checkpoint is {MEANT}"
        ) from error
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
