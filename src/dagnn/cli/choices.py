"""Choices that several commands offer."""

from __future__ import annotations

import enum
from typing import Annotated

import typer

__all__ = [
    "Device",
    "DeviceOption",
    "Devices",
    "NumNodes",
    "Precision",
    "Preset",
    "QuietOption",
    "RayOption",
]

SEVERAL = "Several processes (by torchrun, by srun, or started by the command itself)"
Devices = Annotated[
    int,
    typer.Option(
        min=1,
        help="Processes on each machine, with a GPU each; they share every batch.",
        rich_help_panel=SEVERAL,
    ),
]
NumNodes = Annotated[int, typer.Option(min=1, help="Machines.", rich_help_panel=SEVERAL)]
RayOption = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        show_default=False,
        help="Run on a Ray cluster: its address, auto, or local for one on this machine.",
    ),
]


class Device(enum.StrEnum):
    """See :func:`dagnn.training.fit`."""

    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"


DeviceOption = Annotated[Device, typer.Option(help="auto: a GPU if there is one.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]


class Precision(enum.StrEnum):
    """Of the products."""

    full = "32"
    tf32 = "tf32"
    bf16 = "bf16"


class Preset(enum.StrEnum):
    """Minutes on two cores, or as in the paper."""

    quick = "quick"
    paper = "paper"
