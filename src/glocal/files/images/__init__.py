"""Image files."""
