"""How far a run has come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

__all__ = ["Standing", "standing", "why_finished"]


class Standing(NamedTuple):
    """How far a run had come when it wrote a checkpoint.

    Args:
        epochs: That were done.
        of_epochs: That it was to have at most.
        finished: Why it was over; empty if it was not.
    """

    epochs: int
    of_epochs: int
    finished: str


def standing(checkpoint: Mapping[str, Any]) -> Standing:
    """How far the run of a ``last.ckpt`` had come, or the weights of a ``best.ckpt``.

    Args:
        checkpoint: See :func:`dagnn.training.read_checkpoint`.

    Raises:
        ValueError: If it is not of a run.
    """
    try:
        settings = checkpoint["config"]["fit"]
        if "row" in checkpoint:  # best.ckpt knows its own epoch alone
            history, best = [checkpoint["row"]], checkpoint["row"]
        else:
            state = checkpoint["callbacks"]["Bookkeeper"]
            history, best = state["history"], state["best"]
        limits = {name: settings[name] for name in ("epochs", "monitor", "patience")}
    except (KeyError, TypeError) as error:
        raise ValueError(
            f"expected last.ckpt or best.ckpt of a run, got a checkpoint without {error}"
        ) from error
    epochs = history[-1]["epoch"] + 1 if history else 0
    return Standing(epochs, settings["epochs"], why_finished(history, best, **limits))


def why_finished(
    history: Sequence[Mapping[str, Any]],
    best: Mapping[str, Any] | None,
    *,
    epochs: int,
    monitor: str,
    patience: int | None,
) -> str:
    """Why a run is over; empty if it is not.

    Args:
        history: A row per epoch.
        best: That of the best epoch.
        epochs, monitor, patience: See :func:`dagnn.training.fit`.
    """
    if best is None:
        return ""
    epoch, value = history[-1]["epoch"], best[monitor]
    # An epoch that is only equal in it has the weights, but no more patience.
    since = next((row["epoch"] for row in history if row[monitor] == value), 0)
    if patience is not None and epoch - since >= patience:
        return f"no better {monitor} for {patience} epochs"
    return f"all {epochs} epochs" if epoch + 1 >= epochs else ""
