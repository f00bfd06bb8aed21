"""A corpus of function DAGs from source code: found, parsed in parallel, each DAG once, split.

The folder has the corpus, ``functions.parquet`` (see :mod:`dagnn.datasets.code_parquet`), what was
left out, ``report.json``, and ``parts/``, from which the next run takes what has not changed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dagnn.datasets.corpus_parts import (
    Skips,
    cut_parts,
    parse_file,
    part_key,
    read_part,
    write_part,
)
from dagnn.datasets.corpus_writer import CORPUS_FILE, CorpusWriter
from dagnn.datasets.sources import SourceFile, find_sources
from dagnn.datasets.workers import run_all, run_alone, survives
from dagnn.graph.files import replacing

__all__ = ["CorpusReport", "build_corpus", "split_of"]

REPORT_FILE = "report.json"
PART_FILE = re.compile(r"[0-9a-f]{64}\.parquet")  # others in the folder of parts are not ours
SHARES = (0.8, 0.9)  # where the valid and the test split begin

Progress = Callable[[int, int], None]


@dataclass
class CorpusReport:
    """What a corpus is made of, and what was left out."""

    key: str  # changes with the corpus
    files: int
    reused_files: int  # parsed by an earlier run
    projects: int
    functions: dict[str, int]  # by split
    duplicates: int
    skipped_functions: dict[str, int]  # by reason
    skipped_files: list[dict[str, str]]

    def skipped_by_reason(self) -> dict[str, int]:
        """How many files were left out, by reason."""
        return dict(Counter(skip["reason"] for skip in self.skipped_files).most_common())


def split_of(project: str, seed: int) -> str:
    """The split of a project: it depends on its name and the seed, on no other project."""
    digest = hashlib.sha256(f"{seed}/{project}".encode()).digest()
    place = int.from_bytes(digest[:8], "big") / 2**64
    return "train" if place < SHARES[0] else "valid" if place < SHARES[1] else "test"


def build_corpus(
    inputs: Iterable[str],
    out: str | os.PathLike[str],
    *,
    seed: int = 0,
    group: str = "project",
    workers: int | None = None,
    progress: Progress = lambda done, total: None,
) -> CorpusReport:
    """Make a corpus of all functions of some source code.

    Functions whose DAGs are identical are kept once, the first in the order of projects, files
    and lines. The result depends on the files, the seed and :obj:`group` alone. Processes are
    started anew: a script that calls this needs ``if __name__ == "__main__":``.

    Args:
        inputs: Folders, files and installed distributions; see
            :func:`dagnn.datasets.sources.find_sources`.
        out: The folder to make.
        seed: Of the split.
        group: What is never split: ``"project"``, ``"folder"`` or ``"file"``.
        workers: How many processes to use; by default one for each core.
        progress: Called with the number of files that are done and that of all.
    """
    if workers is not None and workers < 1:
        raise ValueError(f"expected at least one worker, got {workers}")
    files = find_sources(inputs, group=group)
    if not files:
        raise ValueError("expected Python files (*.py) in the given folders, got none")
    folder = Path(out)
    (folder / "parts").mkdir(parents=True, exist_ok=True)
    parts = {folder / "parts" / f"{part_key(part)}.parquet": part for part in cut_parts(files)}
    missing = [(part, path) for path, part in parts.items() if not path.exists()]
    reused = len(files) - sum(len(part) for part, _ in missing)
    done = reused
    progress(done, len(files))
    for part, path in _written(missing, workers or os.cpu_count() or 1):
        assert path.exists()
        done += len(part)
        progress(done, len(files))

    key = hashlib.sha256(json.dumps([seed, *(path.name for path in parts)]).encode()).hexdigest()
    report, damaged = _finished(folder, key), 0
    if report is None:
        report, damaged = _merge(parts, folder, seed, key)
    report.reused_files = reused - damaged
    for path in set((folder / "parts").iterdir()) - parts.keys():
        if PART_FILE.fullmatch(path.name) and path.is_file():
            path.unlink(missing_ok=True)
    return report


def _written(
    parts: Sequence[tuple[tuple[SourceFile, ...], Path]], workers: int
) -> Iterator[tuple[tuple[SourceFile, ...], Path]]:
    """Write parts in other processes, and yield each when it is there."""
    for task, is_done in run_all(write_part, parts, workers):
        part, path = task
        if not is_done:
            fatal = [file.path for file in part if not survives(_try_file, file)]
            if not run_alone(write_part, part, path, fatal):
                raise OSError(f"processes that parse {part[0].name} and the files after it die")
        yield part, path


def _try_file(file: SourceFile) -> None:
    parse_file(file)


def _finished(folder: Path, key: str) -> CorpusReport | None:
    """The report on the corpus that is there already, if it is the right one."""
    try:
        report = json.loads((folder / REPORT_FILE).read_text(encoding="utf-8"))
        if report["key"] == key and CorpusWriter.key_of(folder / CORPUS_FILE) == key:
            return CorpusReport(**report)
    except (OSError, ValueError, KeyError, TypeError):
        pass  # then it is made again
    return None


def _merge(
    parts: dict[Path, tuple[SourceFile, ...]], folder: Path, seed: int, key: str
) -> tuple[CorpusReport, int]:
    """Write the corpus. Also returns how many files were in damaged parts, and parsed again."""
    seen: set[bytes] = set()
    skips = Skips()
    total = damaged = 0
    counts = dict.fromkeys(("train", "valid", "test"), 0)
    with replacing(folder / CORPUS_FILE) as unfinished, CorpusWriter(unfinished, key) as writer:
        for path, part in parts.items():
            try:
                table, skipped = read_part(path)
            except (OSError, ValueError):
                damaged += sum(len(again) for again, _ in _written([(part, path)], 1))
                table, skipped = read_part(path)
            total += len(table)
            skips.files += skipped.files
            skips.functions += skipped.functions
            new = np.array([_is_new(digest, seen) for digest in table["digest"].to_pylist()], bool)
            split = split_of(part[0].project, seed)
            counts[split] += int(new.sum())
            writer.add(table.filter(new), split)
    report = CorpusReport(
        key,
        files=sum(map(len, parts.values())),
        reused_files=0,
        projects=len({part[0].project for part in parts.values()}),
        functions=counts,
        duplicates=total - len(seen),
        skipped_functions=dict(skips.functions),
        skipped_files=skips.files,
    )
    with replacing(folder / REPORT_FILE) as unfinished:
        unfinished.write_text(json.dumps(asdict(report), indent=2), encoding="utf-8")
    return report, damaged


def _is_new(value: Any, seen: set[Any]) -> bool:
    if value in seen:
        return False
    seen.add(value)
    return True
