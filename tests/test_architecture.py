"""docs/architecture.md shows the house as it is."""

from __future__ import annotations

import ast
import re
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "dagnn"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
NAMES = set(re.findall(r"[\w*]+\.py", PAGE))  # also such as cpu_*.py
MODULES = sorted(PACKAGE.rglob("*.py"))
# What a package may import; the command line may import everything.
BELOW = {
    "kernels": set(),
    "graph": {"kernels"},
    "ops": {"graph", "kernels"},
    "nn": {"graph", "ops"},
    "training": {"graph"},
    "datasets": {"graph"},
    "bayesnet": {"datasets", "graph"},
    "tasks": {"datasets", "graph", "nn", "training"},
    "autoencoders": {"bayesnet", "datasets", "graph", "nn", "training"},
    "search": {"autoencoders", "bayesnet", "datasets", "graph", "training"},
    "experiments": {"autoencoders", "bayesnet", "datasets", "search", "tasks", "training"},
}


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def imported(path: Path) -> set[str]:
    """The packages of dagnn that a module imports."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    parts = [name.split(".") for name in names]
    return {part[1] for part in parts if part[0] == "dagnn" and len(part) > 1}


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_page_names_every_module(path: Path) -> None:
    if path.name != "__init__.py":
        named = any(fnmatchcase(path.name, word) for word in NAMES)
        assert named, f"say in docs/architecture.md what {name_of(path)} is for"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_no_package_imports_one_to_its_right(path: Path) -> None:
    package = name_of(path).split("/")[0]
    if package in BELOW:
        assert imported(path) <= BELOW[package] | {package}
    else:
        assert package in ("cli", "__init__.py", "__main__.py"), f"say in BELOW where {package} is"


def test_fast_paths_do_not_import_the_reference() -> None:
    fast = [PACKAGE / "ops" / "cpu.py", *(PACKAGE / "ops" / "triton").rglob("*.py")]
    for path in fast:
        assert "reference" not in path.read_text(encoding="utf-8").partition("__all__")[0]
