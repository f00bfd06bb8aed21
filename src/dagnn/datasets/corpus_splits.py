"""How a corpus is divided between training, validation and test."""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Collection

__all__ = ["MIN_UNITS", "divide", "split_of"]

SHARES = (0.8, 0.9)  # where the valid and the test split begin
MIN_UNITS = 3  # one for each split


def split_of(unit: str, seed: int) -> str:
    """The split of a project, or whatever is not divided: it depends on its name and the seed, on
    no other one."""
    place = _place(unit, seed)
    return "train" if place < SHARES[0] else "valid" if place < SHARES[1] else "test"


def divide(units: Collection[str], seed: int) -> dict[str, str]:
    """The split of each of some units: that of :func:`split_of`, unless one would stay empty; then
    the units that come closest to it are moved. Fewer than three cannot fill all splits."""
    ordered = sorted(set(units), key=lambda unit: (_place(unit, seed), unit))
    places = [_place(unit, seed) for unit in ordered]
    valid, test = (bisect_left(places, share) for share in SHARES)
    if len(ordered) >= MIN_UNITS:
        valid = min(max(valid, 1), len(ordered) - 2)
        test = min(max(test, valid + 1), len(ordered) - 1)
    splits = ["train"] * valid + ["valid"] * (test - valid) + ["test"] * (len(ordered) - test)
    return dict(zip(ordered, splits, strict=True))


def _place(unit: str, seed: int) -> float:
    """From 0 to 1, even if names are alike."""
    digest = hashlib.sha256(f"{seed}/{unit}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64
