"""TOK: which words form the name of a function."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch_geometric.data import Batch

from dagnn.datasets.code_vocabulary import CodeVocabulary
from dagnn.graph.padding import without_filler
from dagnn.nn.heads import TokenSequenceHead
from dagnn.tasks.code_encoders import EncoderConfig
from dagnn.tasks.graph_task import CodeTask
from dagnn.tasks.metrics import graph_of_rows, token_f1

__all__ = ["TokenPrediction"]


class TokenPrediction(CodeTask):
    """Five classifiers over the vocabulary's tokens on the graph vector, one per position.

    The loss is the mean cross-entropy over the positions, the metric the F1 score of
    :func:`dagnn.tasks.metrics.token_f1`.

    Args:
        encoder: The model.
        vocabulary: The words of the data.
        edges: The edges of the graphs.
        learning_rate: Of Adam.
    """

    kind = "tok"
    metric = "f1"

    def __init__(
        self,
        encoder: EncoderConfig,
        vocabulary: CodeVocabulary,
        *,
        edges: str = "full",
        learning_rate: float = 1e-3,
    ) -> None:
        super().__init__(encoder, vocabulary, edges, learning_rate)
        self.eos = len(vocabulary.tokens) - 1
        self.head = TokenSequenceHead(self.encoder.out_channels, len(vocabulary.tokens))

    @classmethod
    def from_settings(cls, settings: dict[str, Any]) -> TokenPrediction:
        """The inverse of :meth:`settings`, with new weights."""
        return cls(
            EncoderConfig.from_dict(settings["encoder"]),
            CodeVocabulary.from_json(settings["vocabulary"]),
            edges=settings["edges"],
            learning_rate=settings["learning_rate"],
        )

    def forward(self, batch: Batch) -> Tensor:
        """Logits of the tokens of each position. ``[G, 5, V]``"""
        out: Tensor = self.head(self.encoder(batch))
        return out

    def loss(self, batch: Batch) -> Tensor:
        return _cross_entropy(without_filler(self(batch), batch), batch.tokens)

    def evaluate_batch(self, batch: Batch) -> dict[str, Tensor]:
        logits = self(batch)
        pointer = batch._slice_dict["name_tokens"]
        graph = graph_of_rows(pointer).to(logits.device)
        precision, recall, f1 = token_f1(logits.argmax(-1), batch.name_tokens, graph, self.eos)
        return {
            "loss": _cross_entropy(logits, batch.tokens),
            "f1": f1.mean(),
            "precision": precision.mean(),
            "recall": recall.mean(),
        }


def _cross_entropy(logits: Tensor, tokens: Tensor) -> Tensor:
    return nn.functional.cross_entropy(logits.float().flatten(0, 1), tokens.flatten())
