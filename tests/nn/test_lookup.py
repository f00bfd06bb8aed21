"""Looking up rows: as PyTorch's embedding, with a gradient that is summed in one order."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from dagnn.nn.lookup import Lookup, lookup
from tests.graph.test_flat import needs_cuda

CUDA = pytest.param("cuda", marks=[pytest.mark.cuda, needs_cuda])


@pytest.mark.parametrize("device", ["cpu", CUDA])
@pytest.mark.parametrize("shape", [(), (0,), (1,), (300,), (7, 3)])
@pytest.mark.parametrize("rows", [1, 5, 98])
def test_values_and_gradients_are_those_of_an_embedding(
    shape: tuple[int, ...], rows: int, device: str
) -> None:
    generator = torch.Generator().manual_seed(0)
    index = torch.randint(rows, shape, generator=generator)
    weight = torch.randn(rows, 6, generator=generator)
    slope = torch.randn(*shape, 6, generator=generator)
    oracle = nn.Embedding.from_pretrained(weight.double(), freeze=False)
    (oracle(index) * slope).sum().backward()
    for kind in (torch.int32, torch.int64):
        table = weight.clone().to(device).requires_grad_()
        out = lookup(table, index.to(device, kind))
        (out * slope.to(device)).sum().backward()
        assert torch.equal(out.cpu(), weight[index])
        assert_close(table.grad.cpu(), oracle.weight.grad.float())


def test_threads_leave_the_mode_of_the_process() -> None:
    """What one of them finds while another is at work must not stay."""
    before = torch.get_deterministic_debug_mode()
    index = torch.arange(20_000) % 5

    def work(_: int) -> None:
        table = torch.ones(5, 8, requires_grad=True)
        for _ in range(20):
            lookup(table, index).sum().backward()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert torch.get_deterministic_debug_mode() == before


def test_derivatives() -> None:
    weight = torch.randn(4, 3, dtype=torch.double, requires_grad=True)
    index = torch.arange(30) % 4
    assert torch.autograd.gradcheck(lambda table: lookup(table, index), weight)
    assert torch.autograd.gradgradcheck(lambda table: lookup(table, index).square(), weight)


@pytest.mark.parametrize("before", [0, 1, 2])
def test_deterministic_algorithms_are_asked_for_and_no_longer(
    before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes = []
    real = torch.set_deterministic_debug_mode

    def watched(mode: int) -> None:
        modes.append(mode)
        real(mode)

    real(before)
    try:
        monkeypatch.setattr(torch, "set_deterministic_debug_mode", watched)
        lookup(torch.zeros(2, 1, requires_grad=True), torch.tensor([1, 1])).sum().backward()
        assert modes == [max(before, 1), before]
        assert torch.get_deterministic_debug_mode() == before
    finally:
        real(0)


def test_a_module_is_an_embedding() -> None:
    torch.manual_seed(0)
    own = Lookup(5, 3)
    torch.manual_seed(0)
    other = nn.Embedding(5, 3)
    assert own.state_dict().keys() == other.state_dict().keys()
    assert torch.equal(own.weight, other.weight)
    index = torch.tensor([[0, 4], [2, 2]])
    assert torch.equal(own(index), other(index))
    with pytest.raises(IndexError):
        own(torch.tensor([5]))


@pytest.mark.cuda
@needs_cuda
@pytest.mark.parametrize(("rows", "used"), [(98, 98), (98, 3), (10_030, 10_030), (10_030, 5)])
def test_gradients_are_the_same_each_time_on_a_gpu(rows: int, used: int) -> None:
    """PyTorch's are not, where few rows are used by many."""
    generator = torch.Generator().manual_seed(0)
    index = torch.randint(used, (10_000,), generator=generator).cuda()
    slope = torch.randn(10_000, 300, generator=generator).cuda()
    embedding = Lookup(rows, 300).cuda()
    grads = []
    for _ in range(10):
        embedding.weight.grad = None
        (embedding(index) * slope).sum().backward()
        grads.append(embedding.weight.grad)
    assert all(torch.equal(grads[0], grad) for grad in grads)
