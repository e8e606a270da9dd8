"""Engines: how a directory becomes one, and the doors that carry out their calls."""
