"""The side of the engine: it serves clients in other processes."""
