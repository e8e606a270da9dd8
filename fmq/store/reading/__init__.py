"""Reading messages back, from the index."""
