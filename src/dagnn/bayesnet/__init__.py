"""Bayesian networks learned from tables, without neural networks."""
