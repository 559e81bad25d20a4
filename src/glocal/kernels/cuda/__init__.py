"""Kernels for NVIDIA GPUs, written in Triton."""
