"""A record as bytes: its kinds, its fields, and the messages in it. It knows no file."""
