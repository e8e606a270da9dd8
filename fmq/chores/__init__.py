"""The chores that an engine runs beside its calls: indexes, spares, checkpoints, relocation,
retention.
"""
