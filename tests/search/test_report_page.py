from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from matplotlib.image import imread

from dagnn.search.report_page import format_page
from tests.search.pages import HARD_NAME, example

VOID = {"meta", "br", "img", "link", "hr", "input"}


class Balance(HTMLParser):
    """Sees that every tag is closed where it should be, and collects the text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_is_whole_and_needs_nothing_else() -> None:
    page = format_page(example(), "a <title>")
    parser = Balance()
    parser.feed(page)
    assert not parser.open
    for words in ("a <title>", HARD_NAME, "optimum", "dropped 3 of 203 rows", "0.9", "b c"):
        assert words in parser.text
    assert "<script" not in page
    assert not re.findall(r'(?:src|href)="(?!#)', page.replace('xlink:href="#', ""))
    assert "<b> &" not in page


def test_a_page_without_rounds_has_no_curve() -> None:
    network = example()
    assert network.report is not None
    short = replace(network, report=replace(network.report, rounds=(), exact=None))
    page = format_page(short, "short")
    assert 'id="curve"' not in page
    assert "not known" in page


def test_the_page_opens_in_a_browser(tmp_path: Path) -> None:
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        pytest.skip("needs chromium on the path: apt-get install chromium")
    path = tmp_path / "index.html"
    path.write_text(format_page(example(), "network"), encoding="utf-8")
    flags = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--hide-scrollbars",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
    ]

    def browse(*more: str) -> str:
        profile = f"--user-data-dir={tmp_path / 'profile'}"
        command = [browser, *flags, profile, *more, path.as_uri()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
        return done.stdout

    seen = browse("--dump-dom")
    assert seen.count("<svg") == 2
    assert "größe" in seen
    browse(f"--screenshot={tmp_path / 'page.png'}", "--window-size=1000,1400")
    picture = imread(tmp_path / "page.png")[:, :, :3]
    assert picture.shape[:2] == (1400, 1000)
    blue = (picture[..., 2] - picture[..., 0]) > 0.2  # nodes, edges and the curve
    half = blue[:700].sum(), blue[700:].sum()
    assert min(half) > 200
