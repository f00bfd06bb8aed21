"""Every stored graph's own schedule, beside the attributes on an accelerator.

A batch's schedule is that of its graphs, merged: on every level stand the nodes of its first graph,
then those of its second one. So a node's position in the batch is its position in its own graph,
plus a shift that all nodes of this graph and this level share; slots of edges are shifted likewise.
What is stored here is all of a graph that does not depend on its company: 40 bytes per node, 24
per edge, and 12 per level in each direction. :mod:`dagnn.graph.device_batch` makes batches of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec

import numba
import numpy as np
import torch
from torch import Tensor

from dagnn.graph import compiled
from dagnn.graph.padding import Room

__all__ = ["StoredSweeps", "can_be_merged", "is_mergeable", "make_sweeps", "there_is_room"]

NODE_ROWS, EDGE_ROWS, LEVEL_ROWS = 5, 6, 3
SHARE_OF_MEMORY = 2  # at most one part in so many of an accelerator's free memory
# Numbers are added up for each level of each graph of a batch. Where a deep graph meets many flat
# ones, most of them are zero. With more than so many for each node and edge (six times 4 bytes,
# where a batch has some 90), they take more room than the batch, whose structure the host makes.
LARGEST_TABLE = 4


@dataclass(frozen=True)
class StoredSweeps:
    """The sweeps of stored graphs, one after the other, all numbers counted from zero in each."""

    # Of each node, in both directions: its level, its position, its first slot and its first place
    # among the successors, and its number among the sinks, which is -1 of any other node.
    of_node: Tensor  # [2, 5, N] int32
    # Source and target; in both directions the slot and the place among the successors.
    of_edge: Tensor  # [6, E] int32
    # The first position, slot and place of each level, and their ends: of a graph its levels along
    # the edges, then those against them.
    of_level: Tensor  # [3, L] int32
    level_ptr: np.ndarray  # [G + 1] where each graph's levels start

    @property
    def device(self) -> torch.device:
        return self.of_node.device

    def select(self, graphs: np.ndarray, rows: Mapping[str, Tensor]) -> StoredSweeps:
        """The sweeps of some graphs, whose nodes and edges are stored in these rows."""
        level_ptr = compiled.batch_pointer(self.level_ptr, graphs)
        level_rows = torch.empty(int(level_ptr[-1]), dtype=torch.long)
        compiled.ragged_rows(self.level_ptr, graphs, level_rows.numpy())

        def chosen(values: Tensor, rows: Tensor) -> Tensor:
            return values.index_select(-1, rows.to(self.device))

        return StoredSweeps(
            chosen(self.of_node, rows["node"]),
            chosen(self.of_edge, rows["edge"]),
            chosen(self.of_level, level_rows),
            level_ptr,
        )

    def to(self, device: torch.device) -> StoredSweeps:
        of_node, of_edge, of_level = (
            values.to(device) for values in (self.of_node, self.of_edge, self.of_level)
        )
        return StoredSweeps(of_node, of_edge, of_level, self.level_ptr)


def can_be_merged(device: torch.device) -> bool:
    """Whether there is something to merge stored sweeps with: a GPU and Triton."""
    return device.type == "cuda" and find_spec("triton") is not None


def there_is_room(num_nodes: int, num_edges: int, depths: np.ndarray, device: torch.device) -> bool:
    """Whether the sweeps of such graphs leave enough of a GPU's memory free."""
    if device.type != "cuda":
        return True
    numbers = 2 * NODE_ROWS * num_nodes + EDGE_ROWS * num_edges + LEVEL_ROWS * (depths + 1).sum()
    # What PyTorch keeps for later is free, too.
    kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    free = torch.cuda.mem_get_info(device)[0] + kept
    return bool(SHARE_OF_MEMORY * 4 * numbers <= free)


def is_mergeable(room: Room, num_graphs: int, schedule: bool) -> bool:
    """Whether kernels merge a batch of this size, so that 32-bit numbers and a table do for it."""
    table = room.levels * num_graphs if schedule else 0
    return (
        max(room.nodes, room.edges) < 2**31
        and 6 * table < 2**30
        and table <= LARGEST_TABLE * (room.nodes + room.edges)
    )


def make_sweeps(
    node_ptr: np.ndarray, edge_ptr: np.ndarray, edges: Tensor, levels: Tensor, depths: np.ndarray
) -> StoredSweeps:
    """The sweeps of all graphs, on the CPU.

    Args:
        node_ptr: Where each graph's nodes start. ``[G + 1]``
        edge_ptr: Where each graph's edges start. ``[G + 1]``
        edges: Nodes counted from zero in each graph. ``[2, E]``
        levels: Along the edges and against them. ``[2, N]``
        depths: The number of levels of each graph, in both directions. ``[2, G]``
    """
    level_ptr = np.zeros(len(node_ptr), dtype=np.int64)
    np.cumsum((depths + 1).sum(0), out=level_ptr[1:])
    sweeps = StoredSweeps(
        torch.empty(2, NODE_ROWS, levels.size(1), dtype=torch.int32),
        torch.empty(EDGE_ROWS, edges.size(1), dtype=torch.int32),
        torch.empty(LEVEL_ROWS, int(level_ptr[-1]), dtype=torch.int32),
        level_ptr,
    )
    _sweep(
        node_ptr,
        edge_ptr,
        edges.numpy(),
        levels.numpy(),
        depths,
        level_ptr,
        sweeps.of_node.numpy(),
        sweeps.of_edge.numpy(),
        sweeps.of_level.numpy(),
    )
    return sweeps


@numba.njit(cache=True, nogil=True)
def _sweep(
    node_ptr: np.ndarray,
    edge_ptr: np.ndarray,
    edges: np.ndarray,
    levels: np.ndarray,
    depths: np.ndarray,
    level_ptr: np.ndarray,
    of_node: np.ndarray,
    of_edge: np.ndarray,
    of_level: np.ndarray,
) -> None:  # pragma: no cover - compiled
    """Sort every graph's nodes and edges as :func:`dagnn.graph.compiled.lay_out` does a batch's."""
    largest = most = 0
    for g in range(len(node_ptr) - 1):
        largest = max(largest, node_ptr[g + 1] - node_ptr[g])
        most = max(most, edge_ptr[g + 1] - edge_ptr[g])
    # While a list is filled, these say where the next entry goes.
    next_position = np.empty(largest + 1, dtype=np.int32)  # of each level
    next_slot = np.empty(largest, dtype=np.int32)  # of each position
    next_place = np.empty(largest, dtype=np.int32)
    order = np.empty(largest, dtype=np.int32)
    edge_at = np.empty(most, dtype=np.int32)  # each slot
    ins = np.empty((2, largest), dtype=np.int32)
    for g in range(len(node_ptr) - 1):
        v0, e0 = node_ptr[g], edge_ptr[g]
        nodes, num_edges = node_ptr[g + 1] - v0, edge_ptr[g + 1] - e0
        ins[:, :nodes] = 0
        for e in range(e0, e0 + num_edges):
            of_edge[0, e], of_edge[1, e] = edges[0, e], edges[1, e]
            ins[0, edges[1, e]] += 1
            ins[1, edges[0, e]] += 1
        first = level_ptr[g]
        for d in range(2):
            level, rank = of_node[d, 0, v0 : v0 + nodes], of_node[d, 1, v0 : v0 + nodes]
            depth = depths[d, g]
            bounds = of_level[:, first : first + depth + 1]
            first += depth + 1
            next_position[: depth + 1] = 0
            for v in range(nodes):
                level[v] = levels[d, v0 + v]
                next_position[level[v] + 1] += 1
            for i in range(depth):
                next_position[i + 1] += next_position[i]
                bounds[0, i] = next_position[i]
            sink = 0
            for v in range(nodes):
                p = next_position[level[v]]
                next_position[level[v]] = p + 1
                order[p] = v
                rank[v] = p
                is_sink = ins[1 - d, v] == 0
                of_node[d, 4, v0 + v] = sink if is_sink else -1
                sink += is_sink
            slot = place = 0
            i = 0
            for p in range(nodes):
                v = order[p]
                if i < depth and p == bounds[0, i]:
                    bounds[1, i], bounds[2, i] = slot, place
                    i += 1
                next_slot[p], next_place[p] = slot, place
                of_node[d, 2, v0 + v], of_node[d, 3, v0 + v] = slot, place
                slot += ins[d, v]
                place += ins[1 - d, v]
            bounds[0, depth], bounds[1, depth], bounds[2, depth] = nodes, slot, place
            for e in range(num_edges):
                p = rank[edges[1 - d, e0 + e]]
                slot = next_slot[p]
                next_slot[p] = slot + 1
                edge_at[slot] = e
                of_edge[2 + 2 * d, e0 + e] = slot
            # Going through the slots, not the edges, lists successors in level-major order.
            for s in range(num_edges):
                e = e0 + edge_at[s]
                p = rank[edges[d, e]]
                of_edge[3 + 2 * d, e] = next_place[p]
                next_place[p] += 1
