"""A file in the format of ``final_structures6.txt``, of random architectures."""

from __future__ import annotations

import random
from pathlib import Path


def write_architectures(path: Path, count: int, burn_in: int = 1000, seed: int = 0) -> None:
    """Accuracy grows with the number of edges and the first operation, plus a little noise."""
    source = random.Random(seed)
    lines = []
    for _ in range(burn_in + count):
        rows = [[source.randrange(6), *(source.randrange(2) for _ in range(k))] for k in range(6)]
        bits = sum(sum(row[1:]) for row in rows)
        accuracy = 0.7 + 0.002 * bits + 0.004 * rows[0][0] + source.gauss(0, 0.001)
        lines.append(f"{rows}, {accuracy:.4f}\n")
    path.write_text("".join(lines), encoding="utf-8")
