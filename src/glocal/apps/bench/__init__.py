"""Side-by-side runs against peers."""
