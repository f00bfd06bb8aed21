"""Directed acyclic graph neural networks."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dagnn.graph.flat import FlatGraphs
    from dagnn.graph.levels import (
        CycleError,
        longest_path_length,
        sources,
        targets,
        topological_levels,
    )
    from dagnn.graph.loader import FlatLoader
    from dagnn.graph.padding import without_filler
    from dagnn.graph.sampler import DepthBucketSampler, GraphBatchSampler
    from dagnn.graph.schedule import LevelSchedule
    from dagnn.graph.transforms import AddLevels
    from dagnn.nn.dagnn import DAGNN, NodeStates
    from dagnn.nn.family import DVAEEncoder, RecursiveNetwork, dag_rnn, tree_lstm
    from dagnn.nn.levelwise import LevelwiseConv, MaxPlusConv
    from dagnn.search.learn_network import learn_network
    from dagnn.tasks.naming import predict_names

__version__ = "0.1.0"

__all__ = [
    "DAGNN",
    "AddLevels",
    "CycleError",
    "DVAEEncoder",
    "DepthBucketSampler",
    "FlatGraphs",
    "FlatLoader",
    "GraphBatchSampler",
    "LevelSchedule",
    "LevelwiseConv",
    "MaxPlusConv",
    "NodeStates",
    "RecursiveNetwork",
    "dag_rnn",
    "learn_network",
    "longest_path_length",
    "predict_names",
    "sources",
    "targets",
    "topological_levels",
    "tree_lstm",
    "without_filler",
]

# Imported at first use: `dagnn --help` should not wait for torch.
_MODULES = {
    "graph.flat": ("FlatGraphs",),
    "graph.levels": (
        "CycleError",
        "longest_path_length",
        "sources",
        "targets",
        "topological_levels",
    ),
    "graph.loader": ("FlatLoader",),
    "graph.padding": ("without_filler",),
    "graph.sampler": ("DepthBucketSampler", "GraphBatchSampler"),
    "graph.schedule": ("LevelSchedule",),
    "graph.transforms": ("AddLevels",),
    "nn.dagnn": ("DAGNN", "NodeStates"),
    "nn.family": ("DVAEEncoder", "RecursiveNetwork", "dag_rnn", "tree_lstm"),
    "nn.levelwise": ("LevelwiseConv", "MaxPlusConv"),
    "search.learn_network": ("learn_network",),
    "tasks.naming": ("predict_names",),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'dagnn' has no attribute {name!r}")
    value = getattr(import_module(f"dagnn.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
