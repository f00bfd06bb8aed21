"""Batches of a data set of flat tensors, one after the other."""

from __future__ import annotations

import copy
import queue
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, TypeVar

import torch
from torch_geometric.data import Batch

from dagnn.graph.checks import check_device
from dagnn.graph.flat import FlatGraphs
from dagnn.graph.sampler import GraphBatchSampler

__all__ = ["FlatLoader"]

Item = TypeVar("Item")
Made = TypeVar("Made")


class FlatLoader:
    r"""Batches of a :class:`dagnn.FlatGraphs`, ready for :class:`dagnn.DAGNN`.

    Every batch carries its :class:`dagnn.LevelSchedule` as ``batch.schedule``. On a CUDA device, a
    thread makes batches ahead, in pinned memory and on a stream of its own, while the model trains;
    the training loop itself never waits for the device on their account.

    The batches are a function of the seed and the epoch, which advances when all batches were
    taken; :meth:`set_epoch` sets it. :meth:`state_dict` says where in an epoch the loader is.

    Args:
        flat: The graphs. If their attributes are on a CUDA device, batches are made there; see
            :meth:`dagnn.FlatGraphs.to`.
        batch_size: The number of graphs in a batch (of one process; see
            :class:`dagnn.GraphBatchSampler`).
        batch_sampler: Lists of indices, instead of :obj:`batch_size`: a
            :class:`dagnn.DepthBucketSampler`, or any other.
        shuffle: Whether the order is random.
        drop_last: Whether to leave out graphs that fill no batch.
        seed: Of the order.
        device: Where batches shall be; by default where :obj:`flat` is.
        schedule: Whether batches carry their schedule.
        padded: Whether batches get a filler, for few different sizes; see
            :meth:`dagnn.FlatGraphs.batch`.
        prefetch: How many batches a thread makes ahead; 0 for no thread. By default 2 on a CUDA
            device and 0 on the CPU, where a thread would take the cores that the model uses.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> edge = torch.tensor([[0], [1]])
        >>> flat = FlatGraphs.from_data_list([Data(edge_index=edge, num_nodes=2)] * 5)
        >>> [batch.num_graphs for batch in FlatLoader(flat, batch_size=2)]
        [2, 2, 1]
    """

    def __init__(
        self,
        flat: FlatGraphs,
        batch_size: int | None = None,
        *,
        batch_sampler: Iterable[list[int]] | None = None,
        shuffle: bool = False,
        drop_last: bool = False,
        seed: int = 0,
        device: torch.device | str | None = None,
        schedule: bool = True,
        padded: bool = False,
        prefetch: int | None = None,
    ) -> None:
        if not isinstance(flat, FlatGraphs):
            raise TypeError(
                f"expected a FlatGraphs, got {type(flat).__name__}; make one with "
                "FlatGraphs.from_data_list(graphs)"
            )
        if (batch_size is None) == (batch_sampler is None):
            given = "neither" if batch_size is None else "both"
            raise ValueError(f"expected either batch_size or batch_sampler, got {given}")
        if batch_sampler is not None and (shuffle or drop_last or seed):
            raise ValueError(
                "expected shuffle, drop_last and seed as arguments of the batch_sampler, got them "
                "beside it"
            )
        if batch_sampler is None:
            batch_sampler = GraphBatchSampler(
                len(flat), batch_size or 0, shuffle=shuffle, drop_last=drop_last, seed=seed
            )
        self.flat = flat
        self.batch_sampler = batch_sampler
        self.device = flat.device if device is None else torch.device(device)
        check_device(self.device)
        self.schedule = schedule
        self.padded = padded
        if prefetch is None:
            prefetch = 2 if self.device.type == "cuda" else 0
        if prefetch < 0:
            raise ValueError(f"expected prefetch >= 0, got {prefetch}")
        self.prefetch = prefetch
        self.epoch = 0
        self._done = 0  # batches of this epoch that were taken
        self._skip = 0  # batches that the next iteration leaves out

    @property
    def sampler(self) -> FlatLoader:
        """Itself, where Lightning looks for ``set_epoch``."""
        return self

    def set_epoch(self, epoch: int) -> None:
        """The epoch of the next iteration."""
        if epoch < 0:
            raise ValueError(f"expected epoch >= 0, got {epoch}")
        if epoch != self.epoch:
            self._done = self._skip = 0
        self.epoch = epoch

    def state_dict(self) -> dict[str, int]:
        """Where the next batch is: its epoch and its number there."""
        if self._done and self._done == len(self):
            return {"epoch": self.epoch + 1, "batch": 0}
        return {"epoch": self.epoch, "batch": self._done}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Let the next iteration go on where :meth:`state_dict` was taken."""
        self.set_epoch(state["epoch"])
        self._done = self._skip = state["batch"]

    def graphs_of(self, epoch: int, batch: int) -> list[int]:
        """The indices of the graphs in a batch, by its epoch and its number there."""
        sampler = copy.copy(self.batch_sampler)
        if hasattr(sampler, "set_epoch"):
            sampler.set_epoch(epoch)
        return list(sampler)[batch]

    def __len__(self) -> int:
        return len(self.batch_sampler)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Batch]:
        if hasattr(self.batch_sampler, "set_epoch"):
            self.batch_sampler.set_epoch(self.epoch)
        chunks = list(self.batch_sampler)[self._skip :]
        epoch, self._done, self._skip = self.epoch, self._skip, 0
        for batch in self._batches(chunks):
            self._done += 1
            yield batch
        self.epoch, self._done = epoch + 1, 0

    def _batches(self, chunks: list[list[int]]) -> Iterator[Batch]:
        if not self.prefetch:
            return (self._make(chunk)[0] for chunk in chunks)
        if self.device.type == "cuda":
            return self._from_stream(chunks)
        return (batch for batch, _ in _ahead(self._make, chunks, self.prefetch))

    def _make(self, chunk: list[int]) -> tuple[Batch, list[torch.Tensor]]:
        return self.flat.batch_and_buffers(chunk, self.schedule, self.device, self.padded)

    def _from_stream(self, chunks: list[list[int]]) -> Iterator[Batch]:
        stream = torch.cuda.Stream(self.device)
        stream.wait_stream(torch.cuda.current_stream(self.device))  # the attributes are there

        def make(chunk: list[int]) -> tuple[Batch, list[torch.Tensor], torch.cuda.Event]:
            with torch.cuda.stream(stream):
                return *self._make(chunk), stream.record_event()

        made = _ahead(make, chunks, self.prefetch)
        try:
            for batch, buffers, ready in made:
                current = torch.cuda.current_stream(self.device)
                current.wait_event(ready)
                for buffer in buffers:
                    buffer.record_stream(current)  # not reused before this stream is done with it
                yield batch
        finally:
            made.close()  # with its thread
            # Batches that nobody took may still be in the making. What they are made of must not
            # be freed and written to before: numbers that are stored say where is written.
            torch.cuda.current_stream(self.device).wait_stream(stream)

    def __repr__(self) -> str:
        return (
            f"FlatLoader({self.flat}, {len(self)} batches, device={self.device}, "
            f"schedule={self.schedule}, prefetch={self.prefetch})"
        )


def _ahead(
    make: Callable[[Item], Made], items: list[Item], depth: int
) -> Generator[Made, None, None]:
    """What :obj:`make` makes of the items, in order, made by a thread up to :obj:`depth` ahead."""
    made: queue.Queue[tuple[Any, BaseException | None]] = queue.Queue(depth)
    stopped = threading.Event()

    def put(result: tuple[Any, BaseException | None]) -> None:
        while not stopped.is_set():
            try:
                return made.put(result, timeout=0.1)
            except queue.Full:
                continue

    def work() -> None:
        for item in items:
            if stopped.is_set():
                return
            try:
                put((make(item), None))
            except BaseException as error:  # raised where the batch is asked for
                return put((None, error))

    thread = threading.Thread(target=work, name="FlatLoader", daemon=True)
    thread.start()
    try:
        for _ in items:
            result, error = made.get()
            if error is not None:
                raise error
            yield result
    finally:
        stopped.set()
        thread.join()
