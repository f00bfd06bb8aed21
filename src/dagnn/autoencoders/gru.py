r"""A GRU cell in parts: the elementwise one, forward and backward, alone or with the message's
product; the input's is left to the caller.

With :math:`i = W_{ih} x + b_{ih}` and :math:`g = W_{hh} m + b_{hh}`, ``[B, 3H]`` each:

.. math::
    r = \sigma(i_r + g_r), \quad z = \sigma(i_z + g_z), \quad n = \tanh(i_n + r \odot g_n), \quad
    h = (1 - z) \odot n + z \odot m

One kernel on a GPU, PyTorch's own for its GRU cell. Elsewhere it is written out.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["gru", "gru_backward", "gru_forward", "gru_update"]

Saved = tuple[Tensor, ...]


def gru_forward(inner: Tensor, gates: Tensor, message: Tensor) -> tuple[Tensor, Saved]:
    """The state ``[B, H]``, and what :func:`gru_backward` needs."""
    if inner.is_cuda:
        h, workspace = torch.ops.aten._thnn_fused_gru_cell(inner, gates, message)
        return h, (workspace,)
    hidden = message.size(-1)
    reset_update = (inner[..., : 2 * hidden] + gates[..., : 2 * hidden]).sigmoid_()
    r, z = reset_update.split(hidden, -1)
    g = gates[..., 2 * hidden :]
    n = torch.addcmul(inner[..., 2 * hidden :], r, g).tanh_()
    return torch.lerp(n, message, z), (r, z, n, g, message)


def gru_backward(grad: Tensor, saved: Saved) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of ``inner``, ``gates`` and ``message``."""
    if grad.is_cuda:
        inner, gates, message, _, _ = torch.ops.aten._thnn_fused_gru_cell_backward(
            grad.contiguous(), saved[0], False
        )
        return inner, gates, message
    r, z, n, g, message = saved
    message_grad = grad * z
    n_grad = (grad - message_grad) * (1 - n * n)  # before tanh
    z_grad = message_grad * (message - n) * (1 - z)  # before the sigmoid
    gate_grad = n_grad * r
    r_grad = gate_grad * g * (1 - r)
    return (
        torch.cat([r_grad, z_grad, n_grad], -1),
        torch.cat([r_grad, z_grad, gate_grad], -1),
        message_grad,
    )


class _GRU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, inner: Tensor, gates: Tensor, message: Tensor) -> Tensor:
        h, saved = gru_forward(inner, gates, message)
        ctx.save_for_backward(*saved)
        return h

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return gru_backward(grad, ctx.saved_tensors)


def gru(inner: Tensor, gates: Tensor, message: Tensor) -> Tensor:
    """States ``[…, H]`` from ``inner`` and ``gates`` ``[…, 3H]`` and ``message`` ``[…, H]``."""
    shape = message.shape
    flat = (tensor.reshape(-1, tensor.size(-1)) for tensor in (inner, gates, message))
    out: Tensor = _GRU.apply(*flat)
    return out.view(shape)


class _Update(torch.autograd.Function):
    """One function, so that the gradient of a message is one sum."""

    @staticmethod
    def forward(ctx: Any, inner: Tensor, message: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        h, saved = gru_forward(inner, torch.addmm(bias, message, weight.t()), message)
        ctx.save_for_backward(message, weight, *saved)
        return h

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
        message, weight, *saved = ctx.saved_tensors
        inner, gates, through = gru_backward(grad, tuple(saved))
        return inner, through.addmm_(gates, weight), gates.t() @ message, gates.sum(0)


def gru_update(inner: Tensor, message: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """States ``[…, H]`` from ``inner`` ``[…, 3H]`` and ``message`` ``[…, H]``, with the recurrent
    weight ``[3H, H]`` and its bias ``[3H]``."""
    out: Tensor = _Update.apply(inner.flatten(0, -2), message.flatten(0, -2), weight, bias)
    return out.view(message.shape)
