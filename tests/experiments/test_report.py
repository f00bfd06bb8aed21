"""The report: complete, self-contained, readable on a phone."""

from __future__ import annotations

import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from dagnn.bayesnet.network import BayesianNetwork
from dagnn.bayesnet.scores import FamilyScores
from dagnn.bayesnet.table import Table
from dagnn.datasets.bayesian_networks import sample_asia
from dagnn.experiments.cells import Cell
from dagnn.experiments.figures import draw_figure, svg
from dagnn.experiments.records import Record
from dagnn.experiments.registry import make_entry
from dagnn.experiments.report import html_report
from dagnn.experiments.results_page import results_page
from dagnn.experiments.views import view_entry
from dagnn.experiments.wording import NO_COMMAND
from tests.experiments.fake_records import latent_metrics, make_record

EMPTY = {"meta", "br", "link", "path", "use", "line", "img"}


@pytest.fixture(scope="module")
def records() -> list[Record]:
    """Something for every table and figure."""
    found = {}
    for preset in ("quick", "paper"):
        for name in ("table1", "table2", "figure-time", "figure-layers", "figure-lp"):
            for cell in make_entry(name, preset).cells([0, 1]):
                found[cell.id] = make_record(cell, _metrics(cell.kind), seed=cell.seed,
                                             history=_history())  # fmt: skip
    adjacency = np.zeros((8, 8), dtype=bool)
    adjacency[3, 1] = adjacency[5, 3] = adjacency[5, 2] = True
    network = BayesianNetwork.fit(FamilyScores(Table.from_frame(sample_asia(200))), adjacency)
    (search,) = make_entry("figure-network", "paper").cells()
    content = {"score": -11107.293}
    found["search"] = make_record(search, content, network=network.to_json())
    return list(found.values())


def _history() -> list[dict[str, float]]:
    return [{"epoch": i, "loss": 1.0 / (i + 1), "train_seconds": 1.0} for i in range(3)]


def _metrics(kind: str) -> dict[str, object]:
    if kind == "autoencoder":
        return latent_metrics([0.3, 0.31], [0.9, 0.91])
    if kind == "lengths":
        return {"mean": 9.0, "graphs": 100, "above_30": 2, "counts": [0] * 8 + [98] + [0] * 22}
    if kind == "baseline":
        return {"Node2Token": 0.1, "TargetInGraph": 0.27, "MajorityInValid": 0.2}
    scores = {"test_f1": 0.17, "test_accuracy": 0.98, "valid_f1": 0.2, "valid_accuracy": 0.97}
    return {**scores, "train_seconds": 4.2}


class Page(HTMLParser):
    """Text, and whether every tag is closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []
        self.outside: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in EMPTY:
            self.open.append(tag)
        for name, value in attrs:
            if name in ("src", "href", "xlink:href") and value and not value.startswith("#"):
                self.outside.append(value)

    def handle_endtag(self, tag: str) -> None:
        if tag not in EMPTY:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


@pytest.fixture(scope="module")
def html(records: list[Record]) -> str:
    return html_report(records)


def test_page(html: str) -> None:
    page = Page(html)
    text = "".join(page.text)
    assert not page.open
    assert not page.outside
    assert html.count("<svg") >= 8
    for title in ("Table 1:", "Table 6:", "Figure 3:", "Figure 6:"):
        assert title in text
    assert "34.41 ± 0.38" in text  # the paper's
    assert "17.00 ± 0.00" in text  # ours
    assert re.search(r"-\d+\.\d se", text)
    assert "dagnn reproduce table1 --preset paper --row GCN --column tok --seeds 0,1" in text
    assert "Quick preset" in text
    assert "Training curves" in text


def test_the_same_figure_is_the_same_text(records: list[Record]) -> None:
    view = view_entry("figure-time", "paper", records)
    first, second = (draw_figure(view) for _ in range(2))
    assert first is not None
    assert second is not None
    assert svg(first) == svg(second)


def test_page_without_records() -> None:
    text = "".join(Page(html_report([])).text)
    assert text.count("Not measured yet") == 10
    assert results_page([]).count("Not measured yet") == 10


def test_records_of_another_folder() -> None:
    """There, the commands need one more option."""
    for make in (html_report, results_page):
        assert "--results my/runs" in make([], "my/runs")
        assert "results/cells" not in make([], "my/runs")
        assert "--results" not in make([])


def test_text_is_escaped() -> None:
    cell = make_entry("table2", "paper").cells()[0]
    bad = make_record(cell, latent_metrics([0.3], [0.9]), data="<script>")
    assert "<script>" not in html_report([bad])


def test_markdown(records: list[Record]) -> None:
    page = results_page(records)
    tables = [line for line in page.splitlines() if line.startswith("| DAGNN | ")]
    assert tables[0].startswith("| DAGNN | **17.00 ± 0.00** · 34.41 ± 0.38 | ")
    for block in re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE):
        assert len({line.count("|") for line in block.splitlines()}) == 1


def test_commands_are_those_of_the_runs() -> None:
    (cell,) = make_entry("table2", "paper").only(["S-VAE"], ["na"]).cells([4])
    other = cell.trained_with({"epochs": 2, "learning_rate": 5e-4})
    record = make_record(other, _metrics("autoencoder"), seed=4)
    command = (
        "dagnn reproduce table2 --preset paper --row S-VAE --column na-r --seeds 4 --epochs 2 "
        "--learning-rate 0.0005"
    )
    pages = ("".join(Page(html_report([record])).text), results_page([record]))
    assert all(command in page for page in pages)
    assert f"| `{command}` |" in pages[1]
    clipped = Cell(cell.kind, {**cell.settings, "clip": 7.0})
    page = results_page([make_record(clipped, _metrics("autoencoder"))])
    assert page.count(NO_COMMAND) == 3  # with the figure of times
    assert "--row" not in page


def test_in_a_browser(html: str, tmp_path: Path) -> None:
    """On a screen as wide as a phone nothing but tables is wider than the screen."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        pytest.skip("needs chromium on the PATH; on Debian: apt-get install chromium")
    check = """<script>addEventListener("load", () => {
      document.title = [document.documentElement.scrollWidth <= innerWidth,
        document.querySelectorAll("svg").length, document.querySelectorAll("table").length,
        [...document.querySelectorAll("svg")].every(s => s.closest("details") ||
          s.getBoundingClientRect().height > 50)].join(" ");
    });</script></body>"""
    page = tmp_path / "report.html"
    page.write_text(html.replace("</body>", check), encoding="utf-8")
    flags = (
        "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
        "--disable-background-networking", f"--user-data-dir={tmp_path / 'profile'}",
        "--window-size=500,900",
    )  # fmt: skip
    shot = tmp_path / "report.png"
    subprocess.run(
        [browser, *flags, f"--screenshot={shot}", page.as_uri()],
        check=True, capture_output=True, timeout=120,
    )  # fmt: skip
    assert shot.read_bytes().startswith(b"\x89PNG")
    done = subprocess.run(
        [browser, *flags, "--dump-dom", page.as_uri()],
        check=True, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    title = re.search(r"<title>(.*?)</title>", done.stdout)
    assert title is not None
    fits, pictures, tables, visible = title[1].split()
    assert (fits, visible) == ("true", "true")
    assert int(pictures) >= 8
    assert int(tables) >= 10
