"""Values that everything knows: messages, what calls return, and the clock."""
