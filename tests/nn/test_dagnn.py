"""The model as its users meet it: parameters, shapes, ways to call it, and bad input."""

import copy
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import prune
from torch.testing import assert_close
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataLoader

from dagnn import DAGNN, AddLevels, CycleError, LevelSchedule
from tests.nn.configurations import (
    EDGE_CHANNELS,
    EDGE_TYPES,
    IN,
    READOUTS,
    example_graphs,
    kite,
)

EDGES = torch.tensor([[0, 0, 1, 2], [1, 2, 3, 3]])
X = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))


def test_parameters_are_where_they_are_promised() -> None:
    model = DAGNN(3, 8, num_layers=2, bidirectional=True, edge_types=5)
    for layers in (model.forward_layers, model.reverse_layers):
        assert len(layers) == 2
        for layer, width in zip(layers, (3, 8), strict=True):
            assert type(layer.cell) is nn.GRUCell
            assert (layer.cell.input_size, layer.cell.hidden_size) == (width, 8)
            aggregator = layer.aggregator
            scores = [aggregator.query, aggregator.key, aggregator.edge]
            assert [type(s) for s in scores] == [nn.Linear] * 3
            assert [s.weight.shape for s in scores] == [(1, width), (1, 8), (1, 8)]
            assert [s.bias for s in scores] == [None] * 3
            assert type(aggregator.edge_embedding) is nn.Embedding
            assert aggregator.edge_embedding.weight.shape == (5, 8)
    parameters = list(model.parameters())
    assert len({p.data_ptr() for p in parameters}) == len(parameters)  # nothing is shared
    assert len(DAGNN(3, 8).reverse_layers) == 0


def test_a_tied_edge_weight_is_one_parameter() -> None:
    model = DAGNN(3, 8, edge_types=5, tie_edge_weight=True)
    for layer, width in zip(model.forward_layers, (3, 8), strict=True):
        assert layer.aggregator.edge.weight is layer.aggregator.query.weight
        assert layer.aggregator.edge_embedding.weight.shape == (5, width)
    model(X, EDGES, torch.tensor([0, 1, 2, 3])).sum().backward()
    assert model.forward_layers[0].aggregator.query.weight.grad.abs().sum() > 0
    twin = copy.deepcopy(model)
    assert twin.forward_layers[0].aggregator.edge is twin.forward_layers[0].aggregator.query


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("out_channels", [None, 6])
@pytest.mark.parametrize("readout_layers", ["all", "last"])
def test_shapes(bidirectional: bool, out_channels: int | None, readout_layers: str) -> None:
    model = DAGNN(3, 8, 3, out_channels, bidirectional=bidirectional, readout_layers=readout_layers)
    width = (1 + bidirectional) * (3 + 3 * 8 if readout_layers == "all" else 8)
    assert model.out_channels == (out_channels or width)
    assert model(X, EDGES).shape == (1, model.out_channels)
    assert torch.equal(model(X, EDGES, batch_size=1), model(X, EDGES))
    batch = torch.tensor([0, 0, 0, 0])
    assert model(X, EDGES, batch=batch, batch_size=2).shape == (2, model.out_channels)


@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_the_last_layer_alone_is_the_end_of_all_layers(backend: str) -> None:
    both = [
        DAGNN(3, 8, bidirectional=True, readout_layers=layers, backend=backend)
        for layers in ("all", "last")
    ]
    both[1].load_state_dict(both[0].state_dict())
    every, last = (model(X, EDGES)[0] for model in both)
    assert_close(last, torch.cat([every[11:19], every[30:]]))


def test_embed_nodes() -> None:
    model = DAGNN(3, 8, num_layers=3, bidirectional=True)
    states = model.embed_nodes(X, EDGES)
    for direction in (states.forward, states.reverse):
        assert [h.shape for h in direction] == [(4, 3), (4, 8), (4, 8), (4, 8)]
        assert torch.equal(direction[0], X)
    # Node 0 is a source: its state knows nobody. In the reverse DAG, the same goes for node 3.
    alone = model.embed_nodes(X[[0, 3]], torch.zeros(2, 0, dtype=torch.long))
    assert_close(states.forward[3][0], alone.forward[3][0])
    assert_close(states.reverse[3][3], alone.reverse[3][1])
    assert DAGNN(3, 8).embed_nodes(X, EDGES).reverse == []


def test_embed_nodes_of_a_batch_equals_the_graphs_one_by_one() -> None:
    model = DAGNN(IN, 8, bidirectional=True).double()
    graphs = example_graphs()
    together = model.embed_nodes(Batch.from_data_list(graphs))
    alone = [model.embed_nodes(graph) for graph in graphs]
    assert_close(together.forward[2], torch.cat([s.forward[2] for s in alone]))
    assert_close(together.reverse[2], torch.cat([s.reverse[2] for s in alone]))


def test_stored_levels_survive_batching_and_change_nothing() -> None:
    model = DAGNN(IN, 8, bidirectional=True).double()
    graphs = example_graphs()
    plain = model(Batch.from_data_list(graphs))
    (batch,) = DataLoader([AddLevels()(g) for g in graphs], batch_size=len(graphs))
    assert torch.equal(model(batch), plain)


def test_the_callers_data_is_not_changed() -> None:
    model = DAGNN(IN, 8, edge_types=EDGE_TYPES, edge_channels=EDGE_CHANNELS, bidirectional=True)
    batch = Batch.from_data_list([kite(), kite()])
    before = copy.deepcopy(batch)
    model.double()(batch)
    model.embed_nodes(batch)
    assert batch.keys() == before.keys()
    for key in before.keys():  # noqa: SIM118 - a Data is not a dict
        assert torch.equal(batch[key], before[key])


def test_edge_information_that_a_model_was_not_made_for_is_ignored() -> None:
    model = DAGNN(IN, 8).double()
    data = kite()
    bare = Data(x=data.x, edge_index=data.edge_index)
    assert torch.equal(model(data), model(bare))


@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_dropout_is_between_layers_and_only_in_training(backend: str) -> None:
    model = DAGNN(3, 8, num_layers=2, dropout=0.5, backend=backend)
    first, second = model.embed_nodes(X, EDGES), model.embed_nodes(X, EDGES)
    assert torch.equal(first.forward[1], second.forward[1])
    assert not torch.equal(first.forward[2], second.forward[2])
    model.eval()
    assert torch.equal(model(X, EDGES), model(X, EDGES))
    sure = DAGNN(3, 8, num_layers=2, backend=backend)
    sure.load_state_dict(model.state_dict())
    assert torch.equal(model(X, EDGES), sure(X, EDGES))


def test_state_dict_round_trip() -> None:
    options: dict[str, Any] = {"edge_types": 4, "tie_edge_weight": True, "bidirectional": True}
    model, other = DAGNN(3, 8, out_channels=2, **options), DAGNN(3, 8, out_channels=2, **options)
    types = torch.tensor([0, 1, 2, 3])
    assert not torch.equal(model(X, EDGES, types), other(X, EDGES, types))
    other.load_state_dict(model.state_dict())
    assert torch.equal(model(X, EDGES, types), other(X, EDGES, types))


@pytest.mark.parametrize(
    ("aggregator", "readout"),
    [
        ("attention", "attention"),
        ("dynamic_attention", "gated_sum"),
        ("epsilon_sum", "attention"),
    ],
)
def test_reset_parameters_draws_all_anew(aggregator: str, readout: str) -> None:
    model = DAGNN(3, 8, out_channels=2, aggregator=aggregator, readout=readout)
    before = {name: p.clone() for name, p in model.named_parameters()}
    with torch.no_grad():
        for p in model.parameters():
            p.fill_(9.0)
    torch.manual_seed(1)
    model.reset_parameters()
    for name, p in model.named_parameters():
        assert bool((p.abs() < 6).all()), name
        if not name.endswith("epsilon"):
            assert not torch.equal(p, before[name]), name


@pytest.mark.parametrize("readout", READOUTS)
def test_second_derivatives_of_the_reference(readout: str) -> None:
    torch.manual_seed(0)
    x, edge_index = torch.randn(4, 3).double(), torch.tensor([[0, 0, 1, 2], [1, 2, 3, 3]])
    model = DAGNN(3, 4, 2, 2, bidirectional=True, readout=readout, backend="reference").double()
    assert torch.autograd.gradgradcheck(lambda z: model(z, edge_index), x.requires_grad_())


def test_types_of_arguments() -> None:
    bad: Any = {"edge_type": [0, 1], "edge_attr": [0.0, 1.0], "batch": [0, 0, 0]}
    whole, number, size = (cast(Any, value) for value in (np.int64(4), 7.0, 1.0))
    assert DAGNN(3, whole).hidden_channels == 4
    with pytest.raises(TypeError, match=r"expected hidden_channels as an int, got 7\.0"):
        DAGNN(3, number)
    x, edge_index = torch.randn(3, 3), torch.tensor([[0, 1], [1, 2]])
    for name, value in bad.items():
        with pytest.raises(TypeError, match=f"expected {name} as a torch.Tensor, got list"):
            DAGNN(3, 4)(x, edge_index, **{name: value})
    with pytest.raises(TypeError, match="expected batch_size as an int, got float"):
        DAGNN(3, 4)(x, edge_index, batch=torch.zeros(3).long(), batch_size=size)


class _Forgetful(nn.GRUCell):
    def forward(self, x: Tensor, hx: Tensor | None = None) -> Tensor:
        return super().forward(x, None)


def _forgets(model: DAGNN) -> None:
    cell: Any = model.forward_layers[1].cell
    other = _Forgetful(cell.input_size, cell.hidden_size).double()
    other.load_state_dict(cell.state_dict())
    model.forward_layers[1].cell = other


def _normed(model: DAGNN) -> None:
    nn.utils.parametrizations.weight_norm(model.forward_layers[0].cell, "weight_hh")


def _pruned(model: DAGNN) -> None:
    prune.l1_unstructured(model.forward_layers[0].cell, "weight_hh", 0.5)


def _doubled(model: DAGNN) -> None:
    model.reverse_layers[1].cell.register_forward_hook(lambda *call: 2 * call[-1])


class _Adapter(nn.Module):
    """A layer with something beside it, of whose weights one has the usual name."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.layer = layer
        self.beside = nn.Linear(layer.in_features, layer.out_features, bias=False).double()

    @property
    def weight(self) -> Tensor:
        return self.layer.weight

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(x) + self.beside(x)
        return out


def _adapted(model: DAGNN) -> None:
    torch.manual_seed(1)
    aggregator: Any = model.forward_layers[1].aggregator
    aggregator.key = _Adapter(aggregator.key)


def test_hooks_of_the_way_back_are_called() -> None:
    model, calls = DAGNN(IN, 6).double(), []
    model.forward_layers[0].cell.register_full_backward_pre_hook(lambda *call: calls.append(call))
    model(kite()).sum().backward()
    assert calls


@pytest.mark.parametrize("change", [_forgets, _normed, _pruned, _doubled, _adapted])
def test_changed_layers_count(change: Callable[[DAGNN], None]) -> None:
    """The fused operator knows weights alone: what else decides is left to the modules."""
    graphs = Batch.from_data_list(example_graphs())
    results = []
    for backend in ("auto", "reference"):
        torch.manual_seed(0)
        model = DAGNN(IN, 6, 2, 3, bidirectional=True, backend=backend).double()
        assert model.is_fused == (backend == "auto")
        before = model(graphs)
        change(model)
        assert not model.is_fused
        for _ in range(2):  # a pruned weight is computed anew for each step
            out = model(graphs)
            out.sum().backward()
        results.append([out, *(p.grad for p in model.parameters())])
        if change is not _normed:  # which keeps its values
            assert not torch.allclose(out, before)
    assert_close(*results)
    fused = DAGNN(IN, 6, 2, 3, bidirectional=True, backend="cpu").double()
    change(fused)
    with pytest.raises(
        ValueError, match="as they were made with backend='cpu', got some with hooks"
    ):
        fused(graphs)


def test_repr() -> None:
    text = repr(DAGNN(3, 8, edge_types=2, bidirectional=True, dropout=0.1))
    for part in ("3, 8, num_layers=2", "bidirectional=True", "dropout=0.1", "'targets'", "GRUCell"):
        assert part in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"in_channels": 0}, "expected in_channels >= 1, got 0"),
        ({"hidden_channels": 0}, "expected hidden_channels >= 1, got 0"),
        ({"num_layers": 0}, "expected num_layers >= 1, got 0"),
        ({"out_channels": -1}, "expected out_channels >= 1, got -1"),
        ({"edge_types": 0}, "expected edge_types >= 1, got 0"),
        ({"edge_channels": 0}, "expected edge_channels >= 1, got 0"),
        ({"dropout": 1.0}, "expected 0 <= dropout < 1, got 1.0"),
        ({"dropout": -0.1}, "expected 0 <= dropout < 1, got -0.1"),
        ({"aggregator": "foo"}, "expected aggregator to be one of .*, got 'foo'"),
        ({"cell": "foo"}, "expected cell to be one of gru, .*, got 'foo'"),
        ({"readout": "foo"}, "expected readout to be one of max, .*, got 'foo'"),
        ({"readout_nodes": "foo"}, "expected readout_nodes 'targets' or 'all', got 'foo'"),
        ({"readout_layers": "foo"}, "expected readout_layers 'all' or 'last', got 'foo'"),
        ({"backend": "foo"}, "expected backend to be one of auto, .*, got 'foo'"),
        ({"aggregator": "concat", "edge_types": 2}, "expected messages as wide as states"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DAGNN(**{"in_channels": 3, "hidden_channels": 8, **options})


TYPED = {"edge_types": 2}
TYPES = torch.tensor([0, 1, 1, 0])
FEATURED = {"edge_channels": 2}
SMALLER = LevelSchedule.from_edge_index(EDGES[:, :1], 2)
OTHER = LevelSchedule.from_edge_index(EDGES[:, :3], 4)
ONE_WAY = LevelSchedule.from_edge_index(EDGES, 4, reverse=False)


@pytest.mark.parametrize(
    ("options", "arguments", "error", "message"),
    [
        ({}, {"x": X[:3]}, ValueError, r"from 0 to 3 \(exclusive\) in edge_index, got 3"),
        ({}, {"x": X[:, :2]}, ValueError, r"shape \[num_nodes, 3\], got \[4, 2\]"),
        ({}, {"x": X[0]}, ValueError, r"shape \[num_nodes, 3\], got \[3\]"),
        ({}, {"x": X.long()}, TypeError, "floating point node features, got torch.int64"),
        ({}, {"x": X.double()}, TypeError, "model's dtype torch.float32, got torch.float64"),
        ({}, {"x": X.tolist()}, TypeError, "expected x as a torch.Tensor or a PyG Data, got list"),
        ({}, {"edge_index": None}, ValueError, "expected edge_index or schedule, got neither"),
        ({}, {"edge_index": EDGES.int()}, TypeError, "dtype torch.int64, got torch.int32"),
        ({}, {"edge_index": EDGES.t()}, ValueError, r"shape \[2, num_edges\], got \[4, 2\]"),
        ({}, {"edge_index": EDGES - 1}, ValueError, "got -1"),
        ({}, {"edge_index": EDGES[:, [0, 0]] * 0}, CycleError, "self-loop: 0 -> 0"),
        (TYPED, {}, ValueError, "expected edge_type, since the model has edge_types=2; got None"),
        (TYPED, {"edge_type": TYPES + 1}, ValueError, r"from 0 to 2 \(exclusive\), got 2"),
        (TYPED, {"edge_type": TYPES - 1}, ValueError, r"from 0 to 2 \(exclusive\), got -1"),
        (TYPED, {"edge_type": TYPES.float()}, ValueError, r"torch.int64 and shape \[4\].*float32"),
        (TYPED, {"edge_type": TYPES[:3]}, ValueError, r"shape \[4\], one per edge, got .*\[3\]"),
        (FEATURED, {}, ValueError, r"expected edge_attr of shape \[4, 2\], got None"),
        (FEATURED, {"edge_attr": torch.zeros(4, 3)}, ValueError, r"\[4, 2\], got \[4, 3\]"),
        (FEATURED, {"edge_attr": torch.zeros(4)}, ValueError, r"\[4, 2\], got \[4\]"),
        (FEATURED, {"edge_attr": TYPES.repeat(2, 1).T}, TypeError, "of the model's dtype"),
        ({}, {"batch": torch.tensor([0, 1, 0, 1])}, ValueError, "ascending order, got 0 after 1"),
        ({}, {"batch": torch.tensor([0, 0, 1, 1])}, ValueError, "edge 0 -> 2 from graph 0 to"),
        ({}, {"batch": torch.tensor([0, 0, 0])}, ValueError, "each of the 4 nodes"),
        ({}, {"batch": torch.zeros(4)}, TypeError, "batch of dtype torch.int64, got torch.float32"),
        ({}, {"batch": TYPES * 0, "batch_size": 0}, ValueError, r"0 to 0 \(exclusive\) in batch"),
        ({}, {"batch_size": 3}, ValueError, "batch_size=3, got None; .* pass the graph of"),
        ({}, {"batch_size": 0}, ValueError, "batch beside batch_size=0, got None"),
        ({}, {"schedule": SMALLER}, ValueError, "all 2 nodes of the schedule, got 4 rows"),
        ({}, {"schedule": OTHER}, ValueError, r"with 3 edges, got edge_index of shape \[2, 4\]"),
        ({"bidirectional": True}, {"schedule": ONE_WAY}, ValueError, "with both directions"),
        ({}, {"x": X.to("meta")}, ValueError, "on one device, got x on meta, edge_index on cpu"),
        ({}, {"edge_index": EDGES.to("meta")}, ValueError, "edge_index on meta.*parameters on cpu"),
        (TYPED, {"edge_type": TYPES.to("meta")}, ValueError, "edge_type on meta"),
        ({}, {"batch": TYPES.to("meta")}, ValueError, "batch on meta"),
        ({}, {"schedule": ONE_WAY.to("meta")}, ValueError, "schedule on meta"),
    ],
)  # fmt: skip
def test_bad_input(
    options: dict[str, Any], arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    model = DAGNN(3, 8, **options)
    with pytest.raises(error, match=message):
        model(**{"x": X, "edge_index": EDGES, **arguments})


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (Data(edge_index=EDGES, num_nodes=4), "expected data.x with node features"),
        (Data(x=X), "expected edge_index or schedule, got neither"),
        (Data(x=X, edge_index=EDGES, level=torch.zeros(4).long()), "levels that rise along every"),
        (Data(x=X, edge_index=EDGES, level=torch.zeros(3).long()), r"shape \[4\], got \[3\]"),
    ],
)
def test_bad_data(data: Data, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DAGNN(3, 8)(data)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_bad_values_in_compiled_code(backend: str) -> None:
    """They are checked when the graph runs, with the messages that eager code has."""
    torch.compiler.reset()
    model = DAGNN(3, 8, **TYPED)
    compiled = torch.compile(model, fullgraph=True, backend=backend, dynamic=True)
    good = {"x": X, "edge_index": EDGES, "edge_type": TYPES, "batch": TYPES * 0, "batch_size": 2}
    bad = [
        ({"edge_index": EDGES + 10**8}, r"from 0 to 4 \(exclusive\) in edge_index, got 100000003"),
        ({"edge_index": EDGES - 1}, r"from 0 to 4 \(exclusive\) in edge_index, got -1"),
        ({"edge_type": TYPES + 1}, r"edge types from 0 to 2 \(exclusive\), got 2"),
        ({"edge_type": TYPES - 1}, r"edge types from 0 to 2 \(exclusive\), got -1"),
        ({"batch": torch.tensor([0, 1, 0, 1])}, "ascending order, got 0 after 1 at node 2"),
        ({"batch": torch.tensor([0, 0, 0, 2])}, r"from 0 to 2 \(exclusive\) in batch, got 2"),
        ({"batch": torch.tensor([0, 0, 1, 1])}, "edge 0 -> 2 from graph 0 to graph 1"),
    ]
    assert_close(compiled(**good), model(**good))
    for arguments, message in bad:
        for run in (model, compiled):
            with pytest.raises(ValueError, match=message):
                run(**{**good, **arguments})
    assert_close(compiled(**good), model(**good))


def test_operators_that_check() -> None:
    sweep = LevelSchedule.from_edge_index(EDGES).forward
    edges = sweep.order, sweep.pred_ptr, sweep.pred
    torch.library.opcheck(torch.ops.dagnn.checked_edge_type.default, (TYPES, 2))
    torch.library.opcheck(torch.ops.dagnn.checked_batch.default, (TYPES * 0, 1, *edges))


def test_bad_values_in_exported_code() -> None:
    good = X, EDGES, TYPES
    program = torch.export.export(DAGNN(3, 8, **TYPED), good).module()
    program(*good)
    with pytest.raises(ValueError, match=r"in edge_index, got 100000003"):
        program(X, EDGES + 10**8, TYPES)
    with pytest.raises(ValueError, match="edge types from 0 to 2"):
        program(X, EDGES, TYPES + 1)


def test_data_and_tensors_at_once() -> None:
    data = Data(x=X, edge_index=EDGES)
    with pytest.raises(ValueError, match="either a PyG Data or tensors"):
        DAGNN(3, 8)(data, EDGES)
    with pytest.raises(ValueError, match="expected batch beside batch_size=2, got None"):
        DAGNN(3, 8)(data, batch_size=2)


def test_autocast() -> None:
    """Lower precision is asked for by autocast, not by the features' dtype."""
    model = DAGNN(3, 8, backend="reference")
    exact = model(X, EDGES)
    with torch.autocast("cpu", torch.bfloat16):
        out: Tensor = model(X, EDGES)
    assert_close(out, exact, atol=0.05, rtol=0.05)


def test_a_batch_vector_in_the_place_of_edge_types_is_refused() -> None:
    model = DAGNN(3, 4)
    x, edge_index = torch.randn(4, 3), torch.tensor([[0, 0], [1, 2]])
    with pytest.raises(ValueError, match=r"pass that by name: batch=\.\.\."):
        model(x, edge_index, torch.tensor([0, 0, 0, 1]))


def test_a_stale_schedule_is_refused() -> None:
    model = DAGNN(3, 4)
    x, edge_index = torch.randn(3, 3), torch.tensor([[0, 1], [1, 2]])
    schedule = LevelSchedule.from_edge_index(edge_index)
    model(x, edge_index, schedule=schedule)
    with pytest.raises(ValueError, match="schedule of this very graph, got one of other edges"):
        model(x, edge_index.flip(0), schedule=schedule)


@pytest.mark.parametrize("schedule", ["soon", [1]])
def test_a_schedule_of_another_kind_is_refused(schedule: object) -> None:
    with pytest.raises(TypeError, match="expected schedule as a LevelSchedule, got"):
        DAGNN(3, 4)(torch.randn(2, 3), torch.tensor([[0], [1]]), schedule=schedule)


def test_arrays_are_refused_with_the_way_to_convert_them() -> None:
    edge_index = torch.tensor([[0], [1]]).numpy()
    with pytest.raises(TypeError, match=r"torch\.as_tensor\(edge_index\)"):
        DAGNN(3, 4)(torch.randn(2, 3), edge_index)
