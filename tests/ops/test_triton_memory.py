"""What a training step holds at once on the Triton backend, and the sums that were most of it.

PyTorch's allocations are the same whatever the kernels compute, so they are counted on the CPU
without them; on a GPU, of real steps.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.timing import Runner, peak_bytes
from dagnn import DAGNN, LevelSchedule
from tests.interpreter import CUDA, INTERPRETED, check_in_interpreter, kernels, outside
from tests.ops.triton_cases import layered

DEVICE = torch.device("cuda" if CUDA else "cpu")
HIDDEN, WIDTH, LEVELS = 64, 4000, 5


@outside
def test_everything_in_the_interpreter() -> None:
    check_in_interpreter("tests/ops/test_triton_memory.py")


@pytest.fixture
def aggregator() -> str:
    return "attention"


@pytest.fixture
def step(aggregator: str, monkeypatch: pytest.MonkeyPatch) -> Runner:
    """A training step of two layers in both directions; in the interpreter, without kernels."""
    if INTERPRETED:
        from dagnn.ops.triton import gather, launch, operands, pool, sums, wave

        for module in (gather, launch, operands, pool, sums, wave):
            monkeypatch.setattr(module, "call", lambda *_: None)
    schedule = LevelSchedule.from_data(layered([WIDTH] * LEVELS, 1).to(DEVICE), reverse=True)
    options: dict[str, Any] = {"aggregator": aggregator, "backend": "triton"}
    model = DAGNN(HIDDEN, HIDDEN, 2, bidirectional=True, **options).to(DEVICE)
    x = torch.randn(schedule.num_nodes, HIDDEN, device=DEVICE, requires_grad=True)

    def run() -> None:
        model(x, schedule=schedule).sum().backward()

    def clear() -> None:
        model.zero_grad()
        x.grad = None

    return Runner(run, clear=clear)


# In rows of float32 numbers per node and direction; half a row is the gradient of x. Both layers'
# states and their gradients from the readout; of a layer at work gates, message, offset, input and
# the gradient of its states. As a wavefront, gates, messages and offsets of two layers.
@kernels
@pytest.mark.parametrize(("wavefront", "rows"), [("never", 12.5), ("always", 18.5)])
def test_rows_at_the_peak(
    wavefront: str, rows: float, step: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAGNN_WAVEFRONT", wavefront)
    row = WIDTH * LEVELS * HIDDEN * 4 * 2
    slack = 1.5 if CUDA else 0.5  # blocks of memory are a little larger; indices, parameters
    assert peak_bytes(step, DEVICE) < (rows + slack) * row


@kernels
@pytest.mark.parametrize(
    ("wavefront", "aggregator"),
    [("never", "attention"), ("always", "attention"), ("never", "gated_sum")],
)
def test_pytorch_sums_over_no_nodes(
    wavefront: str, step: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU its reduction takes more memory than what it reduces."""
    summed: list[torch.Size] = []

    class Sums(TorchDispatchMode):
        def __torch_dispatch__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if function.overloadpacket is torch.ops.aten.sum:
                summed.append(args[0].shape)
            return function(*args, **(kwargs or {}))

    monkeypatch.setenv("DAGNN_WAVEFRONT", wavefront)
    # On a GPU, backward would have a thread of its own, of which the mode sees nothing.
    with torch.autograd.set_multithreading_enabled(False), Sums():
        step.run()
    assert summed
    assert all(WIDTH * LEVELS not in shape for shape in summed)


def rows_of(nodes: int, width: int, columns: int, dtype: torch.dtype) -> Tensor:
    """The first columns of wider rows."""
    return torch.randn(2, nodes, width, device=DEVICE).to(dtype)[:, :, :columns]


@kernels
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("nodes", "width", "columns"),
    [(0, 7, 7), (1, 7, 7), (17, 14, 7), (1500, 20, 20), (40, 130, 130)],
)
def test_sum_nodes(
    nodes: int, width: int, columns: int, weighted: bool, dtype: torch.dtype
) -> None:
    from dagnn.ops.triton.sums import sum_nodes

    values = rows_of(nodes, width, columns, dtype)
    weight = torch.randn(2, nodes, device=DEVICE) if weighted else None
    terms = values.double() if weight is None else values.double() * weight.double().unsqueeze(2)
    out = sum_nodes(values, weight)
    assert out.dtype == torch.float32
    assert out.is_contiguous()
    torch.testing.assert_close(out.double(), terms.sum(1), rtol=1e-6, atol=1e-5)
