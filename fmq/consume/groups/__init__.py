"""Groups: who is in them, what their filters let through, and their dead letters."""
