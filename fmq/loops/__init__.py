"""What an event loop does for an engine: one write for a turn, one listener for a group."""
