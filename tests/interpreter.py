"""Kernels of Triton, on a GPU or in its interpreter, which must be chosen before it is imported."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

__all__ = ["CUDA", "INTERPRETED", "check_in_interpreter", "kernels", "outside"]

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
CUDA = torch.cuda.is_available() and not INTERPRETED

kernels = pytest.mark.skipif(
    find_spec("triton") is None or not (INTERPRETED or CUDA),
    reason="runs in the interpreter, in a process of its own",
)
outside = pytest.mark.skipif(INTERPRETED, reason="this is the interpreter")


def check_in_interpreter(file: str, *options: str) -> None:
    """Run the tests of a file again, in a process in which kernels are interpreted."""
    pytest.importorskip("triton")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", file, *options],
        cwd=Path(__file__).parents[1],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert "passed" in done.stdout
