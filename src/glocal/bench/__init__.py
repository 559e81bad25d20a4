"""Measures glocal and its peers in one run: graphs (`graph`), convolutions (`conv`) and the whole style transfer (`style`).

Ratios are what counts: both sides run interleaved, warm, on the same numbers, and medians are compared. Memory is the
peak of a fresh process. A peer that is not installed is listed as missing.
"""
