"""Functions that build graphs: grid, patch, knn, window; edge weights; batches; interop."""
