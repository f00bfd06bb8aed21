"""Files that appear only when they are complete."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["check_folder", "replacing"]


def check_folder(folder: Path, option: str = "--out") -> None:
    """That files can be written there, before hours of work are done for them.

    Args:
        folder: It need not be there yet, and is not made.
        option: By which it was given.
    """
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not there.is_dir():
        raise ValueError(f"expected a folder to write to ({option}), got the file {there}")
    if not os.access(there, os.W_OK):
        raise ValueError(f"expected a folder to write to, got {folder}, which may not be written")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary file beside :obj:`path` that takes its place at the end, unless there is an
    error; then nothing is left of it.

    Its content is on the disk before it gets its name: not even a power cut leaves a file that has
    the name and not the content. Whoever writes it makes it, with the permissions of any new file.
    The folder is made if it is not there. An error names :obj:`path`, not the temporary file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        yield unfinished
        handle = os.open(unfinished, os.O_RDWR)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
        os.replace(unfinished, path)
    except OSError as error:
        if error.filename is not None and os.fsdecode(error.filename) == str(unfinished):
            raise OSError(error.errno, error.strerror, str(path)) from None
        raise
    finally:
        unfinished.unlink(missing_ok=True)
