"""Which files a corpus of code is made of, and which project each belongs to."""

from __future__ import annotations

import os
import stat
import sysconfig
from collections.abc import Iterable, Iterator, Set
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

__all__ = ["GROUPINGS", "SourceFile", "find_sources", "name_as_text"]

GROUPINGS = ("project", "folder", "file")
STANDARD_LIBRARY = "stdlib"
ITS_TESTS = {"test", "tests", "idle_test"}  # two thirds of its functions
MARKS = (".git", "pyproject.toml", "setup.py", "__init__.py")  # of a folder that is one project
LEFT_OUT = frozenset({"__pycache__", "site-packages", "dist-packages", "node_modules"})


class SourceFile(NamedTuple):
    """A file as it was found; size and time say whether it has changed since."""

    project: str
    name: str  # how the corpus calls it: its path inside of what was asked for
    path: str
    size: int
    modified: int  # ns


def find_sources(inputs: Iterable[str] = (), *, group: str = "project") -> list[SourceFile]:
    """The Python files of folders, files and installed distributions, in a fixed order.

    Links to folders are not followed. Hidden folders, virtual environments and installed packages
    inside of a folder are left out. What is no regular file (a pipe, a broken link) is listed with
    the size -1.

    Args:
        inputs: Paths, names of distributions as ``pip`` knows them, and ``stdlib`` for the
            standard library (without its tests). By default the latter and all installed
            distributions.
        group: What functions are split by. ``"project"`` is a distribution, a repository (a folder
            with ``.git``), a folder that was given and is a project (it has ``pyproject.toml`` or
            ``setup.py``) or a package (``__init__.py``), or else the folder or module directly
            below it (each package of the standard library, for one); ``"folder"`` is each folder
            of files, ``"file"`` each file.
    """
    if group not in GROUPINGS:
        raise ValueError(f"expected one of {', '.join(GROUPINGS)} to group by, got {group!r}")
    inputs = list(inputs)
    found: dict[str, SourceFile] = {}
    for file in _all(inputs) if inputs else _default():
        if group != "project":
            name = Path(file.name)
            file = file._replace(project=str(name.parent if group == "folder" else name))
        found.setdefault(os.path.realpath(file.path), file)  # each file once
    return sorted(found.values())


def _default() -> Iterator[SourceFile]:
    yield from _standard_library()
    for distribution in metadata.distributions():
        yield from _installed(distribution)


def _standard_library() -> Iterator[SourceFile]:
    # Called by one name in all versions of Python, so that a module keeps its split.
    yield from _below(Path(sysconfig.get_path("stdlib")), STANDARD_LIBRARY, LEFT_OUT | ITS_TESTS)


def _all(inputs: list[str]) -> Iterator[SourceFile]:
    for given in inputs:
        path = Path(given)
        if path.is_dir():
            yield from _below(path, path.resolve().name or "root")
        elif os.path.lexists(path):
            folder = path.absolute().parent.name
            yield _file(path, folder, f"{folder}/{path.name}")
        elif given == STANDARD_LIBRARY:
            yield from _standard_library()
        else:
            yield from _installed(_distribution(given))


def _distribution(name: str) -> metadata.Distribution:
    try:
        return metadata.distribution(name)
    except (metadata.PackageNotFoundError, ValueError):
        raise FileNotFoundError(
            f"expected a file, a folder or the name of an installed distribution, got {name!r}"
        ) from None


def _installed(distribution: metadata.Distribution) -> Iterator[SourceFile]:
    project = distribution.name
    for entry in distribution.files or ():
        if entry.suffix == ".py" and ".." not in entry.parts:
            yield _file(Path(str(distribution.locate_file(entry))), project, f"{project}/{entry}")


def _below(root: Path, root_name: str, left_out: Set[str] = LEFT_OUT) -> Iterator[SourceFile]:
    errors: list[OSError] = []
    is_project = any((root / mark).exists() for mark in MARKS)
    projects = {str(root): root_name if is_project else ""}
    for folder, folders, files in os.walk(root, onerror=errors.append):
        path, project = Path(folder), projects.pop(folder)
        folders[:] = sorted(name for name in folders if _is_wanted(path / name, left_out))
        for name in folders:
            is_repository = (path / name / ".git").exists()
            below = name if is_repository else project or f"{root_name}/{name}"
            projects[str(path / name)] = below
        for name in files:
            if name.endswith(".py"):
                inside = (path / name).relative_to(root).as_posix()
                module = f"{root_name}/{name.removesuffix('.py')}"
                yield _file(path / name, project or module, f"{root_name}/{inside}")
    for error in errors:
        yield _file(Path(error.filename), root_name, f"{root_name}/{error.filename}")


def _file(path: Path, project: str, name: str) -> SourceFile:
    try:
        found = path.stat()
    except OSError:
        return SourceFile(name_as_text(project), name_as_text(name), str(path), -1, 0)
    size = found.st_size if stat.S_ISREG(found.st_mode) else -1
    return SourceFile(name_as_text(project), name_as_text(name), str(path), size, found.st_mtime_ns)


def name_as_text(name: str) -> str:
    """A name that can be written down: those of files may be any bytes."""
    return os.fsencode(name).decode("utf-8", "replace")


def _is_wanted(folder: Path, left_out: Set[str]) -> bool:
    return (
        folder.name not in left_out
        and not folder.name.startswith(".")
        and not folder.is_symlink()
        and not (folder / "pyvenv.cfg").exists()
    )
