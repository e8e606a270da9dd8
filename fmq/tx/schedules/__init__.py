"""Schedules: when they are due, and what publishes them."""
