"""Facts that the journal has as texts: pauses, limits, schedules."""
