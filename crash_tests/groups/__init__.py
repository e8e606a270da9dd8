"""Groups and topics are made, moved, filtered and deleted, and the power fails at each step."""
