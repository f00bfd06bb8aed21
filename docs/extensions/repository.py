"""Pages of the repository that are written for GitHub, as pages of the documentation."""

from __future__ import annotations

import re
from pathlib import Path

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).parents[2]


def link_from_docs(link: re.Match[str]) -> str:
    """A link of a page in the root of the repository, as one of a page in ``docs/``."""
    text, target = link.groups()
    if "://" in target:
        return link[0]
    if not target.startswith("docs/") and not target.endswith(".md"):
        return f"[{text}](../{target})"
    page = target.removeprefix("docs/").lower()  # CHANGELOG.md is the page changelog.md
    return f"[{'' if text == target else text}]({page})"  # without a text: the page's title


class Repository(SphinxDirective):
    """A page of the root of the repository, or the part of it between two headings."""

    required_arguments = 1
    option_spec = {"from": directives.unchanged, "to": directives.unchanged}  # noqa: RUF012

    def run(self) -> list[nodes.Node]:
        path = ROOT / self.arguments[0]
        self.env.note_dependency(path)
        text = path.read_text(encoding="utf-8")
        for option, side in (("from", slice(1, None)), ("to", slice(0, 1))):
            if option in self.options:
                parts = re.split(rf"^(?=## {re.escape(self.options[option])}$)", text, flags=re.M)
                text = "".join(parts[side])
        text = re.sub(r"\[([^\]]*)\]\(([^)]+)\)", link_from_docs, text)
        return self.parse_text_to_nodes(equations(text), allow_section_headings=True)


def equations(text: str) -> str:
    """GitHub's equations in a line, as MyST writes them."""
    return re.sub(r"\$`(.+?)`\$", r"{math}`\1`", text)


def read_page(app: Sphinx, page: str, source: list[str]) -> None:
    source[0] = equations(source[0])


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("repository", Repository)
    app.connect("source-read", read_page)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
