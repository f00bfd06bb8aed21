"""Encoders whose steps can be captured: padding changes nothing, and no size depends on values."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import GATConv

from dagnn.graph.flat import FlatGraphs
from dagnn.nn.readout import READOUTS
from dagnn.tasks.code_encoders import DYNAMIC, MODELS, RECURRENT, CodeEncoder, EncoderConfig
from dagnn.tasks.graph_task import CodeTask
from dagnn.tasks.longest_path import LongestPath
from dagnn.tasks.token_prediction import TokenPrediction
from tests.tasks.small_code import dataset, vocabulary

CHANNELS = 16
GRAPHS = [3, 0, 9, 11, 20]
PASSING = [model for model in MODELS if model not in (*RECURRENT, *DYNAMIC)]  # messages


def graphs() -> FlatGraphs:
    return dataset().train.without("name_tokens")  # ragged


def make(model: str, **options: Any) -> CodeEncoder:
    torch.manual_seed(0)
    config = EncoderConfig(model=model, channels=CHANNELS, **options)
    encoder = CodeEncoder(config, len(vocabulary().node_types), len(vocabulary().attributes))
    with torch.no_grad():  # what is zero at first could hide a difference
        for parameter in encoder.parameters():
            if not parameter.any():
                parameter.normal_()
    return encoder.double()


def step(encoder: CodeEncoder, padded: bool) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss of a step, and all that it leaves: gradients and running statistics."""
    batch = graphs().batch(GRAPHS, schedule=encoder.is_recurrent, padded=padded)
    assert batch.num_graphs == len(GRAPHS) + padded
    slope = torch.linspace(-1, 1, len(GRAPHS) * CHANNELS, dtype=torch.float64)
    loss = (encoder(batch)[: len(GRAPHS)].flatten() * slope).sum()
    loss.backward()
    gradients = {n: p.grad for n, p in encoder.named_parameters() if p.grad is not None}
    return loss, {**gradients, **dict(encoder.named_buffers())}


@pytest.mark.parametrize(
    ("model", "options"),
    [
        *((model, {}) for model in [*PASSING, *RECURRENT]),
        *(("dagnn", {"readout": mode, "pool": "all"}) for mode in READOUTS),
        ("dagnn", {"readout": "attention"}),
    ],
)
def test_a_filler_is_of_no_concern(model: str, options: dict[str, str]) -> None:
    plain, padded = make(model, **options), make(model, **options)
    expected, wanted = step(plain, padded=False)
    found, left = step(padded, padded=True)
    torch.testing.assert_close(found, expected, atol=1e-10, rtol=1e-10)
    assert left.keys() == wanted.keys()
    assert len(list(plain.parameters())) <= len(wanted)
    for name, value in wanted.items():
        torch.testing.assert_close(left[name], value, atol=1e-10, rtol=1e-10, msg=name)


def test_the_filler_would_be_seen() -> None:
    """What the test above could not tell from a batch normalization that takes all rows."""
    batch = graphs().batch(GRAPHS, padded=True)
    left_out, taken = make("gcn"), make("gcn")
    left_out(batch)
    batch._has_filler = False
    taken(batch)
    pairs = zip(left_out.buffers(), taken.buffers(), strict=True)
    assert not all(torch.allclose(a, b, rtol=1e-3) for a, b in pairs)


@pytest.mark.parametrize("kind", [TokenPrediction, LongestPath])
@pytest.mark.parametrize("model", PASSING)
def test_no_size_depends_on_values(
    model: str, kind: type[TokenPrediction] | type[LongestPath]
) -> None:
    """Tensors of the meta device have no values: whoever asks for one fails, as a capture would."""
    task, batch = on_meta(model, kind)
    task.loss(batch).backward()
    assert all(p.grad is not None and p.grad.is_meta for p in task.parameters())


def test_sizes_that_depend_on_values_are_found() -> None:
    """The test above fails for PyG's own self-loops."""
    task, batch = on_meta("gat", TokenPrediction)
    for module in task.modules():
        if isinstance(module, GATConv):
            module.add_self_loops = True
    with pytest.raises(NotImplementedError, match="nonzero"):
        task.loss(batch)


def on_meta(model: str, kind: type[TokenPrediction] | type[LongestPath]) -> tuple[CodeTask, object]:
    config = EncoderConfig(model=model, channels=CHANNELS)
    more = (9,) if kind is LongestPath else ()
    task = kind(config, vocabulary(), *more).to("meta")
    return task, graphs().batch(GRAPHS, padded=True).to("meta")


@pytest.mark.parametrize("model", MODELS)
def test_which_can_be_captured(model: str) -> None:
    encoder = make(model)
    assert encoder.is_static == (model not in DYNAMIC)
    assert encoder.is_fused == (model in RECURRENT)
    assert make(model, dropout=0.1).is_static == encoder.is_static


@pytest.mark.parametrize("model", PASSING)
def test_norms_of_several_processes(model: str) -> None:
    """On GPUs, Lightning puts torch's synchronized normalization in the place of ours."""
    encoder = make(model)
    converted = nn.SyncBatchNorm.convert_sync_batchnorm(make(model))
    batch = dataset().train.batch(GRAPHS)
    torch.testing.assert_close(converted(batch), encoder(batch))
