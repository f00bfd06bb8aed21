import math

import pytest
import torch
from torch.testing import assert_close

from dagnn.nn.readout import READOUTS, Readout

ROWS = torch.tensor([[1.0, -4.0], [3.0, -2.0], [5.0, 6.0]])
INDEX = torch.tensor([0, 0, 2])  # graph 1 has no nodes


@pytest.mark.parametrize(
    ("mode", "first"), [("max", [3.0, -2.0]), ("mean", [2.0, -3.0]), ("sum", [4.0, -6.0])]
)
def test_values(mode: str, first: list[float]) -> None:
    out = Readout(2, mode)(ROWS, INDEX, 3)
    assert out.tolist() == [first, [0.0, 0.0], [5.0, 6.0]]


def test_attention_is_a_softmax_over_the_nodes_of_a_graph() -> None:
    readout = Readout(2, "attention")
    readout.score.weight.data = torch.tensor([[math.log(3) / 2, 0.0]])
    out = readout(ROWS, INDEX, 3)
    assert_close(out, torch.tensor([[2.5, -2.5], [0.0, 0.0], [5.0, 6.0]]))


def test_gated_sum_gates_each_channel() -> None:
    readout = Readout(2, "gated_sum")
    for linear in (readout.gate, readout.map):
        torch.nn.init.zeros_(linear.bias)
    readout.gate.weight.data = torch.zeros(2, 2)  # half open
    readout.map.weight.data = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    out = readout(ROWS, INDEX, 3)
    tanh = [math.tanh(x) for x in range(7)]
    first = [(-tanh[4] - tanh[2]) / 2, (tanh[1] + tanh[3]) / 2]
    assert_close(out, torch.tensor([first, [0.0, 0.0], [tanh[6] / 2, tanh[5] / 2]]))


@pytest.mark.parametrize("mode", READOUTS)
def test_empty_graphs_and_no_rows_are_zero(mode: str) -> None:
    out = Readout(2, mode)(ROWS[:0], INDEX[:0], 2)
    assert torch.equal(out, torch.zeros(2, 2))


@pytest.mark.parametrize("mode", READOUTS)
def test_the_order_of_a_graphs_rows_does_not_matter(mode: str) -> None:
    readout = Readout(2, mode)
    order = torch.tensor([1, 0, 2])
    assert torch.equal(INDEX[order], INDEX)
    assert_close(readout(ROWS[order], INDEX, 3), readout(ROWS, INDEX, 3))


def test_repr_and_unknown_name() -> None:
    assert repr(Readout(2, "mean")) == "Readout(2, mode='mean')"
    with pytest.raises(ValueError, match=r"expected readout to be one of max, .*, got 'median'"):
        Readout(2, "median")
