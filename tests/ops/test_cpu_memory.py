"""Large buffers and aligned rows."""

import pytest
import torch

from dagnn.ops import cpu_memory
from dagnn.ops.cpu_memory import LARGE, LINE, aligned, new_buffer


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("columns", [0, 3, LARGE // 4 + 1])
@pytest.mark.parametrize("huge_pages", [True, False])
def test_a_buffer_is_a_tensor_like_any_other(
    dtype: torch.dtype, columns: int, huge_pages: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not huge_pages:
        monkeypatch.setattr(cpu_memory, "_madvise", lambda: None)
    buffer = new_buffer(torch.zeros(1, dtype=dtype), 2, columns)
    assert buffer.shape == (2, columns)
    assert buffer.dtype == dtype
    assert buffer.is_contiguous()
    assert torch.equal(buffer.fill_(1), torch.ones(2, columns, dtype=dtype))


@pytest.mark.parametrize("width", [0, 1, LINE - 1, LINE, LINE + 1, 300, 501])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_of_an_aligned_width_begin_with_a_cache_line(width: int, dtype: torch.dtype) -> None:
    assert width <= aligned(width) < width + LINE
    buffer = new_buffer(torch.zeros(1, dtype=dtype), 3, aligned(width))
    if width:
        assert all(row.data_ptr() % 64 == 0 for row in buffer)
