"""Training: the loop that every network of glocal shares."""
