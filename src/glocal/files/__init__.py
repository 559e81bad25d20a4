"""Images and audio in and out, recipes, models."""
