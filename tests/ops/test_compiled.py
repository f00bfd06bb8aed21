"""The kernels as Triton's compiler makes them for compute capability 9.0; no GPU is needed.

The interpreter finds what a kernel computes. This finds what it does not: code that the compiler
refuses, and layouts that make programs slow.
"""

from __future__ import annotations

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
    ("aggregator", "wavefront", "at_once", "early"),
    [
        ("attention-types", "never", 2, False),
        ("attention-types", "never", 2, True),
        ("attention-types", "always", 2, True),
        ("gated_sum", "never", 2, False),
    ],
)
def test_level_loops(
    aggregator: str,
    wavefront: str,
    at_once: int,
    early: bool,
    compiler: Compiler,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In half precision, at the paper's size."""
    monkeypatch.setenv("DAGNN_WAVEFRONT", wavefront)
    monkeypatch.setattr(fused, "product_precision", lambda _: "bf16")
    tiles = (each._replace(at_once=at_once, early=early) for each in launch.CANDIDATES["fp16"])
    monkeypatch.setitem(launch.CANDIDATES, "fp16", tuple(tiles))
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
            assert kernel.spilled <= 64  # of 1,000 bytes that a thread has
            # No exchange between warps, of which every level would wait for several.
            barriers = barriers_while_gathering(kernel.ptx)
            assert barriers
            assert not any(barriers)
