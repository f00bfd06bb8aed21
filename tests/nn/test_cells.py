"""Cells by themselves; in a model they are in ``test_equations.py``, on chains in
``test_chain.py``."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from dagnn.nn.cells import CELLS, LinearCell, TreeLSTMCell, make_cell

IN, HIDDEN = 3, 4


@pytest.mark.parametrize("name", CELLS)
def test_shapes(name: str) -> None:
    cell = make_cell(name, IN, HIDDEN, HIDDEN)
    assert cell.hidden_size == HIDDEN
    message = torch.randn(5, HIDDEN)
    out = cell(torch.randn(5, IN), (message, message) if name == "lstm" else message)
    assert (out[0] if name == "lstm" else out).shape == (5, HIDDEN)


def test_pytorch_cells_are_used_as_they_are() -> None:
    assert type(make_cell("gru", IN, HIDDEN, HIDDEN)) is nn.GRUCell
    tanh, rnn = make_cell("tanh", IN, HIDDEN, HIDDEN), nn.RNNCell(IN, HIDDEN)
    tanh.load_state_dict(rnn.state_dict())
    x, message = torch.randn(5, IN), torch.randn(5, HIDDEN)
    assert_close(tanh(x, message), rnn(x, message))


def test_linear() -> None:
    cell = LinearCell(IN, 2 * HIDDEN, HIDDEN)
    x, message = torch.randn(5, IN), torch.randn(5, 2 * HIDDEN)
    expected = x @ cell.input.weight.T + cell.input.bias + message @ cell.message.weight.T
    assert_close(cell(x, message), expected)


@pytest.mark.parametrize("name", ["lstm", "linear", "tanh"])
def test_messages_may_be_wider_than_states(name: str) -> None:
    cell = make_cell(name, IN, 3 * HIDDEN, HIDDEN, arity=3)
    message = torch.randn(5, 3 * HIDDEN)
    state = (message, torch.randn(5, HIDDEN)) if name == "lstm" else message
    out = cell(torch.randn(5, IN), state)
    assert (out[0] if name == "lstm" else out).shape == (5, HIDDEN)


def test_a_forget_gate_keeps_or_drops_each_memory() -> None:
    """A large bias opens all gates; a child's own state can close its gate alone."""
    cell = TreeLSTMCell(IN, HIDDEN, HIDDEN)
    nn.init.zeros_(cell.input.weight)
    nn.init.constant_(cell.input.bias, 100.0)
    nn.init.zeros_(cell.forget.weight)
    cell.forget.weight.data[:, 0] = -1000.0
    x, index = torch.zeros(2, IN), torch.tensor([0, 0])
    memories = torch.tensor([[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]])
    states = torch.tensor([[0.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]])
    carried = cell.carry(x, torch.zeros(2, HIDDEN), states, memories, index, None)
    assert_close(carried, torch.tensor([[1.0, 2.0, 3.0, 4.0], [0.0, 0.0, 0.0, 0.0]]))


def test_bad_choices() -> None:
    with pytest.raises(ValueError, match=r"expected cell to be one of gru, .*, got 'rnn'"):
        make_cell("rnn", IN, HIDDEN, HIDDEN)
    with pytest.raises(ValueError, match=r"expected messages as wide as states \(4\).*got 8"):
        make_cell("gru", IN, 2 * HIDDEN, HIDDEN)
