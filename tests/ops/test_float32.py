"""Products of float32, by all ways to set their precision."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from dagnn.ops.float32 import exact_bmm, float32_products
from dagnn.training.fit import matmul_precision


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = float32_products()
    yield
    torch.set_float32_matmul_precision(before)  # of the newer names as well


@pytest.mark.parametrize("setting", ["highest", "high", "medium"])
def test_settings_by_their_first_name(setting: str) -> None:
    torch.set_float32_matmul_precision(setting)
    assert float32_products() == setting


@pytest.mark.parametrize(("setting", "name"), [("ieee", "highest"), ("tf32", "high")])
def test_settings_by_their_newer_name(setting: str, name: str) -> None:
    torch.set_float32_matmul_precision("highest" if name == "high" else "high")
    torch.backends.cuda.matmul.fp32_precision = setting
    assert float32_products() == name
    with matmul_precision("32"):
        assert float32_products() == "highest"
    assert float32_products() == name


@pytest.mark.parametrize("setting", ["highest", "high"])
def test_exact_products(setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_float32_matmul_precision(setting)
    bmm, types = torch.bmm, []

    def watched(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        types.append(a.dtype)
        return bmm(a, b)

    monkeypatch.setattr(torch, "bmm", watched)
    a, b = torch.randn(2, 3, 4), torch.randn(2, 4, 5)
    assert torch.allclose(exact_bmm(a, b), a @ b, atol=1e-6)
    assert types == [torch.float32 if setting == "highest" else torch.float64]
