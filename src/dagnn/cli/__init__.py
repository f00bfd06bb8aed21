"""The command ``dagnn``. Commands import what they need when they run, so that help is quick."""

from dagnn.cli.app import app, main

__all__ = ["app", "main"]
