"""Training and its results: the loop that every network shares, scores with their errors, the Haar baseline."""
