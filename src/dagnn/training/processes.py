"""The processes that train one model together, and what they agree on.

Data-parallel training: every process has the whole model and a part of each batch. One is the
first; it alone writes files.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch
from lightning.fabric import Fabric
from lightning.fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from torch import Tensor, distributed

from dagnn.graph.sampler import rank_and_world_size
from dagnn.training.progress import quiet

__all__ = ["add_up", "from_first", "gathered", "is_first", "join", "leave", "number"]

LAUNCHER = "DAGNN_LAUNCHER"  # the process that has started the others of its machine
PATIENCE = 20  # seconds that a started process which fails gives the first one to end

Value = TypeVar("Value")


def number() -> int:
    """How many processes there are."""
    return rank_and_world_size()[1]


def is_first() -> bool:
    """Whether this process writes files."""
    return rank_and_world_size()[0] == 0


def join(accelerator: str, devices: int, num_nodes: int) -> None:
    """Be one of several processes from here on; if one is enough, or they have met, do nothing.

    Started by torchrun or by Slurm's srun, or with ``LOCAL_RANK`` and ``NODE_RANK`` set, processes
    meet. Started by hand, a program is started again, with the same arguments, for each further
    device of its machine. So nothing should be done before this that ought to be done once.

    Args:
        accelerator: ``"cpu"`` or ``"cuda"``.
        devices: Processes on each machine; on GPUs, each has one.
        num_nodes: Machines.

    Raises:
        ValueError: If the processes that were started are not as many.
    """
    if devices < 1 or num_nodes < 1:
        raise ValueError(f"expected devices and num_nodes >= 1, got {devices} and {num_nodes}")
    expected = devices * num_nodes
    started = number()
    if started == 1 and TorchElasticEnvironment.detect():
        started = TorchElasticEnvironment().world_size()
    if expected == started == 1 or (expected == number() and distributed.is_initialized()):
        return
    if started not in (1, expected):
        raise ValueError(
            f"expected {started} processes, as were started, got devices={devices} and "
            f"num_nodes={num_nodes}"
        )
    if accelerator == "cuda" and devices > torch.cuda.device_count():
        raise ValueError(
            f"expected at most {torch.cuda.device_count()} devices, as there are GPUs here, got "
            f"{devices}"
        )
    if "LOCAL_RANK" not in os.environ:  # nobody else has started it
        os.environ[LAUNCHER] = str(os.getpid())
    with quiet():
        Fabric(
            accelerator=accelerator, devices=devices, num_nodes=num_nodes, strategy="ddp"
        ).launch()
    if os.environ.get(LAUNCHER) == str(os.getppid()):
        _end_with(os.getppid())
        _let_it_speak_first()


def leave() -> None:
    """At the end of a program: if there are several processes, wait for all, and end this one.

    Without taking the process group down: that can wait for ever for a process that was faster.
    """
    if number() > 1:
        distributed.barrier()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def from_first(make: Callable[[], Value]) -> Value:
    """What the first process makes, in all of them; what it raises, likewise."""
    if number() == 1:
        return make()
    made: list[Any] = [None, None]
    if is_first():
        try:
            made[0] = make()
        except Exception as error:  # of any kind: the others wait for it
            made[1] = error
    distributed.broadcast_object_list(made)
    if made[1] is not None:
        raise made[1]
    return cast(Value, made[0])


def gathered(value: Value) -> list[Value]:
    """The value of each process."""
    values: list[Any] = [value] * number()
    if len(values) > 1:
        distributed.all_gather_object(values, value)
    return values


def add_up(values: Tensor) -> Tensor:
    """The sum over all processes, in place."""
    if number() > 1:
        distributed.all_reduce(values)
    return values


def _end_with(parent: int) -> None:
    """End this process when its parent has ended, whom it might wait for without end."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, name="end-with-parent", daemon=True).start()


def _let_it_speak_first() -> None:
    """Before this process tells of an error, wait for the one that has started it: if that ends
    meanwhile, it has told why, this error is but the lost connection, and this process ends too."""
    tell = sys.excepthook

    def wait_and_tell(*error: Any) -> None:
        time.sleep(PATIENCE)
        tell(*error)

    sys.excepthook = wait_and_tell
