"""What an engine does beside its calls: indexes, spares, checkpoints, relocation, retention."""
