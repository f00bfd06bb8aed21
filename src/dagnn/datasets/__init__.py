"""Data sets; knows graphs and no neural network."""
