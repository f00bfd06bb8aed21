"""Every model: it fits a small batch, graphs do not see each other, parameters are counted."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dagnn.tasks.code_encoders import DYNAMIC, MODELS, RECURRENT, CodeEncoder, EncoderConfig
from dagnn.tasks.code_protocol import preset as code_preset
from dagnn.tasks.longest_path import LongestPath
from dagnn.tasks.token_prediction import TokenPrediction
from tests.tasks.small_code import dataset, vocabulary

CHANNELS = 24


def make(model: str, **options: Any) -> CodeEncoder:
    config = EncoderConfig(model=model, channels=CHANNELS, **options)
    return CodeEncoder(config, len(vocabulary().node_types), len(vocabulary().attributes))


pytestmark = pytest.mark.filterwarnings("ignore:Sparse")  # of PyG's ASAPooling


@pytest.mark.parametrize("model", MODELS)
def test_fits_a_small_batch(model: str) -> None:
    config = EncoderConfig(model=model, channels=CHANNELS, dropout=0.0)
    task = TokenPrediction(config, vocabulary(), learning_rate=0.01)
    batch = dataset().train.batch(range(16), schedule=True)
    optimizer = task.configure_optimizers()
    for _ in range(80):
        optimizer.zero_grad()
        task.loss(batch).backward()
        optimizer.step()
    task.train()
    assert float(task.loss(batch).detach()) < 0.1
    assert float(task.evaluate_batch(batch)["f1"]) > 0.95


@pytest.mark.parametrize("model", MODELS)
def test_a_batch_of_graphs_is_its_graphs_one_by_one(model: str) -> None:
    encoder = make(model).eval()
    data = dataset().train
    with torch.no_grad():
        together = encoder(data.batch([3, 0, 9], schedule=True))
        alone = torch.cat([encoder(data.batch([i], schedule=True)) for i in (3, 0, 9)])
    assert together.shape == (3, CHANNELS)
    assert torch.allclose(together, alone, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("model", MODELS)
def test_every_parameter_learns(model: str) -> None:
    encoder = make(model)
    encoder(dataset().train.batch(range(12), schedule=True)).square().sum().backward()
    idle = [n for n, p in encoder.named_parameters() if p.grad is None or not p.grad.any()]
    # DAGNN's query cancels in its softmax; of the scale in PyG's SelectTopK only the sign counts.
    assert [name for name in idle if "query" not in name and "select.weight" not in name] == []


@pytest.mark.parametrize("model", MODELS)
def test_dropout(model: str) -> None:
    """Of the features that go in and of the vector that comes out, in training alone."""
    torch.manual_seed(1)
    encoder = make(model, dropout=0.4)
    batch = dataset().train.batch(range(40), schedule=True)
    plain = make(model, dropout=0.0)
    plain.load_state_dict(encoder.state_dict())
    assert torch.equal(encoder.eval()(batch), plain.eval()(batch))
    seen: list[Tensor] = []
    encoder.train().body.register_forward_hook(lambda _, given, made: seen.extend((given[0], made)))
    out = encoder(batch)
    features, vector = seen
    assert 0.35 < float((features == 0).float().mean()) < 0.45
    kept = (vector != 0).float().mean()  # SAGPool's vectors have zeros of their own
    assert 0.55 < float((out != 0).float().mean() / kept) < 0.65
    torch.manual_seed(2)
    again = encoder(batch)
    assert not torch.equal(again, out)
    torch.manual_seed(2)
    assert torch.equal(encoder(batch), again)


@pytest.mark.parametrize("model", MODELS)
def test_default_dropout(model: str) -> None:
    """None, but that of SAGPool and ASAP, which any number replaces."""
    batch = dataset().train.batch(range(40), schedule=True)
    for dropout, drops in ((None, model in DYNAMIC), (0.0, False)):
        encoder = make(model, dropout=dropout)
        assert torch.equal(encoder(batch), encoder(batch)) != drops


@pytest.mark.parametrize("dropout", [-0.1, 1.0, float("nan")])
def test_impossible_dropout(dropout: float) -> None:
    with pytest.raises(ValueError, match=f"expected 0 <= dropout < 1, got {dropout}"):
        EncoderConfig(dropout=dropout)


@pytest.mark.parametrize("model", MODELS)
def test_mixed_precision(model: str) -> None:
    encoder = make(model).eval()
    batch = dataset().train.batch(range(12), schedule=True)
    exact = encoder(batch).detach()
    with torch.autocast("cpu", torch.bfloat16):
        rounded = encoder(batch)
    assert torch.allclose(rounded.float(), exact, rtol=0.1, atol=0.05 * float(exact.abs().max()))
    rounded.float().sum().backward()


@pytest.mark.parametrize("model", MODELS)
def test_sums_are_not_in_half_precision(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU would add terms one by one to a sum of their type, which in bfloat16 ends at 256 ones;
    a CPU has another way."""
    types: list[torch.dtype] = []
    for name in ("scatter_add_", "index_add", "index_add_"):
        added = getattr(Tensor, name)

        def watched(out: Tensor, *call: Any, added: Any = added) -> Tensor:
            types.append(out.dtype)
            return added(out, *call)

        monkeypatch.setattr(Tensor, name, watched)
    with torch.autocast("cpu", torch.bfloat16):
        make(model)(dataset().train.batch(range(12), schedule=True))
    assert set(types) <= {torch.float32, torch.long}  # numbers of nodes are integers
    assert types or model in RECURRENT


H = 300


def expected_parameters(model: str) -> int:
    linear = H * H + H
    edge = 2 * H + H
    norm = 2 * H
    gru = 3 * (H * H + H) * 2
    mlp = (2 * H * H + 2 * H) + 4 * H + (2 * H * H + H)  # linear, batch norm, linear
    gcn = linear + H + edge + norm
    gin = 1 + edge + mlp + norm
    virtual = H + 4 * (mlp + 2 * H)
    gat = H * H + 2 * H + H + 2 * H + H + norm  # product, two scores, bias, edges
    conv = 2 * H * H + H
    counts = {
        "gcn": 5 * gcn,
        "gin": 5 * gin,
        "gcn-vn": 5 * gcn + virtual,
        "gin-vn": 5 * gin + virtual,
        "gat": 5 * gat,
        "ggnn": 4 * linear + gru + 2 * (2 * H * H + H),
        # per pooling a convolution to one channel, and a scale
        "sagpool": 5 * conv + 2 * (2 * H + 1 + 1) + 5 * H * H + H,
        # per pooling a linear layer, a score of pairs, a convolution of three parts, and a scale
        "asap": 3 * conv + (linear + 2 * H + 1 + (3 * H + 2) + 1) + 3 * H * H + H,
        "bag": 2 * linear,
    }
    return counts[model]


@pytest.mark.parametrize("model", [m for m in MODELS if m not in ("dagnn", "dvae")])
def test_parameter_counts(model: str) -> None:
    encoder = CodeEncoder(EncoderConfig(model=model), 10, 20)
    assert sum(p.numel() for p in encoder.embedding.parameters()) == (10 + 20 + 21) * H
    body = sum(p.numel() for p in encoder.body.parameters())
    assert body == expected_parameters(model)


def test_parameters_of_the_recurrent_models() -> None:
    gru = 3 * (H * H + H) * 2
    dagnn = CodeEncoder(EncoderConfig(), 10, 20).body
    cells = sum(p.numel() for n, p in dagnn.named_parameters() if ".cell." in n)
    assert cells == 2 * 2 * gru
    assert dagnn.lin.weight.shape == (H, 2 * 3 * H)  # type: ignore[union-attr]
    dvae = CodeEncoder(EncoderConfig(model="dvae"), 10, 20).body
    assert dvae.lin.weight.shape == (H, 2 * H)  # type: ignore[union-attr]


ABLATIONS: list[dict[str, Any]] = [
    {"aggregator": "gated_sum"},
    {"layers": 1},
    {"layers": 5},
    {"cell": "linear"},
    {"pool": "all"},
    {"readout": "attention"},
    {"pool": "all", "readout": "mean"},
    {"edge_attributes": False},
    {"bidirectional": False},
    {"aggregator": "dot_attention"},
    {"aggregator": "dynamic_attention"},
]


@pytest.mark.parametrize("options", ABLATIONS, ids=str)
def test_ablations_reach_the_model(options: dict[str, Any]) -> None:
    encoder = make("dagnn", **options)
    body: Any = encoder.body
    layer = body.forward_layers[0]
    found = {
        "aggregator": {
            "Attention": "attention",
            "GatedSum": "gated_sum",
            "DotAttention": "dot_attention",
            "DynamicAttention": "dynamic_attention",
        }[type(layer.aggregator).__name__],
        "cell": "gru" if isinstance(layer.cell, nn.GRUCell) else "linear",
        "layers": body.num_layers,
        "pool": body.readout_nodes,
        "readout": body.forward_readout.mode,
        "edge_attributes": body.edge_types is not None,
        "bidirectional": body.bidirectional,
    }
    default = {"aggregator": "attention", "cell": "gru", "layers": 2, "pool": "targets",
               "readout": "max", "edge_attributes": True, "bidirectional": True}  # fmt: skip
    expected = {**default, **options}
    if expected["aggregator"] == "gated_sum":
        expected["edge_attributes"] = False
    assert found == expected
    out = encoder(dataset().train.batch(range(4), schedule=True))
    assert out.shape == (4, CHANNELS)
    out.sum().backward()


def test_settings_are_stored_as_they_were_by_runs_that_may_go_on() -> None:
    """A new name would be a new config: such a run could not be resumed, and its record would be
    another cell's."""
    names = {"model", "channels", "layers", "depth", "dropout", "aggregator", "cell", "pool",
             "edge_attributes", "bidirectional"}  # fmt: skip
    assert EncoderConfig().to_dict().keys() == names
    run = code_preset("paper", "tok", "gcn")
    assert run.to_dict()["encoder"] == run.encoder.to_dict()
    other = EncoderConfig(readout="sum")
    assert other.to_dict().keys() == {*names, "readout"}
    for config in (EncoderConfig(), other):
        assert EncoderConfig.from_dict(config.to_dict()) == config


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": "cnn"}, "expected a model of dagnn, dvae"),
        ({"model": "gcn", "aggregator": "gated_sum"}, "expected aggregator with the model dagnn"),
        ({"model": "dvae", "pool": "all"}, "expected pool with the model dagnn"),
        ({"model": "ggnn", "readout": "sum"}, "expected readout with the model dagnn"),
        ({"aggregator": "foo"}, "expected aggregator to be one of attention, .*, got 'foo'"),
        ({"cell": "foo"}, "expected cell to be one of gru, .*, got 'foo'"),
        ({"pool": "some"}, "expected pool to be one of targets, all, got 'some'"),
        ({"readout": "median"}, "expected readout to be one of max, .*, got 'median'"),
        ({"channels": 0}, "channels >= 1"),
        ({"layers": 0}, "layers >= 1"),
        ({"model": "bag", "layers": 1}, "expected no layers with the model bag, got 1"),
        ({"model": "bag", "layers": -1}, "expected no layers with the model bag, got -1"),
    ],
)
def test_bad_configs(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EncoderConfig(**options)


def test_longest_path_hides_the_depth_and_counts_what_is_beyond_as_wrong() -> None:
    data = dataset("ast")
    batch = data.train.batch(range(10), schedule=True)
    lengths = batch.longest_path
    task = LongestPath(EncoderConfig(channels=CHANNELS), vocabulary(), int(lengths.max()) - 1)
    assert task.encoder.embedding.depth is None
    with torch.no_grad():  # a head that always answers with the longest class it has
        task.head.weight.zero_()
        task.head.bias.copy_(torch.arange(float(lengths.max())))
        values = task.evaluate_batch(batch)
        assert float(values["accuracy"]) == pytest.approx(
            float((lengths == lengths.max() - 1).float().mean())
        )
        # Of all graphs, those beyond the classes included, which add nothing.
        logs = torch.arange(float(lengths.max())).log_softmax(0)
        inside = lengths[lengths < lengths.max()]
        assert float(values["loss"]) == pytest.approx(float(-logs[inside].sum() / len(lengths)))
