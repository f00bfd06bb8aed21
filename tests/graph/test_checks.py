import numpy as np
import pytest
import torch

from dagnn.graph.checks import (
    check_batch,
    check_edge_index,
    check_levels,
    check_same_device,
    infer_num_nodes,
)

EDGES = torch.tensor([[0, 1], [1, 2]])


@pytest.mark.parametrize(
    ("edge_index", "error", "message"),
    [
        ([[0], [1]], TypeError, "edge_index as a torch.Tensor, got list"),
        (np.zeros((2, 0)), TypeError, "edge_index as a torch.Tensor, got ndarray"),
        (None, TypeError, "edge_index as a torch.Tensor, got NoneType"),
        (EDGES.float(), TypeError, r"torch.int64, got torch.float32; convert it"),
        (EDGES.int(), TypeError, r"torch.int64, got torch.int32"),
        (EDGES.bool(), TypeError, r"torch.int64, got torch.bool"),
        (torch.tensor([0, 1]), ValueError, r"\[2, num_edges\], got \[2\]"),
        (torch.tensor(0), ValueError, r"\[2, num_edges\], got \[\]"),
        (EDGES[None], ValueError, r"\[2, num_edges\], got \[1, 2, 2\]"),
        (torch.zeros(5, 2).long(), ValueError, r"got \[5, 2\]; transpose it"),
        (torch.zeros(3, 5).long(), ValueError, r"got \[3, 5\]$"),
        (torch.tensor([[0], [3]]), ValueError, r"from 0 to 3 \(exclusive\) in edge_index, got 3"),
        (torch.tensor([[-1], [1]]), ValueError, "from 0 to 3 .* got -1"),
        (torch.tensor([[-(2**62)], [2**62]]), ValueError, f"got {-(2**62)}"),
    ],
)
def test_edge_index(edge_index, error, message) -> None:
    with pytest.raises(error, match=message):
        check_edge_index(edge_index, 3)


def test_edge_index_without_number_of_nodes() -> None:
    check_edge_index(torch.tensor([[0], [10**9]]))
    with pytest.raises(ValueError, match=r"from 0 to the number of nodes .* got -1"):
        check_edge_index(torch.tensor([[0], [-1]]))


def test_edge_index_may_be_empty() -> None:
    check_edge_index(torch.empty(2, 0, dtype=torch.long))
    check_edge_index(torch.empty(2, 0, dtype=torch.long), 0)
    check_edge_index(EDGES, 3)


def test_no_nodes_but_edges() -> None:
    with pytest.raises(ValueError, match=r"from 0 to 0 \(exclusive\) in edge_index, got 2"):
        check_edge_index(EDGES, 0)


def test_negative_number_of_nodes() -> None:
    with pytest.raises(ValueError, match="num_nodes >= 0, got -1"):
        check_edge_index(torch.empty(2, 0, dtype=torch.long), -1)


def test_infer_num_nodes() -> None:
    assert infer_num_nodes(EDGES, None) == 3
    assert infer_num_nodes(EDGES, 7) == 7
    assert infer_num_nodes(torch.empty(2, 0, dtype=torch.long), None) == 0


@pytest.mark.parametrize(
    ("levels", "error", "message"),
    [
        ([0, 1, 2], TypeError, "levels as a torch.Tensor, got list"),
        (torch.tensor([0.0, 1.0, 2.0]), TypeError, "integer levels, got torch.float32; compute"),
        (torch.tensor([0.0, torch.nan, 2.0]), TypeError, "torch.float32 with NaN in it; compute"),
        (torch.tensor([True, False, True]), TypeError, "integer levels, got torch.bool"),
        (torch.tensor([0j, 1, 2]), TypeError, "integer levels, got torch.complex64"),
        (torch.tensor([0, 1]), ValueError, r"one level per node, shape \[3\], got \[2\]"),
        (torch.tensor([[0, 1, 2]]), ValueError, r"shape \[3\], got \[1, 3\]"),
        (torch.tensor([-1, 1, 2]), ValueError, "levels >= 0, got -1"),
        (torch.tensor([0, 1, 1]), ValueError, "got level 1 -> 1 on edge 1 -> 2"),
        (torch.tensor([0, 2, 1]), ValueError, "got level 2 -> 1 on edge 1 -> 2"),
        (torch.tensor([1, 0, 2]), ValueError, "got level 1 -> 0 on edge 0 -> 1.*all edges that"),
        (torch.empty(3, dtype=torch.long, device="meta"), ValueError, "cpu, levels on meta"),
    ],
)
def test_levels(levels, error, message) -> None:
    with pytest.raises(error, match=message):
        check_levels(levels, EDGES, 3)


@pytest.mark.parametrize("dtype", [torch.long, torch.int32, torch.int16, torch.uint8])
def test_levels_that_rise_are_accepted(dtype: torch.dtype) -> None:
    check_levels(torch.tensor([0, 1, 2], dtype=dtype), EDGES, 3)
    check_levels(torch.tensor([3, 50, 100], dtype=dtype), EDGES, 3)
    check_levels(torch.tensor([], dtype=dtype), torch.empty(2, 0, dtype=torch.long), 0)


def test_operator() -> None:
    given = torch.tensor([0, 1, 2]), EDGES
    torch.library.opcheck(torch.ops.dagnn.checked_levels.default, given)


@pytest.mark.parametrize(
    ("batch", "batch_size", "error", "message"),
    [
        ([0, 0, 0], None, TypeError, "batch as a torch.Tensor, got list"),
        (torch.zeros(3), None, TypeError, "int64, got torch.float32"),
        (torch.zeros(3, dtype=torch.int32), None, TypeError, "int64, got torch.int32"),
        (torch.tensor([0, 0]), None, ValueError, r"each of the 3 nodes, shape \[3\], got \[2\]"),
        (torch.tensor([[0, 0, 0]]), None, ValueError, r"got \[1, 3\]"),
        (torch.tensor([1, 0, 0]), None, ValueError, "ascending order, got 0 after 1 at node 1"),
        (torch.tensor([0, 1, 0]), None, ValueError, "got 0 after 1 at node 2; reorder"),
        (torch.tensor([-1, 0, 0]), None, ValueError, "got -1"),
        (torch.tensor([0, 1, 2]), 2, ValueError, r"from 0 to 2 \(exclusive\) in batch, got 2"),
    ],
)
def test_batch(batch, batch_size, error, message) -> None:
    with pytest.raises(error, match=message):
        check_batch(batch, 3, batch_size)


def test_number_of_graphs() -> None:
    none = torch.empty(0, dtype=torch.long)
    assert check_batch(torch.tensor([0, 0, 2]), 3) == 3
    assert check_batch(torch.tensor([0, 0, 2]), 3, 5) == 5
    assert check_batch(none, 0) == 0
    assert check_batch(none, 0, 4) == 4


def test_same_device() -> None:
    here, there = torch.zeros(1), torch.zeros(1, device="meta")
    check_same_device()
    check_same_device(a=here, b=here, c=None)
    with pytest.raises(ValueError, match="one device, got a on cpu, b on meta; move them"):
        check_same_device(a=here, b=there, c=None)
