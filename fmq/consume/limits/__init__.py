"""Limits of groups: so many messages at once or a second, of all keys or of each."""
