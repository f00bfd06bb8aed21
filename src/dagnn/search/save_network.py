"""All files of a learned network in one folder."""

from __future__ import annotations

import os
import shutil
import uuid
from pathlib import Path

from dagnn.graph.files import check_folder
from dagnn.search.learning_report import LearnedNetwork
from dagnn.search.report_page import format_page
from dagnn.training.record import write_json

__all__ = ["save_network"]


def save_network(
    network: LearnedNetwork, folder: str | os.PathLike[str], title: str
) -> tuple[list[Path], list[str]]:
    """Write ``network.png``, ``.svg``, ``.bif``, ``.dot`` and ``.json``, ``report.json`` and
    ``index.html``. They appear together, when all of them are complete.

    Returns:
        The files, and what could not be written with the reason: BIF has no room for very large
        probability tables.
    """
    folder = Path(folder)
    check_folder(folder)
    if network.report is None:
        raise ValueError("expected a network with a report, such as learn_network returns")
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}")
    unfinished.mkdir()
    left_out = []
    try:
        for kind in ("png", "svg", "dot", "json"):
            network.save(unfinished / f"network.{kind}")
        try:
            network.save(unfinished / "network.bif")
        except ValueError as error:
            left_out.append(f"no network.bif: {error}")
        write_json(unfinished / "report.json", network.report.to_dict())
        (unfinished / "index.html").write_text(format_page(network, title), encoding="utf-8")
        names = sorted(path.name for path in unfinished.iterdir())
        folder.mkdir(exist_ok=True)
        for name in names:
            os.replace(unfinished / name, folder / name)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return [folder / name for name in names], left_out
