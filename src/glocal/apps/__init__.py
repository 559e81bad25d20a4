"""The four jobs. Each module is one; they do not import one another."""
