"""Whose a run's folder is: that of one config, and of one process at a time."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from dagnn.training.checkpoints import read_checkpoint
from dagnn.training.locks import BusyError, lock
from dagnn.training.processes import from_first
from dagnn.training.record import write_json

__all__ = ["check_best", "check_unclaimed_best", "claimed", "read_last"]


@contextmanager
def claimed(
    folder: Path, config: dict[str, Any], source: str | os.PathLike[str] | None
) -> Iterator[None]:
    """See that the folder is for this config, and that no other run works in it. What a killed one
    had is free."""

    def claim() -> None:
        try:
            stack.enter_context(lock(folder / ".lock"))
        except BusyError as error:
            raise ValueError(
                f"another process is training in {folder}: {error.owner}. Wait for it, or choose "
                "another folder"
            ) from error
        _claim(folder, config)
        if source is not None:
            write_json(folder / "data.json", {"path": os.path.abspath(source)})

    with ExitStack() as stack:
        from_first(claim)
        yield


def _claim(folder: Path, config: dict[str, Any]) -> None:
    """Write the config, or see that it is the one that is there."""
    path = folder / "config.json"
    config = json.loads(json.dumps(config, allow_nan=False))  # tuples become lists
    if not path.exists():
        write_json(path, config)
        return
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"expected the config of a run, got {path}: {error}") from error
    if not isinstance(stored, dict) or "fit" not in stored:
        raise ValueError(f"expected the config of a run, got {path}, which is of something else")
    differences = list(_differences(stored, config))
    if not differences:
        return
    # If nothing came of that run, such as by a learning rate too high, it may be any other.
    if any((folder / name).exists() for name in ("best.ckpt", "last.ckpt")):
        _check_longer(folder, differences, stored["fit"]["epochs"], config["fit"]["epochs"])
    write_json(path, config)


def _check_longer(
    folder: Path, differences: list[tuple[str, Any, Any]], there: int, here: int
) -> None:
    """See that a config differs from the one that is there by a larger number of epochs alone."""
    others = [
        (name, old, new)
        for name, old, new in differences
        if not (name.split(".")[-1] == "epochs" and (old, new) == (there, here))
    ]
    if others:
        bad = "; ".join(
            f"{name} is {_word(old)} there and {_word(new)} here" for name, old, new in others
        )
        raise ValueError(
            f"{folder} holds a run with another config: {bad}. Choose another folder, or remove "
            "this one; a run that is there can only be given more epochs"
        )
    if here < there:
        raise ValueError(
            f"the run in {folder} is one of {there} epochs and cannot be made shorter, to {here}; "
            f"give {there} to go on or to see it, or more, or choose another folder"
        )
    last = folder / "last.ckpt"
    if last.exists() and read_last(last).get("lr_schedulers"):
        raise ValueError(
            f"expected {there} epochs, as in {folder}, got {here}: its module has a scheduler of "
            "its own, which may depend on their number. Choose another folder, or remove this one"
        )


def _differences(there: Any, here: Any, name: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Where two configs differ, and what each has there."""
    if isinstance(there, dict) and isinstance(here, dict):
        for key in dict.fromkeys([*there, *here]):
            inner = f"{name}.{key}" if name else str(key)
            yield from _differences(there.get(key), here.get(key), inner)
    elif there != here:
        yield name, there, here


def _word(value: Any) -> str:
    return "not set" if value is None else repr(value)


def read_last(path: Path) -> dict[str, Any]:
    """The checkpoint to go on from, or an error that says what to do without it."""
    try:
        return read_checkpoint(path)
    except ValueError as error:
        raise ValueError(
            f"cannot go on: {error}. Remove best.ckpt (or keep it elsewhere) and {path} to train "
            "again from the first epoch, or choose another folder"
        ) from error


def check_unclaimed_best(folder: Path) -> None:
    """Without a checkpoint to go on from, see that no run's best weights would be replaced. One
    that was killed in its first epoch may have left some; it comes to the same."""
    metrics = folder / "metrics.jsonl"
    epochs = len(metrics.read_bytes().splitlines()) if metrics.exists() else 0
    if epochs > 1 and (folder / "best.ckpt").exists():
        raise ValueError(
            f"cannot go on: {folder} holds best.ckpt of a run of {epochs} epochs, but no "
            "last.ckpt. Training from the first epoch would replace it: keep it elsewhere (or "
            "remove it) to do so, or choose another folder"
        )


def check_best(folder: Path) -> None:
    """See that the best weights of a run that goes on, or is finished, are still there."""
    best, last = folder / "best.ckpt", folder / "last.ckpt"
    try:
        read_checkpoint(best)
    except FileNotFoundError as error:
        raise ValueError(
            f"expected the weights of the run's best epoch in {best}, got no such file. Put it "
            f"back, or remove {last} to train again from the first epoch"
        ) from error
    except ValueError as error:
        raise ValueError(
            f"{error}. These are to be the weights of the run's best epoch: put them back, or "
            f"remove {best} and {last} to train again from the first epoch"
        ) from error
