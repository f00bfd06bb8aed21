"""Find what was named, or see that it is not there, before the seconds that heavy imports take."""

from __future__ import annotations

from pathlib import Path

from dagnn.datasets.training_data import training_data

__all__ = ["check_run", "find_corpus", "model_and_sources"]

DEFAULTS = Path("corpus"), Path("data/corpus")


def check_run(path: Path) -> None:
    """That there is a checkpoint, by its first bytes, or a folder where a run should be."""
    if not path.exists():
        raise FileNotFoundError(
            f"expected a checkpoint, or the folder of a run, got {path}, which is not there; "
            "train one first, see: dagnn train --help"
        )
    if path.is_file():
        with open(path, "rb") as file:
            if file.read(2) != b"PK":  # as every zip file begins
                raise ValueError(
                    "expected a checkpoint (best.ckpt or last.ckpt of a run, or its folder), got a "
                    f"file of another kind: {path}"
                )


def find_corpus(given: Path | None, run: Path | None = None) -> Path:
    """The corpus that was given, or else that a run was trained on, or else ``corpus``, here or in
    ``data``.

    Args:
        given: By the user.
        run: A checkpoint, the folder of its run, or a folder with this one run.

    Raises:
        FileNotFoundError: If it is not there.
    """
    if given is not None:
        path, got = given, f"got {given}, which is not there"
    elif run is not None and (known := training_data(run)) is not None:
        path, got = known, f"but {known}, which the run was trained on, is not there; give --data"
    else:
        path = next(filter(Path.exists, DEFAULTS), DEFAULTS[0])
        got = f"but neither {DEFAULTS[0]} nor {DEFAULTS[1]} is there; give --data"
    if not path.exists():
        raise FileNotFoundError(
            f"expected a corpus of code, {got}; make one with `dagnn data code`, or get one with "
            "`dagnn data get code2`"
        )
    return path


def model_and_sources(paths: list[str], checkpoint: Path | None) -> tuple[Path | None, list[str]]:
    """The model and the sources that were named. A run in front of the sources is the model, if
    none is named otherwise: it has no functions."""
    first = Path(paths[0])
    is_model = (first / "best.ckpt").is_file() or (first.suffix == ".ckpt" and first.is_file())
    if checkpoint is not None or not is_model:
        return checkpoint, paths
    if not paths[1:]:
        raise ValueError(f"expected Python files after the model {first}, got none")
    return first, paths[1:]
