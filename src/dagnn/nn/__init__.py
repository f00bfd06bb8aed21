"""Modules; thin over the operations in :mod:`dagnn.ops`."""
