"""LP: how long is the longest path of a function's DAG."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import Tensor, nn
from torch_geometric.data import Batch

from dagnn.datasets.code_vocabulary import CodeVocabulary
from dagnn.graph.padding import without_filler
from dagnn.tasks.code_encoders import EncoderConfig
from dagnn.tasks.graph_task import CodeTask
from dagnn.tasks.metrics import accuracy

__all__ = ["LongestPath"]

BEYOND = -100  # the target of no class; cross_entropy leaves it out


class LongestPath(CodeTask):
    """A classifier over lengths, counted in nodes, on the graph vector.

    The classes are the lengths 0 to :obj:`longest`, the longest path of the training split. A graph
    with a longer path has no class: it is left out of the loss, and every answer to it is wrong.
    Nodes do not know their depth, which would be the answer.

    Args:
        encoder: The model; its ``depth`` is set to false.
        vocabulary: The words of the data.
        longest: The longest path of the training split.
        edges: The edges of the graphs.
        learning_rate: Of Adam.
    """

    kind = "lp"
    metric = "accuracy"

    def __init__(
        self,
        encoder: EncoderConfig,
        vocabulary: CodeVocabulary,
        longest: int,
        *,
        edges: str = "ast",
        learning_rate: float = 1e-3,
    ) -> None:
        super().__init__(replace(encoder, depth=False), vocabulary, edges, learning_rate)
        self.longest = longest
        self.head = nn.Linear(self.encoder.out_channels, longest + 1)

    @classmethod
    def from_settings(cls, settings: dict[str, Any]) -> LongestPath:
        """The inverse of :meth:`settings`, with new weights."""
        return cls(
            EncoderConfig.from_dict(settings["encoder"]),
            CodeVocabulary.from_json(settings["vocabulary"]),
            settings["longest"],
            edges=settings["edges"],
            learning_rate=settings["learning_rate"],
        )

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "longest": self.longest}

    def forward(self, batch: Batch) -> Tensor:
        """Logits of the lengths. ``[G, longest + 1]``"""
        out: Tensor = self.head(self.encoder(batch))
        return out

    def loss(self, batch: Batch) -> Tensor:
        return self._cross_entropy(without_filler(self(batch), batch), batch.longest_path)

    def evaluate_batch(self, batch: Batch) -> dict[str, Tensor]:
        logits = self(batch)
        return {
            "loss": self._cross_entropy(logits, batch.longest_path),
            "accuracy": accuracy(logits.argmax(-1), batch.longest_path),
        }

    def _cross_entropy(self, logits: Tensor, length: Tensor) -> Tensor:
        target = length.masked_fill(length > self.longest, BEYOND)
        total = nn.functional.cross_entropy(logits.float(), target, reduction="sum")
        return total / len(target)
