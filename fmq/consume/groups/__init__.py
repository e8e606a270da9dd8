"""Groups: their members, their filters and their dead letters."""
