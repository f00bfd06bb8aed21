"""The choice of a backend."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from dagnn import DAGNN
from dagnn.ops.backends import check_backend, choose_backend
from tests.nn.configurations import IN, kite
from tests.ops.test_recurrence import make_model

CPU = torch.device("cpu")
FUSED = ("attention", "gru")


def test_auto_takes_the_best_available() -> None:
    for dtype in (torch.float32, torch.float64):
        assert choose_backend("auto", FUSED, CPU, dtype, 8) == "cpu"
    assert choose_backend("auto", FUSED, CPU, torch.float16, 8) == "reference"
    assert choose_backend("auto", None, CPU, torch.float32, 8) == "reference"
    assert choose_backend("reference", FUSED, CPU, torch.float32, 8) == "reference"


def test_a_backend_by_name_is_used_or_refused() -> None:
    assert choose_backend("cpu", FUSED, CPU, torch.float32, 8) == "cpu"
    with pytest.raises(ValueError, match="cannot run this: expected float32 or float64"):
        choose_backend("cpu", FUSED, CPU, torch.float16, 8)
    with pytest.raises(ValueError, match="expected tensors on the CPU, got cuda"):
        choose_backend("cpu", FUSED, torch.device("cuda"), torch.float32, 8)
    with pytest.raises(ValueError, match="backend='triton' cannot run this"):
        choose_backend("triton", FUSED, CPU, torch.float64, 8)


def test_gated_sums_too_wide_for_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton", reason="Triton comes with PyTorch's builds for Linux")
    gpu, gated = torch.device("cuda"), ("gated_sum", "gru")
    assert choose_backend("auto", gated, gpu, torch.float32, 512) == "triton"
    assert choose_backend("auto", gated, gpu, torch.float32, 600) == "reference"
    assert choose_backend("auto", FUSED, gpu, torch.float32, 600) == "triton"
    with pytest.raises(ValueError, match="shared memory in fp32, got 600; use backend='reference'"):
        choose_backend("triton", gated, gpu, torch.float32, 600)
    monkeypatch.setattr("dagnn.ops.backends.product_precision", lambda _: "bf16")
    assert choose_backend("auto", gated, gpu, torch.float32, 600) == "triton"


class _Chooses(nn.Module):
    """Adds 1 if its model would run by Triton on a GPU."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.model = DAGNN(4, hidden, aggregator="gated_sum")

    def forward(self, x: Tensor) -> Tensor:
        return x + (self.model._backend(torch.device("cuda", 0)) == "triton")


@pytest.mark.parametrize(("hidden", "added"), [(300, 1), (600, 0)])
def test_the_choice_for_a_gpu_is_traced(hidden: int, added: int) -> None:
    pytest.importorskip("triton", reason="Triton comes with PyTorch's builds for Linux")
    compiled = torch.compile(_Chooses(hidden), fullgraph=True, backend="eager")
    for size in (1, 3, 5):
        assert compiled(torch.zeros(size)).tolist() == size * [added]


def test_unknown_backends_are_refused() -> None:
    with pytest.raises(ValueError, match="one of auto, reference, cpu, triton, got 'fast'"):
        check_backend("fast", FUSED, "Attention and GRUCell")
    with pytest.raises(ValueError, match="one of auto, reference, cpu, triton, got 'fast'"):
        make_model("fast")


@pytest.mark.parametrize("backend", ["cpu", "triton"])
def test_a_model_without_a_fused_path_is_refused(backend: str) -> None:
    for options, got in (
        ({"aggregator": "max"}, "got Reduce and GRUCell"),
        ({"cell": "lstm"}, "got Attention and TreeLSTMCell"),
        ({"aggregator": "gated_sum", "edge_types": 2}, "got GatedEdgeSum and GRUCell"),
    ):
        with pytest.raises(ValueError, match=f"{got}; they run with backend='reference' or 'auto'"):
            DAGNN(IN, 5, backend=backend, **options)


@pytest.mark.parametrize("backend", ["cpu", "triton"])
def test_half_precision_is_refused(backend: str) -> None:
    model, data = make_model(backend).half(), kite()
    with pytest.raises(ValueError, match=f"backend='{backend}' cannot run this"):
        model(data.x.half(), data.edge_index, data.edge_type)


def test_repr_says_which_path_a_model_has() -> None:
    assert "path='fused'" in repr(make_model("auto"))
    assert "path='fused'" in repr(make_model("cpu"))
    assert "path='reference'" in repr(make_model("reference"))
    assert "path='reference'" in repr(make_model("auto", aggregator="max", edge_types=None))
