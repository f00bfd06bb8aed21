"""Looking up few rows: as PyTorch's embedding, with a gradient that is summed in one order."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from dagnn.nn import lookup as module
from dagnn.nn.lookup import Lookup, lookup

CUDA = pytest.param(
    "cuda",
    marks=[
        pytest.mark.cuda,
        pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    ],
)


@pytest.mark.parametrize("device", ["cpu", CUDA])
@pytest.mark.parametrize("shape", [(0,), (1,), (300,), (7, 3)])
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


def test_many_nodes_come_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK", 7)
    weight = torch.randn(4, 3, dtype=torch.double, requires_grad=True)
    index = torch.arange(30) % 4
    assert torch.autograd.gradcheck(lambda table: lookup(table, index), weight)
    assert torch.autograd.gradgradcheck(lambda table: lookup(table, index).square(), weight)


def test_precision_of_products_does_not_matter() -> None:
    before = torch.get_float32_matmul_precision()
    index = torch.arange(1000) % 3
    grad = 1 + torch.arange(1000.0).unsqueeze(1) / 2**20  # lost in 8 or 11 bits
    grads = []
    try:
        for precision in ("highest", "medium"):
            torch.set_float32_matmul_precision(precision)
            weight = torch.zeros(3, 1, requires_grad=True)
            with torch.autocast("cpu", torch.bfloat16):
                lookup(weight, index).backward(grad)
            grads.append(weight.grad)
    finally:
        torch.set_float32_matmul_precision(before)
    assert torch.equal(*grads)
    assert_close(grads[0][0, 0], grad[::3].double().sum().float())


def test_a_module_has_the_state_of_an_embedding() -> None:
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
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_gradients_are_the_same_twice_on_a_gpu() -> None:
    generator = torch.Generator().manual_seed(0)
    index = torch.randint(98, (10_000,), generator=generator).cuda()
    slope = torch.randn(10_000, 300, generator=generator).cuda()
    embedding = Lookup(98, 300).cuda()
    grads = []
    for _ in range(10):
        embedding.weight.grad = None
        (embedding(index) * slope).sum().backward()
        grads.append(embedding.weight.grad)
    assert all(torch.equal(grads[0], grad) for grad in grads)
