"""Groups, topics, schedules and options: how they are changed, and looked at."""
