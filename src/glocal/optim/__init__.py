"""Optimisation: L-BFGS, its history on a GPU, objectives, coarse to fine."""
