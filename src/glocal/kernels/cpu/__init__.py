"""Kernels for the CPU, compiled by Numba: neighbour search, loops over signals, vector code."""
