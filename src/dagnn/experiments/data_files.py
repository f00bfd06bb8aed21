"""Where the data of the experiments lie, and how to get what is missing."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

__all__ = ["DATA", "DataFile", "data_folder", "find_data"]


@dataclass(frozen=True)
class DataFile:
    """Data of an experiment.

    Args:
        what: What it is, in a few words.
        names: Files or folders that serve, best first.
        command: How to get the first of them into a folder, ``{folder}``.
    """

    what: str
    names: tuple[str, ...]
    command: str


DATA = {
    "code": DataFile(
        "functions (TOK and LP)",
        ("ogbg_code2", "github_functions.parquet", "corpus"),
        "dagnn data get code2 --out {folder}, or, of the packages installed here: "
        "dagnn data code --out {folder}/corpus",
    ),
    "na": DataFile(
        "neural architectures (NA)",
        ("final_structures6.txt",),
        "dagnn data get na --out {folder}",
    ),
    "bn": DataFile(
        "Bayesian networks (BN)",
        ("asia_200k.txt",),
        "dagnn data get asia-bn --out {folder}, or drawn anew: "
        "dagnn data bn --out {folder}/asia_200k.txt",
    ),
    "asia": DataFile(
        "a sample of the network Asia",
        ("asia.csv",),
        "data(asia) of the R package bnlearn, as {folder}/asia.csv",
    ),
}


def data_folder(given: str | os.PathLike[str] | None = None) -> Path:
    """The folder that was given, or ``$DAGNN_DATA``, or ``data``."""
    return Path(given or os.environ.get("DAGNN_DATA", "data"))


def find_data(name: str, folder: str | os.PathLike[str]) -> Path:
    """The path of data of :data:`DATA`.

    Raises:
        FileNotFoundError: If it is not there; the error says how to get it.
    """
    file = DATA[name]
    for candidate in file.names:
        path = Path(folder) / candidate
        if path.exists():
            return path
    raise FileNotFoundError(
        f"expected {file.what} in {folder} ({' or '.join(file.names)}); get them: "
        + file.command.format(folder=folder)
    )
