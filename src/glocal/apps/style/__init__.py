"""Style transfer (section 3): a photo takes the brush strokes and colours of a painting, and keeps its structure."""
