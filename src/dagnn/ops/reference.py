r"""The paper's equations, level by level, as they are read: the oracle of every faster path.

For each level, in order, and all its nodes :math:`v` at once:

.. math::
    m_v = G\bigl(\{h_u \mid u \in \mathcal{P}(v)\},\; x_v\bigr), \qquad
    h_v = F\bigl(x_v,\; m_v\bigr), \qquad G(\emptyset, \cdot) = 0.

Fast paths never import this module; the tests compare them with it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from dagnn.graph.schedule import Sweep

__all__ = ["layer_states"]


# Not traced by torch.compile: it would unroll the levels, and compile anew for every depth, for
# minutes. And inductor, where the sizes of levels vary, was seen to read sums before it made them.
@torch.compiler.disable(reason="the levels are run one by one, as many as a graph has")
def layer_states(
    x: Tensor, sweep: Sweep, aggregator: nn.Module, cell: Any, edge: Tensor | None = None
) -> Tensor:
    r"""The states of one layer in one direction.

    Args:
        x: The nodes' inputs (their states in the layer below), level-major. ``[N, C]``
        sweep: The order of computation.
        aggregator: :math:`G`, see :mod:`dagnn.nn.aggregators`.
        cell: :math:`F`, see :mod:`dagnn.nn.cells`.
        edge: What the aggregator made of the edges' types and features, by slot. ``[E, …]``

    Returns:
        States, level-major. ``[N, H]``
    """
    hidden: int = cell.hidden_size
    has_memory: bool = getattr(cell, "has_memory", False)
    h = x.new_zeros(x.size(0), hidden)
    c = x.new_zeros(x.size(0), hidden) if has_memory else None

    node_ptr = sweep.level_ptr.tolist()
    slot_ptr = sweep.pred_ptr[sweep.level_ptr].tolist()
    for i in range(sweep.num_levels):
        lo, hi = node_ptr[i], node_ptr[i + 1]
        first, last = slot_ptr[i], slot_ptr[i + 1]
        x_level = x[lo:hi]  # [V, C]
        source = sweep.pred[first:last]  # [S] position of each predecessor
        degree = sweep.pred_ptr[lo : hi + 1].diff()  # [V]
        target = torch.repeat_interleave(degree, output_size=last - first)  # [S] row in the level
        edge_level = None if edge is None else edge[first:last]

        h_source = h[source]  # [S, H]
        message = aggregator(x_level, h_source, target, edge_level)  # [V, M]
        state: Any = message
        if c is not None:
            state = message, cell.carry(x_level, message, h_source, c[source], target, edge_level)
        updated = cell(x_level, state)
        if c is not None:
            c[lo:hi] = updated[1]
            updated = updated[0]
        h[lo:hi] = updated
    return h
