"""Measurements of the kernels of CPUs and GPUs."""
