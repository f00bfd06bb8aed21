"""The documentation builds without a warning, explains every public name, and links somewhere."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from typer.testing import CliRunner

from dagnn.cli import app

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "dagnn"
PACKAGES = [
    "graph", "ops", "nn", "training", "datasets", "tasks", "bayesnet", "autoencoders", "search",
    "experiments",
]  # fmt: skip
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]


class Page(HTMLParser):
    """What a page links to, what it loads to be shown, and the places in it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.places: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value for name, value in attrs if value is not None}
        if "id" in values:
            self.places.add(values["id"])
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        elif tag == "link" and values.get("rel") == "stylesheet":
            self.loads.append(values["href"])
        elif tag in ("img", "script", "iframe") and "src" in values:
            self.loads.append(values["src"])


def build(site: Path) -> None:
    command = ["-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going"]
    built = subprocess.run(
        [sys.executable, *command, "-d", str(site.parent / "trees"), str(ROOT / "docs"), str(site)],
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stderr


def exported(path: Path) -> list[str]:
    """``__all__`` of a file, which is read and not imported: that takes the build long enough."""
    for statement in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__all__":
            return ast.literal_eval(statement.value)
    return []


def homes(path: Path) -> dict[str, str]:
    """Of each name that a file imports from dagnn, the full name where it is defined."""
    tree = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    imports = [node for node in tree if isinstance(node, ast.ImportFrom)]
    return {name.name: f"{node.module}.{name.name}" for node in imports for name in node.names}


def test_site(tmp_path: Path) -> None:
    pytest.importorskip("furo", reason="needs Sphinx and its theme: pip install '.[docs]'")
    site = tmp_path / "site"
    build(site)
    pages = {path: Page(path) for path in site.rglob("*.html")}

    for package in PACKAGES:
        places = pages[site / "api" / f"{package}.html"].places
        init = SOURCE / package / "__init__.py"
        names = [homes(init)[name] for name in exported(init)]
        for path in set(init.parent.glob("*.py")) - {init}:
            names += [f"dagnn.{package}.{path.stem}.{name}" for name in exported(path)]
        assert names
        assert [name for name in names if name not in places] == []
    listed = {urlsplit(link).fragment for link in pages[site / "api" / "index.html"].links}
    top = SOURCE / "__init__.py"
    assert exported(top)
    assert [name for name in exported(top) if homes(top)[name] not in listed] == []

    commands = pages[site / "commands.html"].places
    for command in ("data-code", "train-tok", "bn-learn", "reproduce", "report"):
        assert f"dagnn-{command}" in commands

    for path, page in pages.items():
        for address in page.loads:
            assert not urlsplit(address).netloc, f"{path.name} needs a network for {address}"
        for link in page.links + page.loads:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            assert target.exists(), f"{path.name} links to {link}"
            if parts.fragment and target in pages:
                assert unquote(parts.fragment) in pages[target].places, f"{path.name}: {link}"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_in_the_repository_lead_somewhere(path: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.M | re.S)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        parts = urlsplit(link)
        if parts.scheme:
            continue
        target = path.parent / parts.path if parts.path else path
        assert target.exists(), link
        if parts.fragment:
            headings = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), flags=re.M)
            anchors = {
                re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in headings
            }
            assert parts.fragment in anchors, link


def test_first_screen_leads_to_a_report() -> None:
    first_screen = (ROOT / "README.md").read_text(encoding="utf-8").partition("\n## ")[0]
    found = re.findall(r"^\$ \.venv/bin/dagnn (.*?) (--.*)$", first_screen, flags=re.M)
    assert [command for command, _ in found] == ["data code stdlib", "reproduce table1", "report"]
    assert found[-1][1].endswith("--out report.html")
    for command, arguments in found:
        shown = CliRunner().invoke(app, [*command.split(), "--help"], env={"COLUMNS": "200"}).output
        for option in re.findall(r"--[\w-]+", arguments):
            assert option in shown, (command, option)
