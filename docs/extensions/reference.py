"""The reference, made from the package as it is: modules, public names, and commands."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.docutils import SphinxDirective

EXPORTING = ("dagnn", "dagnn.training")  # packages that export names of their modules

LONGEST_VALUE = 300  # characters of a constant that are shown


def is_constant(module: ModuleType, name: str) -> bool:
    """Whether a name is that of a value or a type alias, which have no docstring."""
    return getattr(getattr(module, name), "__name__", None) != name


def describe_constant(module: ModuleType, name: str) -> list[str]:
    """A constant with its value, unless that is long, and the comment behind it."""
    value = repr(getattr(module, name))
    comment = re.search(rf"^{name}\b.*?  # (.*)$", inspect.getsource(module), flags=re.M)
    return [
        f".. py:data:: {name}",
        f"   :module: {module.__name__}",
        *([f"   :value: {value}"] if len(value) <= LONGEST_VALUE else []),
        "",
        *([f"   {comment[1]}", ""] if comment else []),
    ]


def modules_of(package: str) -> Iterator[ModuleType]:
    """The modules of a package, without packages in it: GPU kernels are nobody's interface."""
    for found in iter_modules(import_module(package).__path__, prefix=f"{package}."):
        if not found.ispkg:
            yield import_module(found.name)


def home_of(package: ModuleType, name: str) -> str:
    """Where a name that a package exports is defined."""
    value = getattr(package, name)
    return f"{value.__module__}.{value.__qualname__}"


class Modules(SphinxDirective):
    """Each module of a package, with its public names."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        (package,) = self.arguments
        lines = [f".. automodule:: {package}", "   :no-members:", ""]
        for module in modules_of(package):
            title = module.__name__.removeprefix(f"{package}.")
            constants = [name for name in module.__all__ if is_constant(module, name)]
            lines += [title, "-" * len(title), f".. automodule:: {module.__name__}"]
            lines += [f"   :exclude-members: {', '.join(constants)}", ""]
            for name in constants:
                lines += describe_constant(module, name)
        return self.parse_text_to_nodes("\n".join(lines), allow_section_headings=True)


class Names(SphinxDirective):
    """What a package exports itself, as a table that leads to where each thing is explained."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        package = import_module(self.arguments[0])
        homes = [f"   ~{home_of(package, name)}" for name in package.__all__]
        return self.parse_text_to_nodes("\n".join([".. autosummary::", "", *homes]))


class Commands(SphinxDirective):
    """The command line, as its own help explains it."""

    def run(self) -> list[nodes.Node]:
        command = [sys.executable, "-m", "typer", "dagnn.cli", "utils", "docs", "--name", "dagnn"]
        page = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
        # Each command has its heading, so that lists of them, with help cut short, say nothing new.
        page = re.sub(r"^\*\*Commands\*\*:\n\n(\* .*\n)+", "", page, flags=re.M)
        page = page.removeprefix("# `dagnn`\n")
        return self.parse_text_to_nodes(page, allow_section_headings=True)


def resolve(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, text: nodes.TextElement
) -> nodes.Element | None:
    """A reference to an exported name leads to its home; one to a name kept inside, nowhere."""
    target = node.get("reftarget", "")
    for package in map(import_module, EXPORTING):
        name, dot, member = target.removeprefix(f"{package.__name__}.").partition(".")
        if target.startswith(package.__name__) and name in package.__all__:
            home = home_of(package, name) + dot + member
            python = env.domains.python_domain
            return python.resolve_xref(env, node["refdoc"], app.builder, "obj", home, node, text)
    module, _, name = target.rpartition(".")
    inside = module.startswith("dagnn.") and hasattr(sys.modules.get(module), name)
    return text if inside else None


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("modules", Modules)
    app.add_directive("names", Names)
    app.add_directive("commands", Commands)
    app.connect("missing-reference", resolve)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
