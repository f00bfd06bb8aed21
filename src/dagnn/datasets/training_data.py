"""Where the data of a run lie: kept in its folder, though no part of what the run is."""

from __future__ import annotations

import json
from pathlib import Path

from dagnn.graph.files import replacing

__all__ = ["keep_training_data", "training_data"]

FILE = "data.json"


def keep_training_data(run: Path, path: Path) -> None:
    """Write down where the data of a run are.

    Args:
        run: Its folder.
        path: The file or folder of the data.
    """
    with replacing(run / FILE) as unfinished:
        unfinished.write_text(json.dumps({"path": str(path.absolute())}) + "\n", encoding="utf-8")


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
