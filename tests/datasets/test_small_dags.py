"""Dense tensors of small DAGs."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import torch

from dagnn.datasets.small_dags import SmallDags
from tests.autoencoders.graphs import random_dags


def test_selection_and_nodes() -> None:
    graphs = random_dags(6)
    assert len(graphs) == 6
    assert graphs.max_nodes == 6
    assert torch.equal(graphs.is_node.sum(-1), graphs.num_nodes)
    index = torch.tensor([4, 1, 4])
    for part in (graphs[index], graphs.index_select(index)):
        assert torch.equal(part.types, graphs.types[index])
        assert torch.equal(part.adjacency, graphs.adjacency[index])
        assert torch.equal(part.score, graphs.score[index])
    assert torch.equal(graphs[graphs.score > 0].score, graphs.score[graphs.score > 0])
    assert graphs.to("cpu").device == graphs.device


def test_split_is_that_of_a_shuffled_list() -> None:
    graphs = random_dags(25)
    scores = graphs.score.tolist()
    random.Random(0).shuffle(scores)
    train, test = graphs.split()
    assert train.score.tolist() == scores[:22]
    assert test.score.tolist() == scores[22:]


def broken(name: str) -> SmallDags:
    graphs = random_dags(3, fixed=True)
    types, adjacency = graphs.types.clone(), graphs.adjacency.clone()
    num_nodes, score = graphs.num_nodes.clone(), graphs.score.clone()
    if name == "nodes":
        num_nodes[1] = 1
    elif name == "types":
        types[1, 2] = 5
    elif name == "forward":
        adjacency[1, 2, 3] = True
    elif name == "padding":
        num_nodes[1] = 4
    elif name == "input":
        types[1, 0] = 2
    elif name == "output":
        types[1, -1] = 2
    elif name == "score":
        score[1] = torch.inf
    return SmallDags(types, adjacency, num_nodes, score, 5)


@pytest.mark.parametrize(
    ("name", "message"),
    {
        "nodes": "from 2 to 6 nodes",
        "types": "node types from 0 to 4",
        "forward": "edges from earlier to later nodes only",
        "padding": "no edges and type 0 at padding",
        "input": r"type 0 \(input\) at the first node",
        "output": r"type 1 \(output\) at the last node",
        "score": "a finite score",
    }.items(),
)
def test_check_says_what_is_wrong(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"expected {message}, got otherwise in graph 1"):
        broken(name).check()


def test_check_sees_shapes_and_dtypes() -> None:
    graphs = random_dags(3)
    with pytest.raises(ValueError, match=r"expected score of shape \[3\] and torch.float64, got"):
        replace(graphs, score=graphs.score.float()).check()
    with pytest.raises(ValueError, match=r"expected adjacency of shape \[3, 6, 6\]"):
        replace(graphs, adjacency=graphs.adjacency[:, :5]).check()
