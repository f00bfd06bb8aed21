"""Directed acyclic graph neural networks."""

from dagnn.graph.flat import FlatGraphs
from dagnn.graph.levels import (
    CycleError,
    longest_path_length,
    sources,
    targets,
    topological_levels,
)
from dagnn.graph.loader import FlatLoader
from dagnn.graph.sampler import DepthBucketSampler, GraphBatchSampler
from dagnn.graph.schedule import LevelSchedule
from dagnn.graph.transforms import AddLevels
from dagnn.nn.dagnn import DAGNN, NodeStates
from dagnn.nn.family import DVAEEncoder, RecursiveNetwork, dag_rnn, tree_lstm
from dagnn.nn.levelwise import LevelwiseConv, MaxPlusConv

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
    "longest_path_length",
    "sources",
    "targets",
    "topological_levels",
    "tree_lstm",
]
