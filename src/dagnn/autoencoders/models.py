"""The autoencoders by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from dagnn.autoencoders.dag_decoder import DagDecoder
from dagnn.autoencoders.dead_units import DeadUnits, padded_width
from dagnn.autoencoders.deepgmg import DeepGMGDecoder, DeepGMGEncoder
from dagnn.autoencoders.encoders import ConvolutionEncoder, DAGNNEncoder, DVAEEncoder
from dagnn.autoencoders.sequence import RowByRowDecoder, SequenceDecoder, SequenceEncoder
from dagnn.autoencoders.vae import DagVAE

__all__ = ["MODELS", "TASKS", "make_autoencoder", "model_options"]

Parts = tuple[nn.Module, nn.Module]

TASKS = {"na": (8, 8), "bn": (10, 10)}  # number of types, largest number of nodes


def _svae(task: str, types: int, nodes: int, hidden: int) -> Parts:
    return SequenceEncoder(types, nodes, hidden), SequenceDecoder(types, nodes, hidden)


def _graphrnn(task: str, types: int, nodes: int, hidden: int) -> Parts:
    return SequenceEncoder(types, nodes, hidden), RowByRowDecoder(types, nodes, hidden)


def _gcn(task: str, types: int, nodes: int, hidden: int, *, as_published: bool = False) -> Parts:
    layers = 3 if task == "na" else 2
    decoder = DagDecoder(types, nodes, hidden, types_see_sum=task == "bn", aggregator="gated_sum")
    return ConvolutionEncoder(types, hidden, layers, as_published), decoder


def _deepgmg(task: str, types: int, nodes: int, hidden: int) -> Parts:
    return DeepGMGEncoder(types, hidden), DeepGMGDecoder(types, nodes, hidden)


def _dvae(
    task: str, types: int, nodes: int, hidden: int, *, bidirectional: bool | None = None
) -> Parts:
    is_bn = task == "bn"
    both = not is_bn if bidirectional is None else bidirectional
    encoder = DVAEEncoder(types, nodes, hidden, bidirectional=both, by_type=is_bn)
    decoder = DagDecoder(
        types,
        nodes,
        hidden,
        edges_see_start=is_bn,
        types_see_sum=is_bn,
        aggregator="type_sum" if is_bn else "gated_sum",
    )
    return encoder, decoder


def _dagnn(
    task: str,
    types: int,
    nodes: int,
    hidden: int,
    *,
    num_layers: int = 2,
    bidirectional: bool | None = None,
    aggregator: str = "attention",
    cell: str = "gru",
    pool: str = "targets",
) -> Parts:
    is_bn = task == "bn"
    both = is_bn if bidirectional is None else bidirectional
    layer: dict[str, Any] = {"num_layers": num_layers, "aggregator": aggregator}
    encoder = DAGNNEncoder(types, nodes, hidden, bidirectional=both, pool=pool, cell=cell, **layer)
    # The decoder keeps its GRUs: with linear cells it cannot learn to reconstruct NA's graphs.
    seen = {"edges_see_start": is_bn, "types_see_sum": is_bn}
    return encoder, DagDecoder(types, nodes, hidden, **seen, **layer)


MODELS: dict[str, Callable[..., Parts]] = {
    "dagnn": _dagnn,
    "d-vae": _dvae,
    "s-vae": _svae,
    "graphrnn": _graphrnn,
    "gcn": _gcn,
    "deepgmg": _deepgmg,
}


def model_options(model: str) -> list[str]:
    """The names of a model's options; see :func:`make_autoencoder`."""
    parameters = inspect.signature(MODELS[model]).parameters.values()
    return [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]


def make_autoencoder(
    model: str = "dagnn",
    task: str = "na",
    *,
    hidden_channels: int = 501,
    latent_channels: int = 56,
    num_types: int | None = None,
    max_nodes: int | None = None,
    **options: Any,
) -> DagVAE:
    """An autoencoder as in the paper's second benchmark.

    On BN, the decoders of DAGNN and GCN follow D-VAE's there: a type comes from the sum of the
    states so far, not from the newest alone; and with DAGNN and D-VAE, edges see the start.

    Args:
        model: One of :data:`MODELS`.
        task: ``"na"`` (neural architectures) or ``"bn"`` (Bayesian networks), whose forms of a
            model may differ.
        hidden_channels: Width of the states. Where products are much faster for a slightly larger
            one, as 512 for 501 on a GPU, the model is that wide, and further units are dead: see
            :mod:`dagnn.autoencoders.dead_units`. Its parameters, and the columns of what its
            encoder makes, are more by theirs, which are zero; to draw parameters anew, make a
            new model. It loads weights of either width; a state of its optimizer goes through
            ``model.dead_units.pad_optimizer`` first.
        latent_channels: Width of the latent space.
        num_types: The number of node types; by default the task's.
        max_nodes: The largest number of nodes; by default the task's.
        options: Of ``"gcn"``: ``as_published`` (False), see :class:`ConvolutionEncoder`. Of
            ``"d-vae"``: ``bidirectional`` (by default with NA alone). Of ``"dagnn"``, the
            paper's ablations: ``num_layers`` (2), ``bidirectional`` (by default with BN alone),
            ``aggregator`` (``"attention"`` or ``"gated_sum"``), ``cell`` of the encoder (``"gru"``
            or ``"linear"``), ``pool`` (``"targets"`` or ``"all"``).

    Example:
        >>> model = make_autoencoder("dagnn", "na", hidden_channels=16, latent_channels=4)
        >>> model.latent_channels
        4
    """
    if model not in MODELS:
        raise ValueError(f"expected model to be one of {', '.join(MODELS)}, got {model!r}")
    if task not in TASKS:
        raise ValueError(f"expected task to be one of {', '.join(TASKS)}, got {task!r}")
    types, nodes = TASKS[task]
    allowed = model_options(model)
    strange = [name for name in options if name not in allowed]
    if strange:
        raise ValueError(
            f"expected options of the model {model!r} ({', '.join(allowed) or 'it has none'}), got "
            f"{', '.join(strange)}"
        )

    def make(width: int) -> DagVAE:
        parts = MODELS[model](task, num_types or types, max_nodes or nodes, width, **options)
        return DagVAE(*parts, latent_channels)

    made = make(hidden_channels)
    width = padded_width(hidden_channels)
    if width == hidden_channels:
        return made
    with torch.random.fork_rng(devices=[]):
        wider = make(width)
    wider.dead_units = DeadUnits(made, wider, hidden_channels, width)
    return wider
