"""Real file systems whose power is cut, and real processes that are killed."""
