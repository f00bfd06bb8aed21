"""A batch merged on an accelerator, from the sweeps of its graphs that are stored there.

The host knows all sizes from tables of its own. It sends a plan, a few numbers for each graph, and
starts two kernels, one without a schedule; see :mod:`dagnn.kernels.merging`. So its time hardly
depends on how large the graphs are (but for ragged attributes and those of indices, whose rows the
host counts), and nothing waits for the accelerator. Imported only where a
batch is merged, since it needs Triton.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from dagnn.graph import compiled
from dagnn.graph.padding import Room
from dagnn.graph.stored_sweeps import StoredSweeps
from dagnn.kernels.call import call, ceil_div
from dagnn.kernels.merging import place_levels, write_batch

__all__ = ["Merged", "merge"]

LEVELS_BLOCK, BLOCK = 4096, 128


class Merged(NamedTuple):
    """What was made, by name, and the rows of what is gathered."""

    parts: dict[str, Tensor]
    rows: dict[str, Tensor]  # of nodes and of edges
    others: list[Tensor]  # what was sent along
    buffer: Tensor  # the memory behind the parts


def merge(
    sweeps: StoredSweeps,
    graphs: np.ndarray,
    pointers: Mapping[str, np.ndarray],
    starts: Mapping[str, np.ndarray],
    depths: np.ndarray,
    num_sinks: np.ndarray,
    room: Room,
    others: list[np.ndarray],
    schedule: bool,
    padded: bool,
) -> Merged:
    """Lay stored graphs side by side, and a filler behind them if the batch is padded.

    Args:
        graphs: Which graphs, in which order.
        pointers: Where the stored graphs' nodes and edges start.
        starts: Where those of each graph of the batch start.
        depths, num_sinks: Of stored graphs, in both directions.
        room: The sizes of the batch.
        others: What else shall be sent, in the same copy.
    """
    nodes, edges, levels, targets, sources = room
    device = sweeps.device
    num_graphs = len(graphs) + padded
    planned = 9 * (num_graphs + 1)
    size = planned + sum(map(len, others))
    host = torch.empty(size, dtype=torch.long, pin_memory=device.type == "cuda")
    memory = host.numpy()
    used_targets, used_sources = compiled.plan(
        graphs,
        pointers["node"],
        pointers["edge"],
        sweeps.level_ptr,
        starts["node"],
        starts["edge"],
        depths,
        num_sinks,
        nodes,
        edges,
        padded,
        memory,
    )
    if others:
        np.concatenate(others, out=memory[planned:])
    plan = host.to(device, non_blocking=True)

    sizes_of_parts = [num_graphs + 1, nodes, nodes, edges, 2 * nodes, 2 * edges]
    if schedule:
        sizes_of_parts = [
            *(num_graphs + 1, nodes, nodes, edges, 6 * nodes, 10 * edges, 4 * (nodes + 1)),
            *(2 * (levels + 1), targets, sources),
        ]
    buffer = torch.empty(sum(sizes_of_parts), dtype=torch.long, device=device)
    ptr, batch, node_rows, edge_rows, of_nodes, of_edges, *rest = buffer.split_with_sizes(
        sizes_of_parts
    )
    parts = {"ptr": ptr, "batch": batch}
    shift = None
    if schedule:
        parts["levels"], parts["order"], parts["rank"] = of_nodes.view(3, 2, nodes).unbind()
        (
            parts["edge_index"],
            parts["pred"],
            parts["pred_edge"],
            parts["succ"],
            parts["succ_slot"],
        ) = of_edges.view(5, 2, edges).unbind()
        ends, level_ptr, parts["targets"], parts["sources"] = rest
        parts["pred_ptr"], parts["succ_ptr"] = ends.view(2, 2, nodes + 1).unbind()
        parts["level_ptr"] = level_ptr.view(2, levels + 1)
        shift = torch.empty(6 * levels * num_graphs, dtype=torch.int32, device=device)
        call(
            place_levels,
            (6, 1),
            (
                *(plan, sweeps.of_level, shift, level_ptr),
                *(num_graphs, nodes, levels, sweeps.of_level.size(1)),
            ),
            {"PADDED": padded, "BLOCK": LEVELS_BLOCK},
            {"num_warps": 16},
        )
    else:
        parts["levels"] = of_nodes.view(2, nodes)
        parts["edge_index"] = of_edges.view(2, edges)
    ends_of_lists = max(num_graphs + 1, 4, targets - used_targets, sources - used_sources)
    call(
        write_batch,
        (ceil_div(nodes, BLOCK) + ceil_div(edges, BLOCK) + ceil_div(ends_of_lists, BLOCK), 1),
        (
            *(plan, sweeps.of_node, sweeps.of_edge, shift, buffer),
            *(num_graphs, nodes, edges, levels, targets, sources),
            *(sweeps.of_node.size(2), sweeps.of_edge.size(1), (num_graphs - 1).bit_length()),
        ),
        {"SCHEDULE": schedule, "PADDED": padded, "BLOCK": BLOCK},
        {"num_warps": 4},
    )
    rows = {"node": node_rows, "edge": edge_rows}
    sent = []
    for other in others:
        sent.append(plan.narrow(0, planned, len(other)))
        planned += len(other)
    return Merged(parts, rows, sent, buffer)
