"""Variational autoencoders of small DAGs."""
