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
from functools import partial
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
from dagnn.datasets.corpus_splits import MIN_UNITS, divide, split_of
from dagnn.datasets.corpus_writer import CORPUS_FILE, CorpusWriter
from dagnn.datasets.sources import SourceFile, find_sources
from dagnn.datasets.workers import run_all, run_alone, survives
from dagnn.graph.files import check_folder, replacing

__all__ = ["CorpusReport", "build_corpus"]

REPORT_FILE = "report.json"
SPLITS = ("train", "valid", "test")
PART_FILE = re.compile(r"[0-9a-f]{64}\.parquet")  # others in the folder of parts are not ours

Progress = Callable[[int, int], None]
Task = tuple[Any, ...]
RunAll = Callable[[Callable[..., None], Sequence[Task]], Iterator[tuple[Task, bool]]]


@dataclass
class CorpusReport:
    """What a corpus is made of, and what was left out."""

    key: str  # changes with the corpus
    files: int
    reused_files: int  # parsed by an earlier run
    projects: int
    split_by: str  # "project", "folder", "file" or "function": what is not divided
    functions: dict[str, int]  # by split
    duplicates: int
    skipped_functions: dict[str, int]  # by reason
    skipped_files: list[dict[str, str]]

    def skipped_by_reason(self) -> dict[str, int]:
        """How many files were left out, by reason."""
        return dict(Counter(skip["reason"] for skip in self.skipped_files).most_common())


def build_corpus(
    inputs: Iterable[str],
    out: str | os.PathLike[str],
    *,
    seed: int = 0,
    group: str = "project",
    workers: int | None = None,
    run: RunAll | None = None,
    progress: Progress = lambda done, total: None,
) -> CorpusReport:
    """Make a corpus of all functions of some source code.

    Functions whose DAGs are identical are kept once, the first in the order of projects, files
    and lines. The result depends on the files, the seed and :obj:`group` alone. Processes are
    started anew: a script that calls this needs ``if __name__ == "__main__":``.

    The split of a project depends on no other one, unless there are so few that a split would stay
    empty: then each split gets one project at least. Fewer than three cannot do that, and are split
    by file instead, or else by function; ``split_by`` in the report says so.

    Args:
        inputs: Folders, files and installed distributions; see
            :func:`dagnn.datasets.sources.find_sources`.
        out: The folder to make.
        seed: Of the split.
        group: What should not be divided: ``"project"``, ``"folder"`` or ``"file"``.
        workers: How many processes to use; by default one for each core.
        run: What parses, instead of processes of this machine: calls a function for each task and
            yields each when it is done, as :func:`dagnn.datasets.workers.run_all` does; such as
            ``partial(run_all_on_ray, address="auto")`` of :mod:`dagnn.datasets.ray_workers`.
        progress: Called with the number of files that are done and that of all.
    """
    if workers is not None and workers < 1:
        raise ValueError(f"expected at least one worker, got {workers}")
    if run is not None and workers is not None:
        raise ValueError(f"expected workers or another way to run, got both: {workers} and {run}")
    files = find_sources(inputs, group=group)
    if not files:
        raise ValueError("expected Python files (*.py) in the given folders, got none")
    folder = Path(out)
    check_folder(folder)
    (folder / "parts").mkdir(parents=True, exist_ok=True)
    parts = {folder / "parts" / f"{part_key(part)}.parquet": part for part in cut_parts(files)}
    missing = [(part, path) for path, part in parts.items() if not path.exists()]
    reused = len(files) - sum(len(part) for part, _ in missing)
    done = reused
    progress(done, len(files))
    run = run or partial(run_all, workers=workers or os.cpu_count() or 1)
    for part, path in _written(missing, run):
        if not path.exists():
            raise OSError(
                f"expected {path}, which was written elsewhere; all machines must see the same "
                "files under the same paths"
            )
        done += len(part)
        progress(done, len(files))

    key = hashlib.sha256(json.dumps([seed, *(path.name for path in parts)]).encode()).hexdigest()
    report = _finished(folder, key)
    if report is None:
        report = _merge(parts, folder, seed, group, key, reused)
    else:
        report.reused_files = reused
    for path in set((folder / "parts").iterdir()) - parts.keys():
        if PART_FILE.fullmatch(path.name) and path.is_file():
            path.unlink(missing_ok=True)
    return report


def _written(
    parts: Sequence[tuple[tuple[SourceFile, ...], Path]], run: RunAll
) -> Iterator[tuple[tuple[SourceFile, ...], Path]]:
    """Write parts in other processes, and yield each when it is there."""
    for task, is_done in run(write_part, parts):
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
    parts: dict[Path, tuple[SourceFile, ...]],
    folder: Path,
    seed: int,
    group: str,
    key: str,
    reused: int,
) -> CorpusReport:
    """Write the corpus. Of the files whose parts were there, those of damaged ones are parsed
    again."""
    seen: set[bytes] = set()
    skips = Skips()
    total = damaged = 0
    counts = dict.fromkeys(SPLITS, 0)
    alone = partial(run_all, workers=1)
    with replacing(folder / CORPUS_FILE) as unfinished:
        with CorpusWriter(unfinished, key) as writer:
            for path, part in parts.items():
                try:
                    table, skipped = read_part(path)
                except (OSError, ValueError):
                    damaged += sum(len(again) for again, _ in _written([(part, path)], alone))
                    table, skipped = read_part(path)
                total += len(table)
                skips.files += skipped.files
                skips.functions += skipped.functions
                digests = table["digest"].to_pylist()
                new = np.array([_is_new(digest, seen) for digest in digests], bool)
                split = split_of(part[0].project, seed)
                counts[split] += int(new.sum())
                writer.add(table.filter(new), [split] * int(new.sum()))
        if not total:
            raise ValueError(_no_functions(sum(map(len, parts.values())), skips))
        if min(counts.values()) == 0 and sum(counts.values()) >= MIN_UNITS:
            counts, group = _divide_again(unfinished, seed, group, key)
    report = CorpusReport(
        key,
        files=sum(map(len, parts.values())),
        reused_files=reused - damaged,
        projects=len({part[0].project for part in parts.values()}),
        split_by=group,
        functions=counts,
        duplicates=total - len(seen),
        skipped_functions=dict(skips.functions),
        skipped_files=skips.files,
    )
    with replacing(folder / REPORT_FILE) as unfinished:
        unfinished.write_text(json.dumps(asdict(report), indent=2), encoding="utf-8")
    return report


def _no_functions(files: int, skips: Skips) -> str:
    """What became of files of which no function is left."""
    text = f"expected functions in the given code, got none; files: {files}"
    reasons = Counter(skip["reason"] for skip in skips.files)
    for what, left_out in (("files", reasons), ("functions", skips.functions)):
        if left_out:
            counts = (f"{reason} ({count})" for reason, count in left_out.most_common())
            text += f"; {what} left out: {', '.join(counts)}"
    if skips.files:
        text += "; the first file left out is {file}: {error}".format(**skips.files[0])
    return text


def _divide_again(path: Path, seed: int, group: str, key: str) -> tuple[dict[str, int], str]:
    """Write a corpus with an empty split anew, divided by the largest units of which there are
    enough. Returns the functions of each split, and what the units are."""
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(path)
    projects, files = (table[name].to_pylist() for name in ("project", "path"))
    # Numbered: of two folders with the same name, also paths and lines may be the same.
    functions = [f"{number}:{file}" for number, file in enumerate(files)]
    units = {group: projects, "file": files, "function": functions}
    found = next(name for name, names in units.items() if len(set(names)) >= MIN_UNITS)
    split = divide(units[found], seed)
    splits = [split[unit] for unit in units[found]]
    with replacing(path) as unfinished, CorpusWriter(unfinished, key) as writer:
        writer.add(table.drop_columns("split"), splits)
    return {name: splits.count(name) for name in SPLITS}, found


def _is_new(value: Any, seen: set[Any]) -> bool:
    if value in seen:
        return False
    seen.add(value)
    return True
