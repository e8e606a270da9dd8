"""The public calls of engines and their handles, written once: awaited, and blocking."""
