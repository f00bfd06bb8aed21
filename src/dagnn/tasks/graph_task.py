"""What all tasks on code graphs have in common."""

from __future__ import annotations

from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import Tensor
from torch_geometric.data import Batch

from dagnn.datasets.code_vocabulary import CodeVocabulary
from dagnn.tasks.code_encoders import CodeEncoder, EncoderConfig
from dagnn.training import TrainingStep

__all__ = ["CodeTask"]


class CodeTask(LightningModule):
    """An encoder of code graphs, with what a task puts on it, trained by Adam.

    Args:
        encoder: The model.
        vocabulary: The words of the data.
        edges: The edges of the graphs, ``"full"`` or ``"ast"``.
        learning_rate: Of Adam.
    """

    kind = ""
    metric = ""  # the name of the number that says which epoch is best: larger is better

    def __init__(
        self,
        encoder: EncoderConfig,
        vocabulary: CodeVocabulary,
        edges: str,
        learning_rate: float,
    ) -> None:
        super().__init__()
        self.vocabulary = vocabulary
        self.edges = edges
        self.learning_rate = learning_rate
        self.encoder = CodeEncoder(encoder, len(vocabulary.node_types), len(vocabulary.attributes))
        self.has_unused_parameters = encoder.model == "asap"  # one in PyG's pooling

    def settings(self) -> dict[str, Any]:
        """What :func:`dagnn.tasks.code_training.load_task` needs beside the weights."""
        return {
            "kind": self.kind,
            "encoder": self.encoder.config.to_dict(),
            "vocabulary": self.vocabulary.to_json(),
            "edges": self.edges,
            "learning_rate": self.learning_rate,
        }

    def loss(self, batch: Batch) -> Tensor:
        raise NotImplementedError

    def evaluate_batch(self, batch: Batch) -> dict[str, Tensor]:
        """Means over the batch's graphs of all that is reported."""
        raise NotImplementedError

    def capture_steps(self, clip: float | None, bf16: bool) -> None:
        """Let every training step be one CUDA graph, for padded batches; see
        :class:`dagnn.training.TrainingStep`.

        Args:
            clip: The largest norm of the gradient.
            bf16: Whether to train in bfloat16.
        """
        if not self.encoder.is_static:
            raise ValueError(
                "expected a model with a fused path for captured steps (aggregator attention or "
                "gated_sum, cell gru or linear), or another that keeps all nodes, "
                f"got {self.encoder.config}"
            )
        self.automatic_optimization = False
        self._clip, self._bf16 = clip, bf16
        self._captured: TrainingStep | None = None

    def on_train_start(self) -> None:
        if not self.automatic_optimization:
            # Not Lightning's optimizer, which counts steps on the host: in a replay nothing runs
            # there. So `global_step` stays zero, and nothing of ours reads it.
            self._captured = TrainingStep(
                self,
                self.trainer.optimizers[0],
                self.loss,
                clip=self._clip,
                bf16=self._bf16,
                captured=True,
            )

    def on_train_end(self) -> None:
        self._captured = None  # with the memory of all its graphs

    def training_step(self, batch: Batch, index: int) -> Tensor:
        if self.automatic_optimization:
            return self.loss(batch)
        assert self._captured is not None, "training has started"
        return self._captured(batch)

    def validation_step(self, batch: Batch, index: int) -> None:
        values = {f"valid_{name}": value for name, value in self.evaluate_batch(batch).items()}
        self.log_dict(values, batch_size=batch.num_graphs, sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), self.learning_rate, fused=True)

    def transfer_batch_to_device(
        self, batch: Batch, device: torch.device, dataloader_idx: int
    ) -> Batch:
        return batch  # the loader made it there

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["task"] = self.settings()
