"""A step of one's own loop, and as a CUDA graph."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Batch

from dagnn import DAGNN, FlatLoader, without_filler
from dagnn.training import TrainingStep, training_step
from dagnn.training.captured_step import CapturedStep
from tests.graph.test_flat import needs_cuda
from tests.training.toy import graphs


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.encoder = DAGNN(3, 8, 2, 1, bidirectional=True)

    def loss(self, batch: Batch) -> Tensor:
        out = without_filler(self.encoder(batch), batch).flatten()
        return (out - batch.y).square().mean()


class Recorder:
    """Stands for CUDA graphs, whose memory stays: runs each key's first function again."""

    def __init__(self, changed: list[Tensor], optimizer: torch.optim.Optimizer) -> None:
        self.changed, self.recorded = changed, dict[Any, Any]()

    def __len__(self) -> int:
        return len(self.recorded)

    def __call__(self, key: Any, inputs: list[Tensor], step: Any) -> Tensor:
        kept, run = self.recorded.setdefault(key, ([i.clone() for i in inputs], step))
        for mine, given in zip(kept, inputs, strict=True):
            assert mine.shape == given.shape  # or else the key is not all that sizes follow from
            mine.copy_(given)
        out: Tensor = run(kept)
        return out


def train(device: str = "cpu", **options: Any) -> tuple[list[float], dict[str, Tensor]]:
    model = Model().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, eps=1e-4)
    step = TrainingStep(model, optimizer, model.loss, **options)
    loader = FlatLoader(graphs().to(device), 8, shuffle=True, padded=step.captured, device=device)
    losses = [float(step(batch)) for _ in range(3) for batch in loader]
    return losses, model.state_dict()


def test_it_is_the_usual_loop() -> None:
    losses, weights = train(clip=0.1)
    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, eps=1e-4)
    expected = []
    loader = FlatLoader(graphs(), 8, shuffle=True)
    for _ in range(3):
        for batch in loader:
            optimizer.zero_grad()
            loss = model.loss(batch)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
            expected.append(loss.item())
    assert losses == expected
    for name, value in model.state_dict().items():
        assert torch.equal(weights[name], value), name


def test_recorded_steps_train_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    expected, _ = train()
    monkeypatch.setattr(training_step, "CapturedStep", Recorder)
    losses, _ = train(captured=True)
    assert losses == pytest.approx(expected, rel=1e-4)


def test_half_precision_is_of_the_loss_alone() -> None:
    model = Model()
    seen = []

    def loss(batch: Batch) -> Tensor:
        seen.append(torch.is_autocast_enabled("cpu"))
        return model.loss(batch)

    optimizer = torch.optim.Adam(model.parameters())
    monitor = optimizer.register_step_pre_hook(
        lambda *_: seen.append(torch.is_autocast_enabled("cpu"))
    )
    for outer in (False, True):
        for bf16 in (False, True):
            seen.clear()
            with torch.autocast("cpu", torch.bfloat16, enabled=outer):
                TrainingStep(model, optimizer, loss, bf16=bf16)(graphs().batch([0, 1, 2]))
            # Hooks of the optimizer run outside of the loss, where the caller's setting holds.
            assert seen == [bf16, outer]
    monitor.remove()


def test_what_no_graph_would_see_is_recorded_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_step, "CapturedStep", Recorder)
    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-9)
    step = TrainingStep(model, optimizer, lambda b: b.weight * model.loss(b), captured=True)
    losses = []
    for weight in (1.0, 0.0, 1.0):
        batch = graphs().batch(range(8), schedule=True, padded=True)
        batch.weight = weight
        losses.append(float(step(batch)))
    assert losses[0] > 0
    assert losses == pytest.approx([losses[0], 0.0, losses[0]], rel=1e-4)
    assert step.num_recorded == 2
    model.eval()
    step(batch)
    batch.weight = torch.ones(8)
    with pytest.raises(ValueError, match="a tensor of one number"):
        step(batch)
    assert step.num_recorded == 4
    batch.weight = ["one"]
    with pytest.raises(ValueError, match=r"numbers and words .* got list in 'weight'"):
        step(batch)


def test_a_warm_up_leaves_no_trace() -> None:
    """What surrounds a recording, without one."""
    model, other = Model(), Model()
    optimizers = [torch.optim.Adam(m.parameters(), lr=0.01) for m in (model, other)]
    captured = object.__new__(CapturedStep)
    captured._changed, captured._optimizer = [*model.parameters()], optimizers[0]
    batch = graphs().batch(range(4))
    steps = [
        TrainingStep(m, o, m.loss) for m, o in zip((model, other), optimizers, strict=True)
    ]  # fmt: skip
    for _ in range(2):  # the optimizer without a state, and with one
        before = captured._snapshot()
        for _ in range(3):
            steps[0](batch)
        captured._restore(before)
        for step in steps:
            step(batch)
        for mine, theirs in zip(model.parameters(), other.parameters(), strict=True):
            assert torch.equal(mine, theirs)


def test_several_processes_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_step, "CapturedStep", Recorder)
    monkeypatch.setattr(training_step, "number", lambda: 2)
    model = Model()
    with pytest.raises(ValueError, match="expected one process for captured steps, got 2"):
        TrainingStep(model, torch.optim.Adam(model.parameters()), model.loss, captured=True)


def test_batches_that_are_not_padded_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_step, "CapturedStep", Recorder)
    model = Model()
    step = TrainingStep(model, torch.optim.Adam(model.parameters()), model.loss, captured=True)
    with pytest.raises(ValueError, match=r"expected a padded batch .* padded=True"):
        step(graphs().batch([0, 1]))


@pytest.mark.parametrize("clip", [0.0, -1.0, float("nan"), float("inf")])
def test_a_norm_is_positive(clip: float) -> None:
    model = Model()
    with pytest.raises(ValueError, match=f"expected clip > 0, .*got {clip}"):
        TrainingStep(model, torch.optim.Adam(model.parameters()), model.loss, clip=clip)


def test_modules_and_optimizers_belong_together() -> None:
    model = Model()
    optimizer = torch.optim.Adam(Model().parameters())
    with pytest.raises(ValueError, match="expected an optimizer of the module's parameters"):
        TrainingStep(model, optimizer, model.loss)
    with pytest.raises(ValueError, match="expected a module with parameters"):
        TrainingStep(nn.Sequential(), optimizer, model.loss)
    part = torch.optim.Adam(model.encoder.lin.parameters())  # the rest is frozen
    before = [p.clone() for p in model.encoder.forward_layers.parameters()]
    TrainingStep(model, part, model.loss)(graphs().batch([0, 1, 2]))
    after = list(model.encoder.forward_layers.parameters())
    assert all(map(torch.equal, before, after))


@pytest.mark.parametrize(
    ("loss", "got"), [(torch.ones(3), r"\[3\]"), (1.0, "float"), (None, "None")]
)
def test_a_loss_is_one_number(loss: Any, got: str) -> None:
    model = Model()
    step = TrainingStep(model, torch.optim.Adam(model.parameters()), lambda _: loss)
    with pytest.raises(ValueError, match=f"expected a loss that is a tensor of one .*got {got}"):
        step(graphs().batch([0]))


@pytest.mark.parametrize("kind", [torch.optim.NAdam, torch.optim.SGD])
def test_captured_steps_are_of_adam(kind: Any) -> None:
    model = Model()
    with pytest.raises(ValueError, match=f"expected torch.optim.Adam or .*got {kind.__name__}"):
        TrainingStep(model, kind(model.parameters(), lr=0.1), model.loss, captured=True)


def test_a_cpu_has_no_captured_steps() -> None:
    model = Model()
    optimizer = torch.optim.Adam(model.parameters())
    with pytest.raises(ValueError, match="on a CUDA device for captured steps, got cpu"):
        TrainingStep(model, optimizer, model.loss, captured=True)
    assert not TrainingStep(model, optimizer, model.loss).captured


@pytest.mark.cuda
@needs_cuda
def test_captured_steps_equal_eager_ones() -> None:
    expected, weights = train("cuda", captured=False)
    losses, found = train("cuda")
    assert losses == pytest.approx(expected, rel=1e-4)
    for name, value in weights.items():
        torch.testing.assert_close(found[name], value, rtol=1e-3, atol=1e-4)


@pytest.mark.cuda
@needs_cuda
def test_what_is_recorded_may_not_change() -> None:
    model = Model().to("cuda")
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    step = TrainingStep(model, optimizer, model.loss)
    batch = graphs().to("cuda").batch(range(8), schedule=True, padded=True)
    first, second = step(batch), step(batch)
    assert first != second  # not the same memory
    optimizer.param_groups[0]["lr"] = 0.1
    step(batch)
    optimizer.param_groups[0]["betas"] = (0.5, 0.999)
    with pytest.raises(ValueError, match="to change but its learning rate"):
        step(batch)
    optimizer.param_groups[0]["betas"] = (0.9, 0.999)
    optimizer.load_state_dict(optimizer.state_dict())
    with pytest.raises(ValueError, match="to change but its learning rate"):
        step(batch)
