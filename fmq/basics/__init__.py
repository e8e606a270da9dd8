"""Values that all rooms know: messages, results of calls, and the clock."""
