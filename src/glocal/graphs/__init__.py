"""Builders of graphs: grid, patch, knn; weights; batches; interop."""
