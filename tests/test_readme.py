"""README's Python runs and prints what its comments say; its commands, links and pictures exist."""

from __future__ import annotations

import ast
import contextlib
import io
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)


def promised(block: str) -> list[str]:
    """What the comments behind calls of print say is printed."""
    outputs = []
    for line in block.splitlines():
        behind = re.match(r"\s*print\(.*\)\s+# (.*)$", line)
        if behind:
            outputs.append(behind.group(1))
    return outputs


def test_there_is_python() -> None:
    assert len(BLOCKS) >= 5
    first = [line for line in BLOCKS[0].splitlines() if line.strip()]
    assert len(first) <= 10  # the library in ten lines


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.splitlines()[-1][:40])
def test_python_runs(block: str) -> None:
    ast.parse(block)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(block, "README.md", "exec"), {"__name__": "readme"})
    lines = printed.getvalue().splitlines()
    for output in promised(block):
        # A comment may explain: "torch.Size([1, 10]): one row per graph", or "child-sum: …".
        assert any(line in output for line in lines) or not re.search(r"[\[(]\d", output), output


def test_whole_line_comments_are_printed() -> None:
    block = next(block for block in BLOCKS if "CycleError" in block)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(block, "README.md", "exec"), {"__name__": "readme"})
    assert printed.getvalue().splitlines()[-1] == block.splitlines()[-1].strip().removeprefix("# ")


def test_commands_are_targets_of_make() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    first_screen = README.splitlines()[:45]
    commands = re.findall(r"\$ make (\w+)", "\n".join(first_screen))
    assert commands == ["demo", "test"]
    for command in commands:
        assert re.search(rf"^{command}:", makefile, flags=re.MULTILINE)


def test_links_lead_somewhere() -> None:
    links = [link for link in re.findall(r"\]\(([^)]+)\)", README) if "://" not in link]
    assert links
    for link in links:
        assert (ROOT / link).exists(), link


def test_pictures_are_small() -> None:
    pictures = list((ROOT / "docs" / "images").glob("*.png"))
    assert pictures
    for picture in pictures:
        assert picture.stat().st_size < 150_000, picture
