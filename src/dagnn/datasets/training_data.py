"""Where the data of a run lie: kept in its folder, though no part of what the run is."""

from __future__ import annotations

import json
from pathlib import Path

from dagnn.graph.files import replacing

__all__ = ["keep_training_data", "training_data"]

FILE = "data.json"


def keep_training_data(run: Path, path: Path, fingerprint: str) -> None:
    """Write down where the data of a run are, before it begins, so that they are found even if it
    never ends. A run that is there with other data, which cannot go on with these, is left alone.

    Args:
        run: Its folder.
        path: The file or folder of the data.
        fingerprint: Theirs, as in the config of the run.
    """
    if _holds_others(run, fingerprint):
        return
    with replacing(run / FILE) as unfinished:
        unfinished.write_text(json.dumps({"path": str(path.absolute())}) + "\n", encoding="utf-8")


def _holds_others(run: Path, fingerprint: str) -> bool:
    if not any((run / name).exists() for name in ("best.ckpt", "last.ckpt")):
        return False  # nothing came of it
    try:
        data = json.loads((run / "config.json").read_text(encoding="utf-8"))["data"]
        return fingerprint not in data.values()
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return True  # not the config of a run, which will be said when it is to go on


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
