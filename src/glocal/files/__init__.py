"""Images and audio in and out, recipes, model weights."""
