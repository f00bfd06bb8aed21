"""Directed acyclic graph neural networks."""

from dagnn.graph.levels import (
    CycleError,
    longest_path_length,
    sources,
    targets,
    topological_levels,
)
from dagnn.graph.schedule import LevelSchedule
from dagnn.graph.transforms import AddLevels
from dagnn.nn.dagnn import DAGNN

__all__ = [
    "DAGNN",
    "AddLevels",
    "CycleError",
    "LevelSchedule",
    "longest_path_length",
    "sources",
    "targets",
    "topological_levels",
]
