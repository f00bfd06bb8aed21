"""The arrays that the CPU backend's compiled loops read and write.

Those that a kind of layer does not have are empty, so that all kinds share compiled code.
"""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["Backward", "Forward"]


class Forward(NamedTuple):
    """The arrays of a layer's forward pass."""

    gru: bool
    attention: bool
    gates: Any  # [S, N, W] or [S, N, H]
    h: Any  # [S, N, H]; a linear cell's is gates itself
    message: Any  # [S, N, H]
    alpha: Any  # [S, E]
    pair: Any  # [S, N, 2H] gate and map
    key_score: Any  # [S, N] w_2·h of every node
    recurrent: Any  # [S, H, 3H] or [S, H, H], transposed
    bias: Any  # [S, W] or [S, H]
    key: Any  # [S, H]
    edge_score: Any  # [S, E]
    gate_map: Any  # [S, H, 2H], transposed
    gate_bias: Any  # [S, H]
    level_ptr: Any  # [S, D + 1]
    pred_ptr: Any  # [S, N + 1]
    pred: Any  # [S, E]


class Backward(NamedTuple):
    """The arrays of a layer's backward pass."""

    gru: bool
    attention: bool
    grad: Any  # [S, N, H + gap] of the states, complete once a node's successors are done
    d_gates: Any  # [S, N, W]; a linear cell's is grad itself
    d_bias: Any  # [S, T, W] a sum per thread, in double precision
    d_message: Any  # [S, N, H + gap]; a GRU's takes the place of grad, row by row
    d_score: Any  # [S, E]
    d_key_score: Any  # [S, N]
    d_pair: Any  # [S, N, 2H]
    gates: Any  # [S, N, W]
    h: Any  # [S, N, H]
    message: Any  # [S, N, H]
    alpha: Any  # [S, E]
    pair: Any  # [S, N, 2H]
    recurrent: Any  # [S, 3H, H] or [S, H, H]
    key: Any  # [S, H]
    gate_map: Any  # [S, 2H, H]
    level_ptr: Any  # [S, D + 1]
    pred_ptr: Any  # [S, N + 1]
    succ_ptr: Any  # [S, N + 1]
    succ: Any  # [S, E]
    succ_slot: Any  # [S, E]
