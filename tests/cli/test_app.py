"""How commands end: by errors, and by Ctrl-C."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

# A command that is interrupted as soon as it runs.
SCRIPT = """
import sys
from dagnn.cli import main
from dagnn.datasets import corpus
from dagnn.bayesnet import table

def interrupted(*arguments, **options):
    raise KeyboardInterrupt

corpus.build_corpus = table.read_table = interrupted
sys.argv[0] = "dagnn"
main()
"""


# A command that ends by an error of the system.
FAILING = """
import sys
from dagnn.cli import main
from dagnn.datasets import corpus

def failing(*arguments, **options):
    open("/nowhere/x", "wb")

corpus.build_corpus = failing
sys.argv = ["dagnn", "data", "code"]
main()
"""


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", SCRIPT, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("data code", "interrupted; the same command goes on from what was kept, if anything"),
        ("bn learn t.csv", "interrupted"),
    ],
)
def test_an_interruption_is_told(command: str, words: str, tmp_path: Path) -> None:
    result = run(tmp_path, *command.split())
    assert result.returncode == 130
    assert result.stderr.splitlines()[-1] == f"dagnn: {words}"
    assert "Traceback" not in result.stderr


def test_errors_end_with_status_2(tmp_path: Path) -> None:
    result = run(tmp_path, "reproduce", "table9")
    assert result.returncode == 2
    assert result.stderr.startswith("dagnn: error: expected one of table1, ")
    assert result.stderr.strip().endswith("sweep, all, got 'table9'")


def test_errors_of_the_system_are_told_in_words(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FAILING]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    words = "dagnn: error: cannot read or write /nowhere/x: No such file or directory"
    assert result.stderr.splitlines()[-1] == words


@pytest.mark.parametrize(
    ("failing", "told"),
    [
        ("import torch; torch.empty(10**15)", ".*can't allocate memory.*"),
        ("import numpy; numpy.empty(10**15)", ": Unable to allocate.*"),
        ("[0] * 10**15", ""),
        ("import torch; raise torch.OutOfMemoryError('No.\\nMore')", ": No\\."),
        ("raise RuntimeError('CUBLAS_STATUS_ALLOC_FAILED when calling')", ": CUBLAS.*"),
        ("import errno, os; raise OSError(errno.ENOMEM, 'No memory', 'f')", ": .*No memory.*"),
        ("raise RuntimeError('slot 17 is out of memory slots')", None),
    ],
)
def test_want_of_memory_is_told(failing: str, told: str | None) -> None:
    script = f"""
import sys
from dagnn.cli.app import app, main

@app.command()
def large() -> None:
    {failing}

sys.argv = ["dagnn", "large"]
main()
"""
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if told is None:
        assert "Traceback" in done.stderr
        assert done.returncode == 1
        return
    first, second = done.stderr.splitlines()
    assert re.fullmatch(f"dagnn: error: out of memory{told}", first)
    assert second == "Try smaller batches, a smaller model or less data."
    assert done.returncode == 2


def test_letters_that_a_terminal_does_not_have() -> None:
    script = """
import sys
from dagnn.cli.app import app, main

@app.command()
def shout() -> None:
    print("d\u00e9j\u00e0_vu")

sys.argv = ["dagnn", "shout"]
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("d\\xe9j\\xe0_vu\n", 0)
