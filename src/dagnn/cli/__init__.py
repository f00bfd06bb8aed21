"""The command ``dagnn``. Commands import what they need when they run, so that help is quick."""

from dagnn.cli import (  # noqa: F401 - add their commands  # noqa: F401  # noqa: F401  # noqa: F401
    data_bn,
    data_code,
    data_get,
    embed,
    evaluate,
    name,
    predict,
    sample,
    score,
    train_autoencoder,
    train_code,
    train_predictor,
)
from dagnn.cli.app import app, main

__all__ = ["app", "main"]
