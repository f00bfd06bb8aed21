r"""Which graphs form a batch.

The recurrence walks a batch level by level, so a batch is as deep as its deepest graph, and one
deep function among 80 makes the other 79 wait. Batches of graphs of similar depth need far fewer
levels in total. Measured on the 202,346 training functions of the GitHub corpus, batches of 80,
levels summed over an epoch, random batches divided by bucketed ones:

========================  ===  ===  ===  ===  ===  =====  ===========
batches in a pool         5    10   20   50   200  1,000  all (2,530)
========================  ===  ===  ===  ===  ===  =====  ===========
AST and next-token edges  2.5  3.5  4.5  5.5  6.3  6.6    6.7
AST edges alone           1.4  1.6  1.6  1.7  1.7  1.7    1.8
========================  ===  ===  ===  ===  ===  =====  ===========

A pool is a random sample of the graphs, drawn anew every epoch, and only graphs of one pool meet
in a batch. With one pool of all graphs, the deepest 80 graphs would form the same batch in every
epoch; with pools of 50 batches each of them meets others every time, at 82% of the gain.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch
import torch.distributed
from torch import Tensor
from torch.utils.data import Sampler

__all__ = ["DepthBucketSampler", "GraphBatchSampler", "rank_and_world_size"]


def rank_and_world_size() -> tuple[int, int]:
    """The number of this process, and how many there are, by ``torch.distributed``."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return 0, 1


class GraphBatchSampler(Sampler[list[int]]):
    r"""Batches of graphs in order, or in an order that is drawn anew every epoch.

    With several processes, each takes its own batches, the same number in each, and together they
    take every graph once: the last round's graphs are shared evenly. Only if fewer graphs than
    processes are left for it, some of them (at most ``world_size - 1``) occur twice.

    The batches are a function of the seed and the epoch. The epoch advances when all batches were
    taken; :meth:`set_epoch` sets it.

    Args:
        num_graphs: The number of graphs.
        batch_size: The number of graphs in a batch (of one process).
        shuffle: Whether the order is random.
        seed: The same in all processes.
        drop_last: Whether to leave out, at random, the graphs that fill no round of batches.
        rank: The number of this process; by default, ``torch.distributed`` is asked.
        world_size: The number of processes; by default, ``torch.distributed`` is asked.

    Example:
        >>> list(GraphBatchSampler(5, batch_size=2, shuffle=False))
        [[0, 1], [2, 3], [4]]
    """

    def __init__(
        self,
        num_graphs: int,
        batch_size: int,
        *,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        if num_graphs < 0:
            raise ValueError(f"expected num_graphs >= 0, got {num_graphs}")
        if batch_size < 1:
            raise ValueError(f"expected batch_size >= 1, got {batch_size}")
        if seed < 0:
            raise ValueError(f"expected seed >= 0, got {seed}")
        if (rank is None) != (world_size is None):
            raise ValueError(
                f"expected both rank and world_size or neither, got rank={rank} and "
                f"world_size={world_size}"
            )
        if rank is not None and world_size is not None and not 0 <= rank < world_size:
            raise ValueError(
                f"expected 0 <= rank < world_size, got rank={rank} and world_size={world_size}"
            )
        self.num_graphs = num_graphs
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.seed = seed
        self.drop_last = drop_last
        self.epoch = 0
        self._process = None if rank is None or world_size is None else (rank, world_size)

    @property
    def sampler(self) -> GraphBatchSampler:
        """Itself, where Lightning looks for ``set_epoch``."""
        return self

    def set_epoch(self, epoch: int) -> None:
        if epoch < 0:
            raise ValueError(f"expected epoch >= 0, got {epoch}")
        self.epoch = epoch

    def __len__(self) -> int:
        """The number of batches of this process (and of every other)."""
        graphs = self.batch_size * self._rank_and_world_size()[1]  # of a round
        full = self.num_graphs // graphs
        return full if self.drop_last else math.ceil(self.num_graphs / graphs)

    def __iter__(self) -> Iterator[list[int]]:
        rank, world_size = self._rank_and_world_size()
        epoch = self.epoch
        for graphs in self._rounds(np.random.default_rng((self.seed, epoch)), world_size):
            if len(graphs) < world_size:
                graphs = np.resize(graphs, world_size)  # repeats them
            yield np.array_split(graphs, world_size)[rank].tolist()
        self.epoch = epoch + 1

    def _rank_and_world_size(self) -> tuple[int, int]:
        return rank_and_world_size() if self._process is None else self._process

    def _rounds(self, rng: np.random.Generator, world_size: int) -> list[np.ndarray]:
        """The graphs of one batch of every process, batch after batch."""
        order = rng.permutation(self.num_graphs) if self.shuffle else np.arange(self.num_graphs)
        size = self.batch_size * world_size
        if self.drop_last:
            order = order[: len(order) // size * size]
        return _chunks(order, size)


class DepthBucketSampler(GraphBatchSampler):
    r"""Random batches of graphs of similar depth.

    Every epoch, the graphs are dealt at random into pools; each pool is sorted by depth and cut
    into batches, and the batches of all pools are shuffled. Processes get batches of similar depth
    at the same time, since they wait for each other after every step.

    A larger pool means fewer levels, and batches that are less random (see the table at the head
    of :mod:`dagnn.graph.sampler`). Graphs of similar depth are alike in other ways too. Where the
    depth *is* the label, as in predicting the longest path, use random batches.

    Args:
        depths: The number of levels of each graph, as :attr:`dagnn.FlatGraphs.depths`. ``[G]``
        batch_size: The number of graphs in a batch (of one process).
        pool: The number of batches (of all processes) in a pool.
        seed, drop_last, rank, world_size: As in :class:`GraphBatchSampler`.

    Example:
        >>> sampler = DepthBucketSampler([3, 90, 4, 91], batch_size=2)
        >>> sorted(sorted(batch) for batch in sampler)
        [[0, 2], [1, 3]]
    """

    def __init__(
        self,
        depths: Tensor | np.ndarray | Sequence[int],
        batch_size: int,
        *,
        pool: int = 50,
        seed: int = 0,
        drop_last: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        self.depths = np.array(depths.cpu().numpy() if isinstance(depths, Tensor) else depths)
        if self.depths.ndim != 1 or (self.depths.size and self.depths.dtype.kind not in "iuf"):
            raise ValueError(
                f"expected one depth per graph, got {self.depths.dtype} of shape "
                f"{list(self.depths.shape)}"
            )
        if pool < 1:
            raise ValueError(f"expected pool >= 1, got {pool}")
        super().__init__(
            len(self.depths),
            batch_size,
            seed=seed,
            drop_last=drop_last,
            rank=rank,
            world_size=world_size,
        )
        self.pool = pool

    def _rounds(self, rng: np.random.Generator, world_size: int) -> list[np.ndarray]:
        in_pool = max(1, self.pool // world_size)  # rounds
        rounds = super()._rounds(rng, world_size)
        if not rounds:
            return []
        in_pool = math.ceil(len(rounds) / math.ceil(len(rounds) / in_pool))  # pools of like size
        size = self.batch_size * world_size
        out = []
        for graphs in _chunks(np.concatenate(rounds), in_pool * size):
            # The order was random, and a stable sort keeps it so among graphs of the same depth.
            graphs = graphs[np.argsort(self.depths[graphs], kind="stable")]
            out += [rng.permutation(chunk) for chunk in _chunks(graphs, size)]
        return [out[i] for i in rng.permutation(len(out))]


def _chunks(order: np.ndarray, size: int) -> list[np.ndarray]:
    return [order[i : i + size] for i in range(0, len(order), size)]
