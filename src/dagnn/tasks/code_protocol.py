"""How models of code are trained: the paper's protocol, and a quick one to look around with."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

from dagnn.tasks.code_encoders import DYNAMIC, RECURRENT, EncoderConfig

__all__ = ["LEARNING_RATES", "PRESETS", "SWEEP_SHARE", "TASKS", "CodeRun", "preset"]

TASKS = ("tok", "lp")
PRESETS = ("quick", "paper")
LEARNING_RATES = (1e-4, 5e-4, 1e-3, 1.5e-3, 2e-3, 5e-3, 1e-2, 1.5e-2)  # of the paper's sweep
SWEEP_SHARE = 0.15  # of the training split, on which the paper swept


@dataclass(frozen=True)
class CodeRun:
    """One training run, up to its data.

    Args:
        task: ``"tok"`` or ``"lp"``.
        encoder: The model.
        edges: ``"full"`` or ``"ast"``; see :func:`dagnn.datasets.code_dataset.load_code_dataset`.
        train_share: Which part of the training split is used.
        train_limit, valid_limit: At most so many functions, a random sample, are used.
        epochs: At most so many.
        patience: Epochs without improvement on the validation split after which training stops.
        batch_size: Functions in a batch.
        clip: The largest norm of a gradient.
        learning_rate: Of Adam.
        precision: ``"32"``, ``"tf32"`` or ``"bf16"``.
        captured: Whether every training step is one CUDA graph, over padded batches: for all models
            but SAGPool and ASAP, in one process on a GPU (with Triton for DAGNN and D-VAE). By
            default wherever that is so: it changes the speed, and the masks of dropout.
        seed: Of weights, batches and samples.
    """

    task: str
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    edges: str = "full"
    train_share: float = 1.0
    train_limit: int | None = None
    valid_limit: int | None = None
    epochs: int = 100
    patience: int | None = 20
    batch_size: int = 128
    clip: float | None = None
    learning_rate: float = 1e-3
    precision: str = "32"
    captured: bool | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.task not in TASKS:
            raise ValueError(f"expected a task of {', '.join(TASKS)}, got {self.task!r}")
        if self.seed < 0:
            raise ValueError(f"expected seed >= 0, got {self.seed}")
        if self.captured and self.encoder.model in DYNAMIC:
            raise ValueError(
                "expected a model whose sizes follow from those of the batch for captured steps, "
                f"got {self.encoder.model}, which drops nodes by what it learns; leave out captured"
            )
        if not 0 < self.learning_rate < math.inf:
            raise ValueError(f"expected learning_rate > 0, got {self.learning_rate}")
        for name in ("train_limit", "valid_limit"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"expected {name} >= 1, got {value}")

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "encoder": self.encoder.to_dict()}


def preset(name: str, task: str, model: str) -> CodeRun:
    """The settings of a task and a model.

    * ``"paper"``: 300 channels; batches of 80, gradients clipped at 0.25 and a patience of 10
      epochs for DAGNN and D-VAE, batches of 128 and a patience of 20 for the others; at most 100
      epochs.
    * ``"quick"``: 96 channels, 4,000 functions and 5 epochs: minutes on two cores.

    TOK is on the syntax tree with next-token edges, in both directions; LP on the tree alone, along
    its edges.
    """
    if name not in PRESETS:
        raise ValueError(f"expected a preset of {', '.join(PRESETS)}, got {name!r}")
    recurrent = model in RECURRENT
    common: dict[str, Any] = {
        "task": task,
        "encoder": EncoderConfig(
            model=model,
            channels=300 if name == "paper" else 96,
            depth=task == "tok",
            bidirectional=task == "tok" or not recurrent,
        ),
        "edges": "full" if task == "tok" else "ast",
        "clip": 0.25 if recurrent else None,
    }
    if name == "quick":
        return CodeRun(
            **common,
            train_limit=4000,
            valid_limit=1000,
            epochs=5,
            patience=None,
            batch_size=32,
        )
    return CodeRun(**common, batch_size=80 if recurrent else 128, patience=10 if recurrent else 20)
