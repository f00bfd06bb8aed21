"""Triton's compiler, without a GPU: what a training step would launch is compiled and not run."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

HOPPER = GPUTarget("cuda", 90, 32)
PROCESSORS = 132
PTXAS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "ptxas"
TYPES = {
    torch.float32: "fp32",
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
    torch.int64: "i64",
    torch.int32: "i32",
}
# Cut out of longer tensors, anywhere.
UNALIGNED = ("edge_score", "edge_scores")


class Compiled(NamedTuple):
    name: str
    shared: int  # bytes of shared memory
    spilled: int  # bytes of registers that did not fit
    ptx: str


def barriers_while_gathering(ptx: str) -> list[int]:
    """The barriers in each loop over neighbours: one without a loop in it that loads many rows of
    other programs, and multiplies no matrix."""
    lines = ptx.splitlines()
    labels = {m[1]: i for i, line in enumerate(lines) if (m := re.match(r"(\$L\S+):", line))}
    jumps = ((i, re.search(r"\bbra(?:\.uni)?\s+(\$L\S+);", line)) for i, line in enumerate(lines))
    loops = {(labels[m[1]], i) for i, m in jumps if m and labels[m[1]] < i}
    inner = [
        (low, high)
        for low, high in loops
        if not any(low <= a and b <= high and (a, b) != (low, high) for a, b in loops)
    ]
    bodies = ("\n".join(lines[low:high]) for low, high in sorted(inner))
    gathering = (body for body in bodies if body.count("ld.global.cg") >= 10 and "mma" not in body)
    return [body.count("bar.sync") for body in gathering]


class Compiler:
    """Takes the place of :func:`dagnn.kernels.call.call`."""

    def __init__(self) -> None:
        self.compiled: list[Compiled] = []

    def __call__(
        self, kernel: Any, _: Any, arguments: list[Any], constants: dict[str, Any], options: Any
    ) -> None:
        signature: dict[str, Any] = {}
        known: dict[tuple[int, ...], Any] = {}
        attributes: dict[tuple[int, ...], Any] = {}

        def kind(argument: Any, name: str, path: tuple[int, ...]) -> Any:
            if isinstance(argument, tuple):
                return tuple(kind(each, name, (*path, i)) for i, each in enumerate(argument))
            if argument is None:
                known[path] = None
                return "constexpr"
            if not isinstance(argument, Tensor):
                return "i32"
            if argument.is_floating_point() and name not in UNALIGNED:
                attributes[path] = [["tt.divisibility", 16]]
            return "*" + TYPES[argument.dtype]

        for i, name in enumerate(kernel.arg_names):
            if name in constants:
                signature[name] = "constexpr"
                known[(i,)] = constants[name]
            else:
                signature[name] = kind(arguments[i], name, (i,))
        source = ASTSource(kernel, signature, constexprs=known, attrs=attributes)
        out = triton.compile(source, target=HOPPER, options=options)
        spilled = _spilled(out.asm["ptx"])
        name = f"{kernel.__module__}.{kernel.__name__}".removeprefix("dagnn.ops.triton.")
        self.compiled.append(Compiled(name, out.metadata.shared, spilled, out.asm["ptx"]))


def _spilled(ptx: str) -> int:
    command = [str(PTXAS), "-v", "--gpu-name=sm_90a", "-", "-o", "/dev/null"]
    report = subprocess.run(command, input=ptx, capture_output=True, text=True, check=True).stderr
    return sum(int(m) for m in re.findall(r"(\d+) bytes spill", report))


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Compiler:
    """Models on the CPU with ``backend="triton"`` compile their kernels, and compute nothing."""
    from dagnn.ops import backends
    from dagnn.ops.triton import edge_logits, gather, launch, operands, pool, sums, wave

    made = Compiler()
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    for module in (edge_logits, gather, launch, operands, pool, sums, wave):
        monkeypatch.setattr(module, "call", made)
    monkeypatch.setattr(backends, "_why_not_triton", lambda *_: None)
    monkeypatch.setattr(launch, "processors", lambda _: PROCESSORS)
    monkeypatch.setattr(launch, "_chosen", {})
    return made
