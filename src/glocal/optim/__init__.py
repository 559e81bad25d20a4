"""Optimisation: L-BFGS and its two histories, objectives, coarse to fine. It works on any device and knows no images."""
