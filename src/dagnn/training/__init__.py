"""The fitting loop: training that can be killed, resumed, watched and reported."""

from dagnn.training.bookkeeper import seed_of_step
from dagnn.training.checkpoints import find_checkpoint, load_weights, read_checkpoint
from dagnn.training.fit import FitResult, Plateau, fit
from dagnn.training.guard import NonFiniteLossError
from dagnn.training.record import median_time, origins_of, run_record, write_json
from dagnn.training.standing import Standing, standing
from dagnn.training.training_step import TrainingStep

__all__ = [
    "FitResult",
    "NonFiniteLossError",
    "Plateau",
    "Standing",
    "TrainingStep",
    "find_checkpoint",
    "fit",
    "load_weights",
    "median_time",
    "origins_of",
    "read_checkpoint",
    "run_record",
    "seed_of_step",
    "standing",
    "write_json",
]
