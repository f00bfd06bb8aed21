"""The operator inside PyTorch: choice of backend, compilation, export, autocast, DDP and so on."""

import copy
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, distributed, multiprocessing, nn
from torch.nn.parallel import DistributedDataParallel
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint
from torch_geometric.data import Batch, Data

from dagnn import DAGNN, LevelSchedule
from dagnn.ops import stack
from tests.nn.configurations import EDGE_TYPES, IN, example_batch, gradients, kite, make_graph


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def make_model(backend: str = "cpu", **options: Any) -> DAGNN:
    options = {"bidirectional": True, "edge_types": EDGE_TYPES, "out_channels": 2, **options}
    return DAGNN(IN, 5, backend=backend, **options).double()


def arguments(data: Data) -> tuple[Tensor, Tensor, Tensor]:
    return data.x, data.edge_index, data.edge_type


# Autograd


def test_backward_twice() -> None:
    model, data = make_model(), kite()
    out = model(*arguments(data)).sum()
    variables = list(model.parameters())
    first = torch.autograd.grad(out, variables, retain_graph=True)
    second = torch.autograd.grad(out, variables)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("cell", ["gru", "linear"])
def test_second_derivatives_are_refused(cell: str) -> None:
    """Rather than come out without what the states' own gradients add."""
    x, *edges = arguments(kite())
    x.requires_grad_()
    model = make_model(cell=cell)
    for loss in (model(x, *edges).square().sum(), model(x, *edges).sum()):  # its slope is constant
        with pytest.raises(RuntimeError, match="make a DAGNN with backend='reference'"):
            torch.autograd.grad(loss, x, create_graph=True)


def test_every_parameter_has_a_gradient() -> None:
    """Also those that cancel in the softmax: DDP waits for all of them."""
    model = make_model(tie_edge_weight=False)
    model(*arguments(kite())).sum().backward()
    assert all(p.grad is not None for p in model.parameters())
    for name, parameter in model.named_parameters():
        if "query" in name:
            assert torch.equal(parameter.grad, torch.zeros_like(parameter)), name


def test_a_tied_edge_weight_has_both_gradients() -> None:
    model, plain = make_model(tie_edge_weight=True), make_model("reference", tie_edge_weight=True)
    plain.load_state_dict(model.state_dict())
    data = kite()
    found, expected = (gradients(m(*arguments(data)), m) for m in (model, plain))
    for a, b in zip(found, expected, strict=True):
        assert_close(a, b)


@pytest.mark.parametrize("inference", [torch.no_grad, torch.inference_mode])
def test_inference_keeps_nothing_for_backward(
    inference: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = []
    forward = stack.forward

    def spy(*args: Any) -> Any:
        states, saved = forward(*args)
        kept.append(len(saved))
        return states, saved

    monkeypatch.setattr(stack, "forward", spy)
    model, data = make_model(), kite()
    expected = model(*arguments(data))
    with inference():
        assert torch.equal(model(*arguments(data)), expected)
    model.requires_grad_(False)
    assert torch.equal(model(*arguments(data)), expected)
    assert kept == [2, 0, 0]


def test_dropout_between_layers() -> None:
    """With a probability so small that nothing drops: one operator per layer does the same."""
    data = example_batch()
    plain = make_model()
    dropping = make_model(dropout=1e-12)
    dropping.load_state_dict(plain.state_dict())
    outs = [model(data) for model in (plain, dropping)]
    assert_close(outs[1], outs[0])
    expected = gradients(outs[0], plain)
    for a, b in zip(gradients(outs[1], dropping), expected, strict=True):
        assert_close(a, b)
    dropping.dropout = 0.5
    first, second = dropping(data), dropping(data)
    assert not torch.equal(first, second)
    assert torch.equal(dropping.eval()(data), dropping(data))


# PyTorch's transformations


def operator_arguments(aggregator: str, cell: str, save: bool) -> tuple[Any, ...]:
    schedule = LevelSchedule.from_data(make_graph([(0, 1), (2, 1), (1, 3)], 5))
    sizes = {
        "gru": [(15, IN), (15, 5), (15,), (15,)],
        "linear": [(5, IN), (5, 5), (5,)],
        "attention": [(1, 5)],
        "gated_sum": [(5, 5), (5,), (5, 5)],
    }

    def tensor(*shape: int) -> Tensor:
        return torch.randn(shape, dtype=torch.float64, requires_grad=save)

    parameters = [tensor(2, *size) for size in sizes[cell] + sizes[aggregator]]
    scores = [tensor(2, 3)] if aggregator == "attention" else []
    graph = [getattr(schedule, name) for name in stack.Graph._fields]
    return (tensor(5, IN), graph, parameters, scores, aggregator, cell, 1, "cpu", "fp32", save)


@pytest.mark.parametrize("save", [False, True])
@pytest.mark.parametrize("aggregator", ["attention", "gated_sum"])
@pytest.mark.parametrize("cell", ["gru", "linear"])
def test_operator(aggregator: str, cell: str, save: bool) -> None:
    given = operator_arguments(aggregator, cell, save)
    torch.library.opcheck(torch.ops.dagnn.recurrence.default, given)
    outputs = torch.ops.dagnn.recurrence(*given)
    kept = 0 if not save else 3 if cell == "gru" else 2
    assert len(outputs) == 1 + kept


@pytest.mark.parametrize("aggregator", ["attention", "gated_sum"])
@pytest.mark.parametrize("cell", ["gru", "linear"])
def test_operator_backward(aggregator: str, cell: str) -> None:
    *given, _ = operator_arguments(aggregator, cell, False)
    outputs = torch.ops.dagnn.recurrence(*given, True)
    arguments = ([torch.ones_like(outputs[0])], *given[:4], outputs, *given[4:], True)
    checks = ("test_schema", "test_faketensor")
    torch.library.opcheck(torch.ops.dagnn.recurrence_backward.default, arguments, test_utils=checks)


@pytest.mark.parametrize("with_schedule", [False, True])
def test_compiles_without_a_break(with_schedule: bool) -> None:
    model = make_model()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    for data in (kite(), make_graph([(0, 1), (0, 2), (2, 3)], 6)):
        given: dict[str, Any] = {"x": data.x, "edge_type": data.edge_type}
        if with_schedule:
            given["schedule"] = LevelSchedule.from_data(data)
        else:
            given["edge_index"] = data.edge_index
        expected, out = model(**given), compiled(**given)
        assert_close(out, expected)
        for a, b in zip(gradients(out, model), gradients(expected, model), strict=True):
            assert_close(a, b)


def test_exports() -> None:
    model, data = make_model().eval(), kite()
    dynamic = torch.export.Dim.DYNAMIC
    shapes = ({0: dynamic}, {1: dynamic}, {0: dynamic})
    program = torch.export.export(model, arguments(data), dynamic_shapes=shapes)
    for other in (data, make_graph([(0, 1), (0, 2), (2, 3)], 6)):
        assert_close(program.module()(*arguments(other)), model(*arguments(other)))


def test_autocast() -> None:
    """The recurrence stays in the parameters' precision; the linear layer after it may not."""
    model, data = make_model().float(), kite()
    given = (data.x.float(), data.edge_index, data.edge_type)
    with torch.autocast("cpu", torch.bfloat16):
        out = model(*given)
        states = model.embed_nodes(*given)
        from_half = model.embed_nodes(given[0].bfloat16(), *given[1:])
    assert out.dtype == torch.bfloat16
    expected = model.embed_nodes(*given)
    assert_close(states.reverse[-1].float(), expected.reverse[-1])
    assert_close(from_half.reverse[-1].float(), expected.reverse[-1], atol=1e-2, rtol=1e-2)
    gradients(out, model)


@pytest.mark.parametrize("reentrant", [False, True])
def test_activation_checkpointing(reentrant: bool) -> None:
    model, data = make_model(), kite()
    x = data.x.requires_grad_()
    expected = model(x, data.edge_index, data.edge_type)
    out = checkpoint(model, x, data.edge_index, data.edge_type, use_reentrant=reentrant)
    assert torch.equal(out, expected)
    found, wanted = [], []
    for result, into in ((out, found), (expected, wanted)):
        model.zero_grad()
        x.grad = None
        result.square().sum().backward()
        into += [x.grad, *(copy.deepcopy(p.grad) for p in model.parameters())]
    for a, b in zip(found, wanted, strict=True):
        assert_close(a, b)


def graphs() -> list[Data]:
    torch.manual_seed(1)
    return [kite(), make_graph([(0, 1), (1, 2), (0, 2)], 3), make_graph([], 2), kite()]


def train_one_half(rank: int, store: str, out: str) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
    torch.manual_seed(0)
    model = make_model()
    parallel: nn.Module = DistributedDataParallel(model)
    # Two steps, since DDP complains of unused parameters in the second.
    for _ in range(2):
        model.zero_grad()
        parallel(Batch.from_data_list(graphs()[2 * rank : 2 * rank + 2])).sum().backward()
    if rank == 0:
        torch.save([p.grad for p in model.parameters()], out)
    distributed.barrier()
    # Without taking the group down: gloo then sometimes waits for ever for a peer that has left.
    os._exit(0)


def test_data_parallel_training(tmp_path: Path) -> None:
    """Two processes with half the graphs each have the gradient of all graphs."""
    store, out = f"file://{tmp_path / 'store'}", tmp_path / "gradients.pt"
    multiprocessing.spawn(train_one_half, args=(store, str(out)), nprocs=2)
    torch.manual_seed(0)
    model = make_model()
    model(Batch.from_data_list(graphs())).sum().backward()
    for found, parameter in zip(torch.load(out), model.parameters(), strict=True):
        assert_close(2 * found, parameter.grad)
