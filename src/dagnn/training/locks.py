"""Locks, so that several processes can share a folder of results."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["BusyError", "lock"]


class BusyError(RuntimeError):
    """Another process has the lock.

    Args:
        what: What is locked.
        owner: The process.
    """

    def __init__(self, what: str, owner: str) -> None:
        super().__init__(what, owner)
        self.owner = owner

    def __str__(self) -> str:
        return "{} is being run by {}".format(*self.args)


@contextmanager
def lock(path: Path) -> Iterator[None]:
    """Hold the lock of a file while the block runs.

    The system gives a lock back when the process that holds it ends, however it ends, so that one
    left by a killed process is free. The file says who holds it.

    Raises:
        BusyError: If another process holds it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = _acquire(path)
    try:
        owner = {"pid": os.getpid(), "host": socket.gethostname()}
        os.ftruncate(handle, 0)
        os.pwrite(handle, json.dumps(owner).encode(), 0)
        yield
    finally:
        path.unlink(missing_ok=True)  # still locked: nobody else can have taken it over
        os.close(handle)


def _acquire(path: Path) -> int:
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Between opening and locking, its owner may have removed the file: then this lock is
            # of a file that nobody else will find.
            if _is_at(path, handle):
                return handle
        except BlockingIOError:
            owner = os.read(handle, 1000).decode(errors="replace")
            os.close(handle)
            raise BusyError(path.stem, owner or "another process") from None
        os.close(handle)


def _is_at(path: Path, handle: int) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False
