"""From a directory to a running engine: checkpoint, replay, the tail, and the check."""
