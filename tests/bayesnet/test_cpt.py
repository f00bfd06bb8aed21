from __future__ import annotations

import numpy as np
import pytest

from dagnn.bayesnet.cpt import Cpt, fit_cpt
from tests.bayesnet.cases import make_table

TABLE = make_table([[0, 0], [0, 0], [0, 1], [2, 1]], [3, 2])


def test_relative_frequencies() -> None:
    table = fit_cpt(TABLE, 1, (0,))
    assert table.configurations.tolist() == [[0], [2]]
    np.testing.assert_allclose(table.probabilities, [[2 / 3, 1 / 3], [0, 1]])
    np.testing.assert_allclose(fit_cpt(TABLE, 1, ()).probabilities, [[0.5, 0.5]])


def test_smoothing() -> None:
    table = fit_cpt(TABLE, 1, (0,), smoothing=1.0)
    np.testing.assert_allclose(table.probabilities, [[2.5 / 4, 1.5 / 4], [0.25, 0.75]])
    with pytest.raises(ValueError, match="smoothing of at least 0"):
        fit_cpt(TABLE, 1, (0,), smoothing=-1)


def test_what_was_never_seen_is_even() -> None:
    table = fit_cpt(TABLE, 1, (0,))
    codes = np.array([[0, 0], [1, 0], [2, 0]], dtype=np.int32)
    assert table.rows(codes).tolist() == [0, -1, 1]
    np.testing.assert_allclose(table.look_up(codes, np.array([0, 1, 1])), [2 / 3, 0.5, 1])


def test_draws_follow_the_table() -> None:
    table = Cpt(
        (0,),
        (3,),
        np.array([[2], [0]], dtype=np.int32),
        np.array([[0.1, 0.6, 0.3, 0.0], [0.0, 0.0, 1.0, 0.0]]),
    )
    codes = np.repeat([[0], [1], [2]], 20_000, axis=0).astype(np.int32)
    values = table.draw(codes, np.random.default_rng(0))
    shares = [np.bincount(values[codes[:, 0] == c], minlength=4) / 20_000 for c in range(3)]
    np.testing.assert_allclose(shares[0], [0, 0, 1, 0])
    np.testing.assert_allclose(shares[1], [0.25] * 4, atol=0.015)
    np.testing.assert_allclose(shares[2], [0.1, 0.6, 0.3, 0], atol=0.015)
