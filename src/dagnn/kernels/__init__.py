"""What all kernels of Triton are called with; nothing here is imported where there is no Triton."""
