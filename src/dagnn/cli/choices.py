"""Choices that several commands offer."""

from __future__ import annotations

import enum

__all__ = ["Device", "Preset"]


class Device(enum.StrEnum):
    """See :func:`dagnn.training.fit`."""

    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"


class Preset(enum.StrEnum):
    """Minutes on two cores, or as in the paper."""

    quick = "quick"
    paper = "paper"
