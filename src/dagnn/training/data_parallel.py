"""Lightning's DDP with the gradient of the whole batch, however its graphs are shared out."""

from __future__ import annotations

from typing import Any

import torch
from lightning.pytorch.strategies import DDPStrategy
from torch import Tensor

from dagnn.training.processes import add_up, number

__all__ = ["GraphMeanDDP"]


class GraphMeanDDP(DDPStrategy):
    r"""DDP takes the mean of the processes' gradients, but processes may have different numbers of
    graphs. With :math:`n_r` graphs on process :math:`r` of :math:`R`, and losses :math:`L_r` that
    are means over them,

    .. math::
        \nabla \frac{\sum_r n_r L_r}{\sum_r n_r}
        = \frac{1}{R} \sum_r \nabla \left( R \, \frac{n_r}{\sum_s n_s} L_r \right)

    so each process runs backward on its loss times :math:`R \, n_r / \sum_s n_s`. A module that
    makes its steps itself gets the mean over processes.
    """

    share: Tensor | float  # the part that this process has in the loss of the batch

    def training_step(self, batch: Any, *rest: Any, **options: Any) -> Any:
        assert self.lightning_module is not None
        self.share = 1 / number()
        if self.lightning_module.automatic_optimization:
            if not hasattr(batch, "num_graphs"):
                raise TypeError(
                    "expected batches with num_graphs, such as those of torch_geometric, to train "
                    f"in several processes, got {type(batch).__name__}"
                )
            # On the device, for which the host need not wait.
            graphs = torch.full((), float(batch.num_graphs), device=self.root_device)
            self.share = graphs / add_up(graphs.clone())
        return super().training_step(batch, *rest, **options)

    def backward(
        self, closure_loss: Tensor, optimizer: Any, *arguments: Any, **options: Any
    ) -> Tensor:
        assert self.lightning_module is not None
        if self.lightning_module.automatic_optimization:
            closure_loss = closure_loss * (self.share * number())
        return super().backward(closure_loss, optimizer, *arguments, **options)
