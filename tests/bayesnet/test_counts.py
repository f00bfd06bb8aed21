from __future__ import annotations

import numpy as np
import pytest

from dagnn.bayesnet import counts
from tests.bayesnet.cases import dependent_table

KINDS = np.array([counts.AIC_BIC, counts.BDEU, counts.K2_FAMILY, counts.K2_PARENTS])
PARAMETERS = np.array([3.0, 2.0, 0.0, 4.0])


@pytest.mark.parametrize("rows", [1, 30, 3000])
@pytest.mark.parametrize("max_size", [0, 2, 6])
def test_pieces_of_the_walk_make_all_sets(rows: int, max_size: int) -> None:
    table = dependent_table(6, rows, seed=rows)
    columns, weight = np.ascontiguousarray(table.codes.T), np.ones(rows, dtype=np.int64)
    cardinality = table.cardinalities
    out = np.full((4, 64), np.nan)
    for first in range(4):
        counts.all_potentials(
            columns, weight, cardinality, first, 2, max_size, KINDS, PARAMETERS, out
        )
    for bits in range(64):
        chosen = np.array([v for v in range(6) if (bits >> v) & 1], dtype=np.int64)
        one_by_one = [
            counts.potential(columns, weight, cardinality, chosen, kind, parameter)
            for kind, parameter in zip(KINDS, PARAMETERS, strict=True)
        ]
        expected = one_by_one if len(chosen) <= max_size else [np.nan] * 4
        np.testing.assert_allclose(out[:, bits], expected, rtol=1e-12)


def test_weights_stand_for_repeated_rows() -> None:
    table = dependent_table(4, 500, seed=0)
    rows, weight = np.unique(table.codes, axis=0, return_counts=True)
    chosen = np.array([0, 2, 3], dtype=np.int64)
    for kind, parameter in zip(KINDS, PARAMETERS, strict=True):
        values = [
            counts.potential(
                np.ascontiguousarray(codes.T), w, table.cardinalities, chosen, kind, parameter
            )
            for codes, w in ((rows, weight), (table.codes, np.ones(500, dtype=np.int64)))
        ]
        assert values[0] == pytest.approx(values[1], rel=1e-12)
