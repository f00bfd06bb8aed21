"""Which files a corpus of code is made of, and which project each belongs to."""

from __future__ import annotations

import os
import stat
import sysconfig
from collections.abc import Iterable, Iterator, Set
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

__all__ = ["GROUPINGS", "SourceFile", "find_sources", "name_as_text", "unmarked_folder"]

GROUPINGS = ("project", "folder", "file")
STANDARD_LIBRARY = "stdlib"
ITS_TESTS = {"test", "tests", "idle_test"}  # two thirds of its functions
MARKS = (".git", "pyproject.toml", "setup.py", "__init__.py")  # of a folder that is one project
MARKS_OF_ENTRIES = (".git", "pyproject.toml", "setup.py", "setup.cfg")  # of projects side by side
INSTALLED = frozenset({"site-packages", "dist-packages"})
LEFT_OUT = INSTALLED | {"__pycache__", "node_modules"}
SUFFIXES = {".py", ".pyi", ".pyw", ""}  # of files that may be given; scripts often have none


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
            ``setup.py``), a package (``__init__.py``) or one of several, or else the folder or
            module directly below it (each package of the standard library, for one). One of several
            folders is not one project if projects lie directly below it. ``"folder"`` is each
            folder of files, ``"file"`` each file.
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


def unmarked_folder(inputs: Iterable[str]) -> str | None:
    """The only folder among the inputs, if no file tells what is a project in it: then each of its
    entries counts as one."""
    folders = [given for given in inputs if Path(given).is_dir()]
    if len(folders) != 1 or _is_marked(Path(folders[0])) or _holds_projects(Path(folders[0])):
        return None
    return folders[0]


def _default() -> Iterator[SourceFile]:
    yield from _standard_library()
    for distribution in metadata.distributions():
        yield from _installed(distribution)


def _standard_library() -> Iterator[SourceFile]:
    # Called by one name in all versions of Python, so that a module keeps its split.
    yield from _below(Path(sysconfig.get_path("stdlib")), STANDARD_LIBRARY, LEFT_OUT | ITS_TESTS)


def _all(inputs: list[str]) -> Iterator[SourceFile]:
    several = sum(Path(given).is_dir() for given in inputs) > 1
    for given in inputs:
        if not given:
            raise ValueError("expected a file, a folder or a distribution, got an empty name")
        path = Path(given)
        if path.is_dir():
            is_project = several and not _holds_projects(path)
            yield from _below(path, path.resolve().name or "root", is_project=is_project)
        elif os.path.lexists(path):
            if path.suffix.lower() not in SUFFIXES:
                raise ValueError(f"expected a Python file (*.py) or a folder of them, got {given}")
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
        owners = sorted(set(metadata.packages_distributions().get(name, ())))
        hint = f", a package of the distribution {' and of '.join(owners)}" if owners else ""
        raise FileNotFoundError(
            "expected a file, a folder or the name of an installed distribution, got "
            f"{name!r}{hint}"
        ) from None


def _installed(distribution: metadata.Distribution) -> Iterator[SourceFile]:
    project = distribution.name
    for entry in distribution.files or ():
        if entry.suffix == ".py" and ".." not in entry.parts:
            yield _file(Path(str(distribution.locate_file(entry))), project, f"{project}/{entry}")


def _is_marked(folder: Path, marks: Iterable[str] = MARKS) -> bool:
    return any(os.path.exists(folder / mark) for mark in marks)


def _holds_projects(folder: Path) -> bool:
    """Whether a folder has projects or installed packages side by side."""
    _, entries, _ = next(os.walk(folder), ("", [], []))  # none where it cannot be read
    return folder.resolve().name in INSTALLED or any(
        name.endswith(".dist-info")
        or (_is_wanted(folder / name, LEFT_OUT) and _is_marked(folder / name, MARKS_OF_ENTRIES))
        for name in entries
    )


def _below(
    root: Path, root_name: str, left_out: Set[str] = LEFT_OUT, *, is_project: bool = False
) -> Iterator[SourceFile]:
    errors: list[OSError] = []
    projects = {str(root): root_name if is_project or _is_marked(root) else ""}
    for folder, folders, files in os.walk(root, onerror=errors.append):
        path = Path(folder)  # "./a" of os.walk is "a"
        project = projects.pop(str(path))
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
