"""Which backend runs a model, and in which precision its products are."""

from __future__ import annotations

import importlib.util
from functools import lru_cache

import torch

from dagnn.ops.float32 import float32_products

__all__ = ["BACKENDS", "FEW_UNITS", "check_backend", "choose_backend", "product_precision"]

BACKENDS = ("auto", "reference", "cpu", "triton")
# Up to so many units, products are float32's, whatever is asked for: in sums over few units one
# rounding error is not made up for by others, gradients were off by 3 % in bf16; and tiles are 16
# units wide at least, so that there is next to nothing to win.
FEW_UNITS = 16
# Looked up once: torch.compile cannot trace it, and the import itself takes a while.
_HAS_TRITON = importlib.util.find_spec("triton") is not None


def check_backend(backend: str, kind: tuple[str, str] | None, parts: str) -> None:
    """Refuse a backend that cannot run a model of these parts, whatever the device."""
    if backend not in BACKENDS:
        raise ValueError(f"expected backend to be one of {', '.join(BACKENDS)}, got {backend!r}")
    if backend in ("cpu", "triton") and kind is None:
        raise ValueError(
            f"expected aggregator 'attention', or 'gated_sum' without edge types, features and "
            f"ids, and cell 'gru' or 'linear' with backend={backend!r}, got {parts}; they run with "
            "backend='reference' or 'auto'"
        )


def choose_backend(
    backend: str,
    kind: tuple[str, str] | None,
    device: torch.device,
    dtype: torch.dtype,
    hidden: int,
) -> str:
    """The backend that runs states of so many units: the one asked for by name, or refused; or the
    best available."""
    if backend == "reference" or kind is None:
        return "reference"

    def why_not(candidate: str) -> str | None:
        if candidate == "cpu":
            return _why_not_cpu(device, dtype)
        return _why_not_triton(device, dtype) or _too_wide_for_triton(kind[0], hidden, device)

    if backend != "auto":
        reason = why_not(backend)
        if reason is not None:
            raise ValueError(f"backend={backend!r} cannot run this: {reason}")
        return backend
    return next((each for each in ("cpu", "triton") if why_not(each) is None), "reference")


def _why_not_cpu(device: torch.device, dtype: torch.dtype) -> str | None:
    if device.type != "cpu":
        return f"expected tensors on the CPU, got {device}"
    if dtype not in (torch.float32, torch.float64):
        return f"expected float32 or float64, got {dtype}"
    return None


def _why_not_triton(device: torch.device, dtype: torch.dtype) -> str | None:
    if not _HAS_TRITON:
        return "Triton is not installed (it comes with PyTorch's GPU builds)"
    if dtype != torch.float32:
        return f"expected float32 tensors (use autocast for lower precision), got {dtype}"
    if device.type != "cuda" and not _interpreting():
        return (
            f"expected tensors on a CUDA device, got {device}; set TRITON_INTERPRET=1 before "
            "Python starts to run the kernels in Triton's interpreter"
        )
    return None


def _too_wide_for_triton(aggregator: str, hidden: int, device: torch.device) -> str | None:
    """What a gated sum needs of shared memory is known beforehand; an attention, which needs less,
    is tried."""
    if aggregator != "gated_sum":
        return None
    precision = "fp32" if hidden <= FEW_UNITS else product_precision(device)
    if _gated_sum_fits(hidden, precision, device):
        return None
    return (
        f"expected gated sums of a size that fits a GPU's shared memory in {precision}, got "
        f"{hidden}; use backend='reference' or 'auto', or a lower precision"
    )


@torch.compiler.assume_constant_result
def _gated_sum_fits(hidden: int, precision: str, device: torch.device) -> bool:
    return _fits(hidden, precision, device)  # torch.compile would look into a cached function


@lru_cache
def _fits(hidden: int, precision: str, device: torch.device) -> bool:
    from dagnn.ops.triton.launch import candidates, level_precision, memory_of

    level = level_precision(precision, hidden, bounded=True)
    return any(True for _ in candidates(hidden, level, phases=2, memory=memory_of(device)))


def _interpreting() -> bool:
    from triton import knobs

    return bool(knobs.runtime.interpret)


def product_precision(device: torch.device) -> str:
    """The precision of products that PyTorch's own settings ask for."""
    if device.type == "cpu":
        return "fp32"
    if torch.is_autocast_enabled(device.type):
        half = torch.get_autocast_dtype(device.type)
        return "bf16" if half == torch.bfloat16 else "fp16"
    return {"highest": "fp32", "high": "tf32", "medium": "bf16"}[float32_products()]
