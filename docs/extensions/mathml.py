"""Equations as MathML, which browsers draw themselves: no script, no font, no network."""

from __future__ import annotations

import re

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator

# What latex2mathml does not know, in words that it knows.
SYNONYMS = {
    r"\{aligned\}": r"{align*}",
    r"\\[bB]ig+\\\|": r"\\|",
    r"\\setminus": r"\\backslash",
    r"\\operatorname\*(\{\w+\})": r"\\operatorname\1\\limits",
}

logger = logging.getLogger(__name__)


def mathml(node: nodes.Element, display: str) -> str:
    latex = node.astext().strip()
    if display == "block" and "&" in latex and r"\begin{aligned}" not in latex:
        rows = re.split(r"\n\s*\n", latex)  # with Sphinx, a blank line begins another row
        latex = r"\begin{align*}" + r" \\ ".join(rows) + r"\end{align*}"
    for pattern, synonym in SYNONYMS.items():
        latex = re.sub(pattern, synonym, latex)
    result = convert(latex, display=display)
    if re.search(r"[\\&](?!#)", result):
        logger.warning("latex2mathml does not know all of %s", node.astext(), location=node)
    return result


def visit_inline(translator: HTML5Translator, node: nodes.math) -> None:
    translator.body.append(mathml(node, "inline"))
    raise nodes.SkipNode


def visit_display(translator: HTML5Translator, node: nodes.math_block) -> None:
    translator.body.append(f'<div class="equation">{mathml(node, "block")}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_display, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
