"""Colour transfer: the palette of one photo on another."""
