"""The engine's side: it serves clients in other processes."""
