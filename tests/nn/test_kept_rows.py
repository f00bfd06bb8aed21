"""Batch normalization of some rows against torch's of these rows alone."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from dagnn.nn.kept_rows import KeptRowsNorm, normalize

C = 3
masks = st.lists(st.booleans(), min_size=2, max_size=40).filter(lambda mask: sum(mask) > 1)


def pair(dtype: torch.dtype = torch.float64) -> tuple[KeptRowsNorm, nn.BatchNorm1d]:
    """Ours and torch's, with the same weights and statistics that are not those of a new one."""
    torch.manual_seed(0)
    theirs = nn.BatchNorm1d(C).to(dtype)
    with torch.no_grad():
        for tensor in (*theirs.parameters(), theirs.running_mean, theirs.running_var):
            assert tensor is not None
            tensor.uniform_(0.5, 2)
    ours = KeptRowsNorm(C).to(dtype)
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


def with_gradients(
    norm: nn.Module, x: Tensor, slope: Tensor, *kept: Tensor
) -> tuple[Tensor, list[Tensor]]:
    x = x.clone().requires_grad_()
    out = norm(x, *kept)
    return out, list(torch.autograd.grad((out * slope).sum(), [x, *norm.parameters()]))


def assert_same_state(ours: nn.Module, theirs: nn.Module, **tolerance: float) -> None:
    assert list(ours.state_dict()) == list(theirs.state_dict())
    for name, value in theirs.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[name], value, msg=name, **tolerance)


@given(masks, st.integers(0, 2**30), st.sampled_from([0.0, 1e3]))
def test_kept_rows_are_normalized_as_if_alone(mask: list[bool], seed: int, offset: float) -> None:
    ours, theirs = pair()
    kept = torch.tensor(mask)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(2):  # statistics run on
        x = offset + torch.randn(len(kept), C, generator=generator, dtype=torch.float64)
        slope = torch.randn(len(kept), C, generator=generator, dtype=torch.float64)
        x[~kept] *= 1e3  # would be seen
        found, gradients = with_gradients(ours, x, slope * kept.unsqueeze(-1), kept)
        expected, wanted = with_gradients(theirs, x[kept], slope[kept])
        torch.testing.assert_close(found[kept], expected, atol=1e-10, rtol=1e-10)
        torch.testing.assert_close(found[~kept], ours.bias.expand_as(found[~kept]))
        assert not gradients[0][~kept].any()
        wanted[0] = torch.zeros_like(x).masked_scatter_(kept.unsqueeze(-1), wanted[0])
        for a, b in zip(gradients, wanted, strict=True):
            torch.testing.assert_close(a, b, atol=1e-10, rtol=1e-10)
    assert_same_state(ours, theirs, atol=1e-10, rtol=1e-10)


@given(masks.filter(lambda mask: not all(mask)))
def test_gradients_of_all_rows(mask: list[bool]) -> None:
    """Also where something is made of rows that were left out."""
    ours, _ = pair()
    x = torch.randn(len(mask), C, dtype=torch.float64, requires_grad=True)

    def run(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        out: Tensor = torch.func.functional_call(
            ours, {"weight": weight, "bias": bias}, (x, torch.tensor(mask))
        )
        return out

    torch.autograd.gradcheck(run, (x, ours.weight, ours.bias))


@pytest.mark.parametrize("training", [True, False])
def test_without_a_mask_it_is_torchs(training: bool) -> None:
    ours, theirs = (norm.train(training) for norm in pair(torch.float32))
    x = torch.randn(9, C)
    assert torch.equal(ours(x), theirs(x))
    assert_same_state(ours, theirs, atol=0, rtol=0)


def test_in_evaluation_rows_have_nothing_to_do_with_each_other() -> None:
    ours, theirs = (norm.eval() for norm in pair())
    x, kept = torch.randn(9, C, dtype=torch.float64), torch.arange(9) < 1
    assert torch.equal(ours(x, kept), theirs(x))
    assert_same_state(ours, theirs, atol=0, rtol=0)


def test_half_precision_has_statistics_in_full() -> None:
    ours, theirs = pair(torch.float32)
    x, kept = (50 + torch.randn(400, C)).bfloat16(), torch.arange(400) < 300
    slope = torch.randn(400, C) * kept.unsqueeze(-1)
    with torch.autocast("cpu", torch.bfloat16):
        found, gradients = with_gradients(ours, x, slope, kept)
        expected, wanted = with_gradients(theirs, x[:300], slope[:300])
    assert found.dtype == expected.dtype == torch.bfloat16
    torch.testing.assert_close(found[:300], expected)
    torch.testing.assert_close(gradients[0][:300], wanted[0], atol=1e-3, rtol=1e-1)
    for a, b in zip(gradients[1:], wanted[1:], strict=True):
        torch.testing.assert_close(a, b, atol=1e-2, rtol=1e-2)
    assert_same_state(ours, theirs)


@pytest.mark.parametrize("count", [0, 1])
def test_one_row_has_no_variance(count: int) -> None:
    ours, theirs = pair()
    x, kept = torch.randn(5, C, dtype=torch.float64), torch.arange(5) < count
    with pytest.raises(ValueError, match="Expected more than 1 value"):
        theirs(x[:1])
    before = {name: value.clone() for name, value in ours.state_dict().items()}
    with pytest.raises(ValueError, match=f"expected more than one row.*got {count}"):
        ours(x, kept)
    assert all(torch.equal(value, before[name]) for name, value in ours.state_dict().items())


def test_the_norm_of_several_processes_takes_its_place() -> None:
    ours, theirs = pair(torch.float32)
    converted = nn.SyncBatchNorm.convert_sync_batchnorm(ours)
    assert isinstance(converted, nn.SyncBatchNorm)
    x = torch.randn(9, C)
    torch.testing.assert_close(normalize(converted, x, None), theirs(x))
    assert_same_state(converted, theirs)
