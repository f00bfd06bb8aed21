import gc
import weakref

import torch
from torch import Tensor
from torch.testing import assert_close

from dagnn.ops.level_buffer import LevelBuffer, _Rows


def with_buffer(a: Tensor, b: Tensor) -> Tensor:
    """Rows 0-2 are a; 3-4 read 0 (twice) and 2; 5 reads old and new rows, and b."""
    buffer = LevelBuffer(a.new_zeros(6, a.size(1)))
    buffer.append(a)
    buffer.append(buffer.read(torch.tensor([0, 2])) * buffer.read(torch.tensor([0, 0])))
    buffer.append((buffer.read(torch.tensor([4, 3, 1])).sum(0) * b).view(1, -1))
    return buffer.tensor()


def plainly(a: Tensor, b: Tensor) -> Tensor:
    middle = a[[0, 2]] * a[[0, 0]]
    return torch.cat([a, middle, ((middle.sum(0) + a[1]) * b).view(1, -1)])


def inputs() -> tuple[Tensor, Tensor]:
    return (
        torch.randn(3, 2, dtype=torch.float64, requires_grad=True),
        torch.randn(2, dtype=torch.float64, requires_grad=True),
    )


def test_values_and_gradients() -> None:
    a, b = inputs()
    assert_close(with_buffer(a, b), plainly(a, b))
    assert torch.autograd.gradcheck(with_buffer, (a, b))


def test_gradients_of_some_inputs_twice() -> None:
    """Only the part of the graph that is needed runs; a second pass starts afresh."""
    a, b = inputs()
    weight = torch.randn(6, 2, dtype=torch.float64)
    out, expected = (f(a, b) for f in (with_buffer, plainly))
    for variable in (a, b, a):
        found, wanted = (
            torch.autograd.grad((o * weight).sum(), variable, retain_graph=True)[0]
            for o in (out, expected)
        )
        assert_close(found, wanted)


def test_rows_without_gradient() -> None:
    a, b = inputs()
    out = with_buffer(a.detach(), b)
    assert_close(torch.autograd.grad(out.sum(), b), torch.autograd.grad(plainly(a, b).sum(), b))
    assert not with_buffer(a.detach(), b.detach()).requires_grad


def test_no_reference_cycle() -> None:
    """What a forward pass holds is freed with its output, without the garbage collector."""
    gc.disable()
    try:
        a, _ = inputs()
        buffer = LevelBuffer(a.new_zeros(3, 2))
        rows: weakref.ref[_Rows] = weakref.ref(buffer._rows)
        buffer.append(a)
        out = buffer.tensor()
        del buffer
        assert rows() is not None
        out.sum().backward()
        del out
        assert rows() is None
    finally:
        gc.enable()
