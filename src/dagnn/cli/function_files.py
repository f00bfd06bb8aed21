"""What commands on source files share: reading functions, and naming what is unreadable."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import typer

from dagnn.cli.console import counted, messages, print_json

if TYPE_CHECKING:
    from dagnn.datasets.functions import FunctionGraph

__all__ = ["read_functions"]

STDIN = "<stdin>"


def read_functions(
    paths: Sequence[str], *, as_json: bool = False
) -> tuple[list[str], list[FunctionGraph]]:
    """All functions of some files and folders, or of standard input (``-``), and the file of each;
    in the order of the paths, the files of a folder by their names.

    A file that cannot be parsed is named on stderr, with line and column where the error has a
    place; if no file can, the command ends with status 1, for machines with an empty list. That
    there are no functions is said, too.
    """
    from dagnn.datasets.corpus_parts import parse_file
    from dagnn.datasets.functions import SourceError
    from dagnn.datasets.sources import find_sources, name_as_text

    files: list[str] = []
    functions: list[FunctionGraph] = []
    sources: dict[str, tuple[str, Callable[[], list[FunctionGraph]]]] = {}  # each once
    for path in paths:
        if path == "-":
            sources.setdefault(STDIN, (STDIN, _parse_stdin))
            continue
        for file in find_sources([path]):
            named = name_as_text(file.path), partial(parse_file, file)
            sources.setdefault(os.path.realpath(file.path), named)
    failed = 0
    for name, parse in sources.values():
        try:
            parsed = parse()
        except SourceError as error:
            failed += 1
            place = "" if error.lineno is None else f"{error.lineno}:{error.offset}:"
            messages.print(
                f"{name}:{place} {error.reason}: {error.msg}",
                markup=False,
                highlight=False,
                soft_wrap=True,
            )
            continue
        files += [name] * len(parsed)
        functions += parsed
    if not sources:
        raise ValueError(f"expected Python files, found none in {', '.join(paths)}")
    if failed == len(sources):
        if as_json:
            print_json([])
        raise typer.Exit(1)
    if not functions:
        readable = len(sources) - failed
        which = f"the {counted(readable, 'other file')}" if failed else counted(readable, "file")
        messages.print(f"no functions in {which}")
    return files, functions


def _parse_stdin() -> list[FunctionGraph]:
    from dagnn.datasets.corpus_parts import MAX_BYTES
    from dagnn.datasets.functions import SourceError, decode_source, functions_of_snippet

    if sys.stdin is None:  # as `<&-` makes it
        raise SourceError("unreadable", "it is closed", STDIN)
    try:
        # Bytes, since source says itself how it is encoded; no more than tell that it is too much.
        content = sys.stdin.buffer.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise SourceError("unreadable", str(error), STDIN) from error
    if len(content) > MAX_BYTES:
        raise SourceError("too large", f"more than {MAX_BYTES} bytes", STDIN)
    return functions_of_snippet(decode_source(content, STDIN), STDIN)
