"""Products with few rows."""

import numpy as np
import pytest

from dagnn.ops.cpu_products import add_product


@pytest.mark.parametrize("rows", [0, 1, 2, 3, 4, 7, 8])
@pytest.mark.parametrize("depth", [1, 3, 4, 8, 21])
def test_equals_numpy_in_a_window(rows: int, depth: int) -> None:
    """Rows before and after, and columns beside the window, keep their values."""
    generator = np.random.default_rng(0)
    for width in (1, 5, 40):
        a, w = generator.normal(size=(rows + 3, depth + 2)), generator.normal(size=(depth, width))
        out = generator.normal(size=(rows + 3, width + 3))
        expected = out.copy()
        expected[2 : 2 + rows, 1 : 1 + width] += a[2 : 2 + rows, 2:] @ w
        add_product(out, a, w, 2, 2 + rows, 1, 2)
        np.testing.assert_allclose(out, expected, rtol=1e-12, atol=1e-12)
