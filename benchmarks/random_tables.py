"""Tables sampled from random networks, hard enough that hill climbing does not solve them all."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dagnn.bayesnet.dags import node_levels
from dagnn.bayesnet.table import Table

__all__ = ["random_table"]

PARENTS = 3  # at most, of a variable
LEVELS = 3
CONCENTRATION = 0.7  # of the Dirichlet distribution of probabilities


def random_table(num_variables: int, rows: int, seed: int) -> Table:
    """Rows of a random network: in a random order, each variable has one to three parents among
    those before it, two or three levels, and probabilities from a Dirichlet distribution."""
    generator = np.random.default_rng(seed)
    order = generator.permutation(num_variables)
    adjacency = np.zeros((num_variables, num_variables), dtype=bool)
    for place in range(1, num_variables):
        count = generator.integers(1, min(place, PARENTS), endpoint=True)
        adjacency[order[place], generator.choice(order[:place], size=count, replace=False)] = True
    levels = generator.integers(2, LEVELS, endpoint=True, size=num_variables)
    codes = np.zeros((rows, num_variables), dtype=np.int64)
    for v in np.argsort(node_levels(adjacency), kind="stable"):
        parents = np.flatnonzero(adjacency[v])
        place = np.zeros(rows, dtype=np.int64)
        for u in parents:
            place = place * levels[u] + codes[:, u]
        combinations = int(np.prod(levels[parents]))
        chances = generator.dirichlet([CONCENTRATION] * levels[v], size=combinations)
        below = chances.cumsum(axis=1)[place]  # [rows, levels]
        codes[:, v] = (generator.random((rows, 1)) > below[:, :-1]).sum(axis=1)
    names = [f"v{i}" for i in range(num_variables)]
    return Table.from_frame(pd.DataFrame(codes, columns=names).astype(str))
