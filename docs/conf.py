"""Builds the documentation (``make docs``); neither this nor what is built needs a network."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "extensions"))

from dagnn import __version__

project = "dagnn"
author = "The dagnn authors"
version = release = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "mathml",
    "reference",
    "repository",
]
exclude_patterns = ["extensions"]
nitpicky = True
nitpick_ignore_regex = [("py:.*", r"(?!dagnn\.).*")]  # names of other packages lead nowhere

myst_enable_extensions = ["dollarmath"]
myst_fence_as_directive = ["math"]  # as GitHub writes displayed equations
myst_heading_anchors = 3

autosummary_generate = False
autodoc_default_options = {"members": True, "undoc-members": True, "show-inheritance": True}
autodoc_inherit_docstrings = False
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
napoleon_numpy_docstring = False
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
toc_object_entries_show_parents = "hide"

html_math_renderer = "mathml"
html_theme = "furo"
html_title = f"dagnn {version}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_copyright = False
html_show_sphinx = False
