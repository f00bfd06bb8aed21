"""How good a generator is, as D-VAE measures it."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from dagnn.autoencoders.task_data import VALID
from dagnn.autoencoders.vae import NOISE, DagVAE
from dagnn.datasets.bayesian_networks import adjacency_of_networks
from dagnn.datasets.small_dags import SmallDags

__all__ = [
    "Quality",
    "measure_quality",
    "prior_quality",
    "reconstruction_accuracy",
    "same_graphs",
]


class Quality(NamedTuple):
    """Shares of decoded graphs, and their number.

    Args:
        reconstruction: Of decodings of an encoded graph that are that very graph.
        valid: Of graphs decoded from the prior that keep the rules of the task.
        unique: Of the valid ones that are distinct.
        novel: Of the valid ones that are not in the training set.
        decoded: Graphs decoded from the prior.
        invalid: Those of them that are not valid.
    """

    reconstruction: float
    valid: float
    unique: float
    novel: float
    decoded: int
    invalid: int


def measure_quality(
    model: DagVAE,
    task: str,
    train: SmallDags,
    test: SmallDags,
    *,
    points: int = 1000,
    times: int = 10,
    seed: int = 0,
) -> Quality:
    """All measures: every test graph is encoded and each encoding decoded :obj:`times` times, and
    so are :obj:`points` draws of :meth:`DagVAE.sample_prior`."""
    generator = torch.Generator(train.device).manual_seed(seed)
    accuracy = reconstruction_accuracy(model, test, times=times, generator=generator)
    z = model.sample_prior(points, generator)
    graphs = _decode(model, z.repeat_interleave(times, 0), generator)
    return Quality(accuracy, *prior_quality(task, graphs, train))


@torch.no_grad()
def reconstruction_accuracy(
    model: DagVAE,
    graphs: SmallDags,
    *,
    times: int = 10,
    generator: torch.Generator | None = None,
    batch_size: int = 256,
) -> float:
    """The share of decodings that are the encoded graph, over :obj:`times` encodings of each graph
    and as many decodings of each encoding."""
    same = 0
    for i in range(0, len(graphs), batch_size):
        batch = graphs[i : i + batch_size]
        mean, log_variance = model.encode(batch)
        graph = torch.arange(len(batch), device=mean.device).repeat(times)
        noise = torch.randn(
            len(graph), mean.size(1), generator=generator, device=mean.device, dtype=mean.dtype
        )
        z = mean[graph] + NOISE * noise * (0.5 * log_variance[graph]).exp()
        for _ in range(times):
            decoded = model.decode(z, generator=generator)
            same += int(same_graphs(decoded, batch.index_select(graph)).sum())
    return same / (len(graphs) * times * times)


def prior_quality(
    task: str, graphs: SmallDags, train: SmallDags
) -> tuple[float, float, float, int, int]:
    """The last five fields of :class:`Quality`, of decoded graphs."""
    valid = VALID[task](graphs)
    keys = _keys(task, graphs[valid])
    distinct, known = set(keys), set(_keys(task, train))
    count = max(len(keys), 1)
    novel = sum(key not in known for key in keys)
    share = len(keys) / len(graphs)
    return share, len(distinct) / count, novel / count, len(graphs), len(graphs) - len(keys)


def same_graphs(graphs: SmallDags, others: SmallDags) -> Tensor:
    """Which graphs are the same node by node. bool ``[G]``"""
    return (
        (graphs.num_nodes == others.num_nodes)
        & (graphs.types == others.types).all(-1)
        & (graphs.adjacency == others.adjacency).flatten(1).all(-1)
    )


def _decode(
    model: DagVAE, z: Tensor, generator: torch.Generator, batch_size: int = 1000
) -> SmallDags:
    parts = [model.decode(part, generator=generator) for part in z.split(batch_size)]
    columns = ("types", "adjacency", "num_nodes", "score")
    tensors = {name: torch.cat([getattr(part, name) for part in parts]) for name in columns}
    return SmallDags(**tensors, num_types=parts[0].num_types)


def _keys(task: str, graphs: SmallDags) -> list[bytes]:
    """Bytes that tell a graph from every other: of networks their structure, in whatever order the
    variables come; of architectures types and edges."""
    if task == "bn":
        rows = adjacency_of_networks(graphs).flatten(1)
    else:
        rows = torch.cat([graphs.types, graphs.adjacency.flatten(1)], -1)
    return [row.tobytes() for row in rows.to(torch.uint8).cpu().numpy()]
