"""What all commands share: flags, files, batches, progress, failures."""
