"""On a chain, the DAG recurrence is a recurrent network over a sequence: PyTorch's own."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from dagnn import DAGNN
from dagnn.nn.cells import TreeLSTMCell
from dagnn.nn.family import dag_rnn, tree_lstm

LENGTH, IN, HIDDEN = 9, 5, 6
CHAIN = torch.stack([torch.arange(LENGTH - 1), torch.arange(1, LENGTH)])


def directions(model: DAGNN) -> list[tuple[str, Any]]:
    return [("", model.forward_layers), ("_reverse", model.reverse_layers)]


def states(model: DAGNN, x: Tensor, layer: int) -> Tensor:
    """What torch.nn.GRU calls the output. [N, S * H]"""
    found = model.embed_nodes(x, CHAIN)
    return torch.cat([h[layer] for h in found if h], dim=-1)


@pytest.mark.parametrize("backend", ["reference", "auto"])
@pytest.mark.parametrize("num_layers", [1, 2])
@pytest.mark.parametrize("reverse", [False, True])
def test_a_chain_equals_torch_gru(num_layers: int, reverse: bool, backend: str) -> None:
    """With weights copied from torch.nn.GRU; outputs and every gradient.

    In PyTorch's bidirectional GRU the directions meet in every layer, in DAGNN only in the
    readout, so for the reverse direction the GRU reads the reversed sequence.
    """
    gru = nn.GRU(IN, HIDDEN, num_layers).double()
    model = DAGNN(IN, HIDDEN, num_layers, bidirectional=reverse, backend=backend).double()
    layers = model.reverse_layers if reverse else model.forward_layers
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    for number, layer in enumerate(layers):
        layer.cell.load_state_dict({n: getattr(gru, f"{n}_l{number}") for n in names})
    x = torch.randn(LENGTH, IN, dtype=torch.float64, requires_grad=True)

    expected = gru(x.flip(0))[0].flip(0) if reverse else gru(x)[0]
    found = model.embed_nodes(x, CHAIN)
    out = (found.reverse if reverse else found.forward)[-1]
    assert_close(out, expected)

    weight = torch.randn_like(out)
    (grad_x,) = torch.autograd.grad((expected * weight).sum(), x, retain_graph=True)
    (expected * weight).sum().backward()
    x.grad = None
    (out * weight).sum().backward()
    assert_close(x.grad, grad_x)
    for number, layer in enumerate(layers):
        for name in names:
            wanted = getattr(gru, f"{name}_l{number}").grad
            assert_close(getattr(layer.cell, name).grad, wanted)


@pytest.mark.parametrize("backend", ["reference", "auto"])
def test_one_layer_in_both_directions_equals_a_bidirectional_gru(backend: str) -> None:
    gru = nn.GRU(IN, HIDDEN, bidirectional=True).double()
    model = DAGNN(IN, HIDDEN, num_layers=1, bidirectional=True, backend=backend).double()
    for suffix, layers in directions(model):
        for name, parameter in layers[0].cell.named_parameters():
            parameter.data.copy_(getattr(gru, f"{name}_l0{suffix}"))
    x = torch.randn(LENGTH, IN, dtype=torch.float64)
    out, last = gru(x)
    assert_close(states(model, x, 1), out)
    # The target is the last node, the source the first: where the two directions end.
    pooled = torch.cat([x[-1], last[0], x[0], last[1]])
    assert_close(model(x, CHAIN)[0], pooled)


def copy_lstm(cell: TreeLSTMCell, lstm: nn.LSTM, suffix: str = "l0") -> None:
    """PyTorch orders the gates i, f, g, o and has two biases; the Tree-LSTM i, o, g, f and one."""
    weight_ih, weight_hh = (
        getattr(lstm, f"weight_ih_{suffix}"),
        getattr(lstm, f"weight_hh_{suffix}"),
    )
    bias = getattr(lstm, f"bias_ih_{suffix}") + getattr(lstm, f"bias_hh_{suffix}")
    (i, f, g, o), (ui, uf, ug, uo) = weight_ih.chunk(4), weight_hh.chunk(4)
    bi, bf, bg, bo = bias.chunk(4)
    cell.input.weight.data.copy_(torch.cat([i, o, g, f]))
    cell.input.bias.data.copy_(torch.cat([bi, bo, bg, bf]))
    cell.message.weight.data.copy_(torch.cat([ui, uo, ug]))
    cell.forget.weight.data.copy_(uf)


@pytest.mark.parametrize("arity", [None, 1])
def test_a_tree_lstm_on_a_chain_equals_torch_lstm(arity: int | None) -> None:
    lstm = nn.LSTM(IN, HIDDEN).double()
    model = tree_lstm(IN, HIDDEN, arity).double()
    copy_lstm(model.forward_layers[0].cell, lstm)
    x = torch.randn(LENGTH, IN, dtype=torch.float64, requires_grad=True)
    types = None if arity is None else torch.zeros(LENGTH - 1, dtype=torch.long)
    out, expected = model.embed_nodes(x, CHAIN, types).forward[1], lstm(x)[0]
    assert_close(out, expected)
    weight = torch.randn_like(out)
    grads = [torch.autograd.grad((h * weight).sum(), x)[0] for h in (out, expected)]
    assert_close(*grads)


def test_two_layers_of_lstm_equal_torch_lstm() -> None:
    """Every layer has memories of its own."""
    lstm = nn.LSTM(IN, HIDDEN, num_layers=2).double()
    model = tree_lstm(IN, HIDDEN, num_layers=2).double()
    for number, layer in enumerate(model.forward_layers):
        copy_lstm(layer.cell, lstm, f"l{number}")
    x = torch.randn(LENGTH, IN, dtype=torch.float64)
    assert_close(states(model, x, 2), lstm(x)[0])


def test_a_dag_rnn_on_a_chain_equals_torch_rnn() -> None:
    rnn = nn.RNN(IN, HIDDEN, num_layers=2).double()
    model = dag_rnn(IN, HIDDEN, num_layers=2).double()
    for number, layer in enumerate(model.forward_layers):
        for name, parameter in layer.cell.named_parameters():
            parameter.data.copy_(getattr(rnn, f"{name}_l{number}"))
    x = torch.randn(LENGTH, IN, dtype=torch.float64, requires_grad=True)
    out, expected = states(model, x, 2), rnn(x)[0]
    assert_close(out, expected)
    weight = torch.randn_like(out)
    grads = [torch.autograd.grad((h * weight).sum(), x)[0] for h in (out, expected)]
    assert_close(*grads)
