"""Kernels of Triton that need no neural network, and what all kernels are called with; nothing here
is imported where there is no Triton."""
