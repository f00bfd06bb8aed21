"""The command ``dagnn``. Commands import what they need when they run, so that help is quick."""

from dagnn.cli import (  # noqa: F401 - they add their commands
    bn_learn,
    data_bn,
    data_code,
    data_get,
    doctor,
    embed,
    evaluate,
    name,
    predict,
    report,
    reproduce,
    sample,
    score,
    search_na,
    train_autoencoder,
    train_code,
    train_predictor,
)
from dagnn.cli.app import app, main

__all__ = ["app", "main"]
