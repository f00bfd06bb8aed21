"""NA: neural architectures of ENAS with their weight-sharing accuracy on CIFAR-10.

A row of text is an architecture, ``[[op], [op, bit], [op, bit, bit], …], accuracy``. Layer ``k``
is node ``k + 1``; it is fed by node ``k``, and by node ``j`` where its bit ``j`` is set. The
input is node 0, and the last layer alone feeds the output.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

import torch
from torch import Tensor
from torch.nn.functional import pad

from dagnn.datasets.rows import Rows, parse_rows, read_rows
from dagnn.datasets.small_dags import INPUT, OUTPUT, SmallDags

__all__ = [
    "BURN_IN",
    "NUM_LAYERS",
    "OPERATIONS",
    "architecture_rows",
    "load_architectures",
    "parse_architectures",
    "valid_architectures",
]

OPERATIONS = ("conv3", "sep3", "conv5", "sep5", "avg3", "max3")
NUM_LAYERS = 6
BURN_IN = 1000  # graphs at the head of the file that the paper leaves out


def load_architectures(path: str | os.PathLike[str], *, skip: int = BURN_IN) -> SmallDags:
    """The graphs of a file such as ``final_structures6.txt``, without the first :obj:`skip`."""
    graphs = _graphs(read_rows(path, NUM_LAYERS, len(OPERATIONS)))
    if len(graphs) <= skip:
        raise ValueError(
            f"expected more than {skip} graphs in {path}, of which the first {skip} are left out "
            f"as burn-in, got {len(graphs)}; `dagnn data get na` fetches the whole file"
        )
    return graphs[skip:]


def parse_architectures(lines: Iterable[str], *, num_layers: int = NUM_LAYERS) -> SmallDags:
    """The graphs of lines of text."""
    return _graphs(parse_rows(lines, num_layers, len(OPERATIONS)))


def architecture_rows(graphs: SmallDags) -> Rows:
    """The way back, for graphs that are :func:`valid_architectures` and all of full size."""
    layers = slice(1, graphs.max_nodes - 1)
    bits = pad(graphs.adjacency[:, layers, : graphs.max_nodes - 3], (0, 1)).tril(-1)
    return Rows(graphs.types[:, layers] - 2, bits, graphs.score)


def valid_architectures(graphs: SmallDags) -> Tensor:
    """Which graphs are architectures: one input and one output at the ends, every node fed by the
    one before, the output by that alone, and of full size. Of these, D-VAE's measure of validity
    does not ask for the size; but a smaller graph is no architecture of this space, and has no row.
    bool ``[G]``"""
    n = graphs.max_nodes
    inner = graphs.types[:, 1 : n - 1]
    chain = graphs.adjacency.diagonal(-1, 1, 2).all(-1)
    return (
        (graphs.num_nodes == n)
        & (graphs.types[:, 0] == INPUT)
        & (graphs.types[:, -1] == OUTPUT)
        & ((inner != INPUT) & (inner != OUTPUT)).all(-1)
        & chain
        & (graphs.adjacency[:, -1].sum(-1) == 1)
    )


def _graphs(rows: Rows) -> SmallDags:
    size, num_layers = rows.labels.shape
    n = num_layers + 2
    types = pad(rows.labels + 2, (1, 1), value=INPUT)
    types[:, -1] = OUTPUT
    adjacency = torch.zeros(size, n, n, dtype=torch.bool)
    adjacency[:, 1 : n - 1, : n - 2] = rows.bits
    adjacency.diagonal(-1, 1, 2).fill_(True)
    num_nodes = torch.full((size,), n)
    return SmallDags(types, adjacency, num_nodes, rows.score, len(OPERATIONS) + 2)
