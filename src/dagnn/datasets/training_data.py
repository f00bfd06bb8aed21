"""Where the data of a run are: :func:`dagnn.training.fit` keeps it in the run's folder."""

from __future__ import annotations

import json
from pathlib import Path

__all__ = ["training_data"]

FILE = "data.json"


def training_data(run: Path) -> Path | None:
    """Where the data of a run were when it was trained, if that was kept.

    Args:
        run: A checkpoint, the folder of its run, or a folder with this one run.
    """
    folder = run if run.is_dir() else run.parent
    file = folder / FILE
    files = [file] if file.exists() else list(folder.glob(f"*/{FILE}"))
    if len(files) != 1:
        return None
    return Path(json.loads(files[0].read_text(encoding="utf-8"))["path"])
