"""Schedules are made, changed, paused and published, and the power fails at each step."""
