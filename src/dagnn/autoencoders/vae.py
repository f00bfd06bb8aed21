r"""A variational autoencoder of DAGs: an encoder, a latent point, a decoder."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from dagnn.autoencoders.dead_units import DeadUnits
from dagnn.autoencoders.elbo import latent_point
from dagnn.datasets.small_dags import SmallDags

__all__ = ["DagVAE", "Decoder", "Encoder", "VaeLoss"]

NOISE = 0.01  # of a latent point in training, in units of its standard deviation
KL_WEIGHT = 0.005


class Encoder(Protocol):
    """From graphs to vectors."""

    out_channels: int

    def __call__(self, graphs: SmallDags) -> Tensor:
        """Graph vectors. ``[B, out_channels]``"""


class Decoder(Protocol):
    """From a state ``h0`` ``[B, H]`` to graphs."""

    num_types: int
    max_nodes: int
    hidden_channels: int

    def log_likelihood(self, h0: Tensor, graphs: SmallDags) -> Tensor:
        """Of each graph, all decisions at once. ``[B]``"""

    def generate(
        self, h0: Tensor, stochastic: bool, generator: torch.Generator | None
    ) -> SmallDags:
        """A graph for each state, decision by decision."""


class VaeLoss(NamedTuple):
    """Sums over a batch."""

    total: Tensor  # []
    reconstruction: Tensor  # []
    divergence: Tensor  # []


class DagVAE(nn.Module):
    r"""The autoencoder of D-VAE around any encoder and decoder:

    .. math::
        \mu, \log \sigma^2 = W_\mu h_{\mathcal{G}} + b_\mu,\; W_\sigma h_{\mathcal{G}} + b_\sigma,
        \qquad z = \mu + 0.01 \, \epsilon \odot \sigma, \qquad h_0 = \tanh(W z + b)

    with the loss :math:`-\log p(\mathcal{G} \mid h_0) + 0.005 \, \mathrm{KL}` summed over graphs.

    Args:
        encoder: From graphs to vectors.
        decoder: From :math:`h_0` to graphs.
        latent_channels: Width of :math:`z`.

    Training stores where latent points lie, as their mean and standard deviation per axis, so that
    :meth:`sample_prior` draws where there are graphs.
    """

    latent_mean: Tensor
    latent_std: Tensor
    dead_units: DeadUnits | None = None  # of a model that is wider than asked for

    def __init__(self, encoder: nn.Module, decoder: nn.Module, latent_channels: int = 56) -> None:
        super().__init__()
        self.encoder: Encoder = encoder  # type: ignore[assignment]
        self.decoder: Decoder = decoder  # type: ignore[assignment]
        self.latent_channels = latent_channels
        self.mean = nn.Linear(self.encoder.out_channels, latent_channels)
        self.log_variance = nn.Linear(self.encoder.out_channels, latent_channels)
        self.lift = nn.Linear(latent_channels, self.decoder.hidden_channels)
        self.register_buffer("latent_mean", torch.zeros(latent_channels))
        self.register_buffer("latent_std", torch.ones(latent_channels))

    def encode(self, graphs: SmallDags) -> tuple[Tensor, Tensor]:
        """Mean and log-variance of the latent points. ``[B, latent_channels]`` each

        Raises:
            ValueError: If the graphs are of other sizes than the model.
        """
        self._check(graphs)
        state = self.encoder(graphs)
        return self.mean(state), self.log_variance(state)

    def _check(self, graphs: SmallDags) -> None:
        expected = self.decoder.num_types, self.decoder.max_nodes
        if (graphs.num_types, graphs.max_nodes) != expected:
            raise ValueError(
                "expected graphs of {} types and room for {} nodes, as the model was made for, got "
                "{} and {}".format(*expected, graphs.num_types, graphs.max_nodes)
            )

    def loss(self, graphs: SmallDags, noise: Tensor | None = None) -> VaeLoss:
        """The loss of a batch.

        Args:
            graphs: The batch.
            noise: Draws from a standard normal, in training; without it, :math:`z = \\mu`.
                ``[B, latent_channels]``
        """
        mean, log_variance = self.encode(graphs)
        draw = torch.zeros_like(mean) if noise is None else noise
        z, divergences = latent_point(mean, log_variance, draw, NOISE)
        reconstruction = -self.log_likelihood(z, graphs).sum()
        divergence = divergences.sum()
        total = torch.add(reconstruction, divergence, alpha=KL_WEIGHT)
        return VaeLoss(total, reconstruction, divergence)

    def log_likelihood(self, z: Tensor, graphs: SmallDags) -> Tensor:
        """Of each graph, at a latent point each. ``[B]``"""
        self._check(graphs)
        return self.decoder.log_likelihood(self.lift(z).tanh(), graphs)

    @torch.no_grad()
    def encode_all(self, graphs: SmallDags, batch_size: int = 2048) -> Tensor:
        """The latent means of many graphs. ``[G, latent_channels]``"""
        starts = range(0, len(graphs), batch_size)
        return torch.cat([self.encode(graphs[i : i + batch_size])[0] for i in starts])

    def locate(self, graphs: SmallDags) -> None:
        """Store where the latent points of these graphs lie."""
        z = self.encode_all(graphs)
        self.latent_mean.copy_(z.mean(0))
        self.latent_std.copy_(z.std(0, correction=0))

    def sample_prior(self, size: int, generator: torch.Generator | None = None) -> Tensor:
        """Latent points from a normal distribution, scaled to those of the training graphs.
        ``[size, latent_channels]``"""
        mean = self.latent_mean
        noise = torch.randn(
            size, len(mean), generator=generator, device=mean.device, dtype=mean.dtype
        )
        return mean + noise * self.latent_std

    @torch.no_grad()
    def decode(
        self, z: Tensor, *, stochastic: bool = True, generator: torch.Generator | None = None
    ) -> SmallDags:
        """A graph for each latent point.

        Every graph is acyclic by construction. Whether it is one of its data set (types, one
        input, …) is for the data set to say: :data:`dagnn.autoencoders.task_data.VALID`.

        Args:
            z: Latent points. ``[B, latent_channels]``
            stochastic: Whether to draw every decision, or else to take the likeliest.
            generator: Where draws come from.
        """
        if z.dim() != 2 or z.size(1) != self.latent_channels:
            raise ValueError(
                f"expected latent points of shape [size, {self.latent_channels}], got "
                f"{list(z.shape)}"
            )
        return self.decoder.generate(self.lift(z).tanh(), stochastic, generator)
