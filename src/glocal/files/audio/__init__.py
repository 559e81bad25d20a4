"""Audio files."""
