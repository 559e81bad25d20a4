"""Colour transfer: apply the palette of one photo to another."""
