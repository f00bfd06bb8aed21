"""NA's rows as graphs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from dagnn.datasets.architectures import (
    architecture_rows,
    load_architectures,
    parse_architectures,
    valid_architectures,
)
from dagnn.datasets.rows import format_row
from tests.autoencoders.graphs import random_dags

ROWS = [
    "[[1], [4, 0], [5, 0, 0], [0, 1, 1, 1], [2, 1, 1, 1, 1], [3, 0, 0, 0, 0, 1]], 0.7302",
    "[[5], [3, 1], [2, 1, 1], [3, 1, 1, 0], [5, 0, 0, 0, 1], [2, 0, 1, 1, 1, 0]], 0.7234",
]


def test_rows_become_graphs() -> None:
    graphs = parse_architectures(ROWS).check()
    assert graphs.num_types == 8
    assert graphs.types.tolist() == [[0, 3, 6, 7, 2, 4, 5, 1], [0, 7, 5, 4, 5, 7, 4, 1]]
    assert graphs.score.tolist() == [0.7302, 0.7234]
    chain = {(v, v + 1) for v in range(7)}
    skips = {(0, 4), (1, 4), (2, 4), (0, 5), (1, 5), (2, 5), (3, 5), (4, 6)}
    edges = {(u, v) for v, u in graphs.adjacency[0].nonzero().tolist()}
    assert edges == chain | skips


def test_graphs_become_rows_again() -> None:
    graphs = parse_architectures(ROWS)
    rows = architecture_rows(graphs)
    texts = [
        f"{format_row(labels, bits)}, {score}"
        for labels, bits, score in zip(*(column.tolist() for column in rows), strict=True)
    ]
    assert texts == ROWS


def test_validity() -> None:
    graphs = parse_architectures([ROWS[0]] * 6)
    graphs.types[1, 3] = 1  # an output inside
    graphs.types[2, 3] = 0  # an input inside
    graphs.adjacency[3, 4, 3] = False  # a layer without the one before
    graphs.adjacency[4, 7, 2] = True  # an output with a skip
    graphs.num_nodes[5] = 7
    assert valid_architectures(graphs).tolist() == [True, False, False, False, False, False]
    assert not valid_architectures(random_dags(20, 8, 8)).all()


def test_the_burn_in_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "na.txt"
    path.write_text("\n".join(ROWS))
    assert load_architectures(path, skip=1).score.tolist() == [0.7234]
    with pytest.raises(ValueError, match=r"expected more than 1000 graphs .* as burn-in"):
        load_architectures(path)


def test_the_real_file() -> None:
    folder = Path(os.environ.get("DAGNN_DATA", Path(__file__).parents[3] / "shared" / "data"))
    path = folder / "final_structures6.txt"
    if not path.exists():
        pytest.skip(f"needs {path.name} in $DAGNN_DATA: dagnn data get na --out DIR")
    graphs = load_architectures(path).check()
    assert len(graphs) == 19020
    assert valid_architectures(graphs).all()
    train, test = graphs.split()
    assert (len(train), len(test)) == (17118, 1902)
    lines = path.read_text().splitlines()[1000:]
    rows = architecture_rows(graphs)
    place = torch.randint(len(graphs), (50,)).tolist()
    for g in place:
        text = format_row(rows.labels[g].tolist(), rows.bits[g].tolist())
        assert f"{text}, {rows.score[g].item()!r}" == lines[g]
