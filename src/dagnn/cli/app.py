"""The tree of commands."""

from __future__ import annotations

import errno
import io
import sys
from typing import Annotated

import typer

from dagnn import __version__
from dagnn.cli.console import complain, speaks

__all__ = ["app", "main"]

app = typer.Typer(
    name="dagnn",
    help="Learning on directed acyclic graphs: code, neural architectures, Bayesian networks.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
data = typer.Typer(name="data", help="Make and fetch data sets.", no_args_is_help=True)
train = typer.Typer(name="train", help="Train a model on a task.", no_args_is_help=True)
app.add_typer(data)
app.add_typer(train)


def _version(asked: bool) -> None:
    if asked:
        print(f"dagnn {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Read the options that stand before the command."""


INTERRUPTED = 130
RESUMABLE = ("train ", "reproduce ", "data code", "data get")  # how such commands begin


def main() -> None:
    """Run the command line; what the user can mend ends in a line or two on stderr and status 2,
    and an interruption in one and status 130."""
    # Where a terminal has no such letters, names are printed with escapes rather than not at all.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        app()
    except (ValueError, OSError, MemoryError, RuntimeError) as error:
        if _is_want_of_memory(error):
            first = str(error).partition("\n")[0]
            said = f": {first}" if first else ""
            complain(f"out of memory{said}\nTry smaller batches, a smaller model or less data.")
        elif isinstance(error, ValueError | OSError):
            complain(_words(error))
        else:
            raise
        sys.exit(2)
    except (KeyboardInterrupt, SystemExit) as ended:
        # Of an interruption inside a command, typer makes an exit with this status, in silence.
        if isinstance(ended, SystemExit) and ended.code != INTERRUPTED:
            raise
        if speaks():
            command = " ".join(sys.argv[1:3])
            goes_on = "; the same command goes on from what was kept, if anything"
            print(f"dagnn: interrupted{goes_on * command.startswith(RESUMABLE)}", file=sys.stderr)
        sys.exit(INTERRUPTED)


def _words(error: ValueError | OSError) -> str:
    """What an error says; of one that the system raised, without its number."""
    if not isinstance(error, OSError) or error.errno is None:
        return str(error)
    where = "" if error.filename is None else f"cannot read or write {error.filename}: "
    return f"{where}{error.strerror}"


# How PyTorch says so on a CPU, of shared memory, and for cuBLAS: in RuntimeErrors like any other.
WANT_OF_MEMORY = "can't allocate memory", "Cannot allocate memory", "_STATUS_ALLOC_FAILED"


def _is_want_of_memory(error: Exception) -> bool:
    if isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM:
        return True
    torch = sys.modules.get("torch")  # which most commands do not wait for
    if torch is not None and isinstance(error, torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(word in str(error) for word in WANT_OF_MEMORY)
