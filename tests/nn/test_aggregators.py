"""Aggregators by themselves; as parts of a model they are in ``test_equations.py``."""

import math

import pytest
import torch
from torch.testing import assert_close

from dagnn.nn.aggregators import (
    AGGREGATORS,
    Aggregator,
    Attention,
    Concat,
    DotAttention,
    DynamicAttention,
    EpsilonSum,
    GatedEdgeSum,
    GatedSum,
    Reduce,
    make_aggregator,
)

QUERY, HIDDEN = 3, 4
INDEX = torch.tensor([0, 0, 2, 2, 2, 4])  # rows 1 and 3 receive nothing


def make(name: str) -> Aggregator:
    edge_types = 3 if name in ("concat", "gated_edge_sum") else None
    return make_aggregator(name, QUERY, HIDDEN, edge_types=edge_types).double()


def sample(aggregator: Aggregator) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    query = torch.randn(5, QUERY, dtype=torch.float64)
    value = torch.randn(len(INDEX), HIDDEN, dtype=torch.float64)
    return query, value, aggregator.embed_edges(torch.tensor([0, 1, 0, 1, 2, 1]), None)


@pytest.mark.parametrize("name", AGGREGATORS)
def test_messages_are_independent_and_empty_ones_exactly_zero(name: str) -> None:
    aggregator = make(name)
    query, value, edge = sample(aggregator)
    out = aggregator(query, value, INDEX, edge)
    assert out.shape == (5, aggregator.message_channels)
    for row in range(5):
        mine = row == INDEX
        alone = aggregator(
            query[row : row + 1], value[mine], INDEX[mine] * 0, None if edge is None else edge[mine]
        )
        assert_close(out[row], alone[0])
    assert torch.equal(out[[1, 3]], torch.zeros_like(out[[1, 3]]))


@pytest.mark.parametrize("name", AGGREGATORS)
def test_the_order_of_predecessors_does_not_matter(name: str) -> None:
    aggregator = make(name)
    query, value, edge = sample(aggregator)
    slots = torch.tensor([1, 0, 4, 2, 3, 5])  # still ascending by receiver
    moved = aggregator(query, value[slots], INDEX[slots], None if edge is None else edge[slots])
    assert_close(moved, aggregator(query, value, INDEX, edge))


@pytest.mark.parametrize("name", ["attention", "dot_attention", "dynamic_attention", "mean", "max"])
def test_of_one_predecessor_the_message_is_its_state(name: str) -> None:
    query, value, _ = sample(make(name))
    assert_close(make(name)(query, value, INDEX)[4], value[5])


def test_attention_weighs_with_a_softmax() -> None:
    """Keys that make one score larger by log 3 make its weight three times as large."""
    attention = make("attention")
    attention.key.weight.data = torch.tensor([[math.log(3), 0.0, 0.0, 0.0]], dtype=torch.float64)
    value = torch.tensor([[1.0, 8, 0, 0], [0.0, 0, 8, 0]], dtype=torch.float64)
    message = attention(torch.randn(1, QUERY).double(), value, torch.tensor([0, 0]))
    assert_close(message, torch.tensor([[0.75, 6.0, 2.0, 0.0]], dtype=torch.float64))


def query_gradient(name: str) -> float:
    aggregator = make(name)
    query, value, edge = sample(aggregator)
    (aggregator(query, value, INDEX, edge) * torch.randn(5, HIDDEN)).sum().backward()
    assert aggregator.key.weight.grad.abs().max() > 1e-3
    return float(aggregator.query.weight.grad.abs().max())


def test_the_query_cancels_in_additive_attention_only() -> None:
    """The paper's own footnote."""
    assert query_gradient("attention") < 1e-15
    assert query_gradient("dot_attention") > 1e-3
    assert query_gradient("dynamic_attention") > 1e-3


def test_a_tied_edge_weight_is_the_query_weight_and_learns() -> None:
    attention = Attention(QUERY, HIDDEN, edge_types=3, tie_edge_weight=True).double()
    assert attention.edge is attention.query
    assert attention.edge_embedding.weight.shape == (3, QUERY)
    query, value, edge = sample(attention)
    (attention(query, value, INDEX, edge) * torch.randn(5, HIDDEN)).sum().backward()
    assert attention.query.weight.grad.abs().max() > 1e-3
    assert sum(p is attention.query.weight for p in attention.parameters()) == 1


def test_edge_types_and_features_add_up() -> None:
    attention = Attention(QUERY, HIDDEN, edge_types=2, edge_channels=3)
    types, features = torch.tensor([1, 0]), torch.randn(2, 3)
    y = attention.embed_edges(types, features)
    assert_close(y, attention.edge_embedding(types) + attention.edge_projection(features))
    assert attention.edge.weight.shape == (1, HIDDEN)


def test_an_untied_edge_embedding_has_the_width_of_the_states() -> None:
    attention = Attention(QUERY, HIDDEN, edge_types=2)
    assert attention.edge_embedding.weight.shape == (2, HIDDEN)
    assert attention.edge is not attention.query
    assert [attention.query.bias, attention.key.bias, attention.edge.bias] == [None] * 3


def test_concat_puts_predecessors_in_their_places() -> None:
    value = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    message = Concat(2, arity=3)(
        torch.zeros(2, 5), value, torch.tensor([1, 1]), torch.tensor([2, 0])
    )
    assert message.tolist() == [[0.0] * 6, [3.0, 4.0, 0.0, 0.0, 1.0, 2.0]]


def test_the_epsilon_sum_adds_the_node_itself() -> None:
    aggregator = EpsilonSum(HIDDEN, HIDDEN, epsilon=0.5).double()
    query, value = torch.randn(1, HIDDEN).double(), torch.randn(2, HIDDEN).double()
    message = aggregator(query, value, torch.tensor([0, 0]))
    assert_close(message, 1.5 * query + value.sum(0, keepdim=True))
    aggregator.epsilon.data.fill_(7)
    aggregator.reset_parameters()
    assert aggregator.epsilon.item() == 0.5


def test_a_gated_sum_may_see_the_edges_or_them_alone() -> None:
    both = make_aggregator("gated_sum", QUERY, HIDDEN, edge_types=2, edge_channels=3)
    assert isinstance(both, GatedEdgeSum)
    assert both.gate.weight.shape == both.map.weight.shape == (HIDDEN, HIDDEN + 5)
    assert both.map.bias is None
    y = both.embed_edges(torch.tensor([1]), torch.tensor([[7.0, 8.0, 9.0]]))
    assert y.tolist() == [[0.0, 1.0, 7.0, 8.0, 9.0]]
    edges = make_aggregator("gated_edge_sum", QUERY, HIDDEN, edge_channels=3)
    assert edges.gate.weight.shape == (HIDDEN, 3)
    value = torch.randn(1, HIDDEN)
    out = [edges(torch.zeros(1, QUERY), v, torch.tensor([0]), y[:, 2:]) for v in (value, 2 * value)]
    assert torch.equal(*out)


def test_names() -> None:
    found = [type(make(name)) for name in AGGREGATORS]
    assert found == [
        Attention, DotAttention, DynamicAttention, GatedSum, GatedEdgeSum,
        Reduce, Reduce, Reduce, Reduce, EpsilonSum, Concat,
    ]  # fmt: skip
    assert repr(make("max")) == "Reduce(4, reduce='max')"
    assert repr(make("concat")) == "Concat(4, arity=3)"


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("average", {}, "expected aggregator to be one of attention, .*, got 'average'"),
        ("average", {"edge_types": 2}, "expected aggregator to be one of"),
        ("sum", {"edge_types": 2}, "expected an aggregator that uses edge types.*got 'sum'"),
        ("sum", {"edge_channels": 2}, "expected an aggregator that uses edge types.*got 'sum'"),
        ("concat", {}, "expected edge_types .*got edge_types=None"),
        ("concat", {"edge_types": 2, "edge_channels": 1}, "no edge_channels.*edge_channels=1"),
        ("gated_edge_sum", {}, "expected edge_types or edge_channels to gate, got neither"),
        (
            "dot_attention",
            {"edge_types": 2, "tie_edge_weight": True},
            "expected aggregator='attention' with tie_edge_weight=True, got 'dot_attention'",
        ),
    ],
)
def test_bad_choices(name: str, options: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_aggregator(name, QUERY, HIDDEN, **options)
