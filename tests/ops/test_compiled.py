"""The kernels as Triton's compiler makes them for compute capability 9.0; no GPU is needed.

The interpreter finds what a kernel computes. This finds what it does not: code that the compiler
refuses, and layouts that make programs slow.
"""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("triton", reason="Triton comes with PyTorch on Linux")

from dagnn.nn import fused
from dagnn.ops.triton import launch, wave
from tests.interpreter import INTERPRETED
from tests.ops.compiler import Compiler, barriers_while_gathering, compiler
from tests.ops.triton_cases import chain, make_model, run

__all__ = ["compiler"]
pytestmark = pytest.mark.skipif(INTERPRETED, reason="the interpreter compiles nothing")


@pytest.mark.parametrize(
    ("aggregator", "wavefront", "precision", "changes"),
    [
        ("attention-types", "never", "fp16", {"early": False}),
        ("attention-types", "never", "fp16", {"early": True}),
        ("attention-types", "always", "fp16", {"early": True}),
        ("gated_sum", "never", "fp16", {"early": False}),
        ("attention-types", "always", "fp32", {}),
    ],
)
def test_level_loops(
    aggregator: str,
    wavefront: str,
    precision: str,
    changes: dict[str, Any],
    compiler: Compiler,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At the paper's size."""
    monkeypatch.setenv("DAGNN_WAVEFRONT", wavefront)
    asked = "bf16" if precision == "fp16" else precision
    monkeypatch.setattr(fused, "product_precision", lambda _: asked)
    tiles = (each._replace(**changes) for each in launch.CANDIDATES[precision])
    monkeypatch.setitem(launch.CANDIDATES, precision, tuple(tiles))
    wave._tiles_that_fit.cache_clear()
    try:
        run(make_model(aggregator, "gru", 300, num_layers=2), chain(4))
    finally:
        wave._tiles_that_fit.cache_clear()
    kind = "wave_" if wavefront == "always" else ""
    for way in ("forward", "backward"):
        loops = [each for each in compiler.compiled if each.name.startswith(f"{kind}{way}.")]
        assert loops
        for kernel in loops:
            assert kernel.shared <= launch.SHARED_MEMORY
            # Of 1,000 bytes that a thread has. (TF32's operands take the most registers.)
            assert kernel.spilled <= (64 if precision == "fp16" else 128)
            # No exchange between warps, of which every level would wait for several.
            barriers = barriers_while_gathering(kernel.ptx)
            assert barriers
            assert not any(barriers)
