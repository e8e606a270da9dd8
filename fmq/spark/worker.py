"""Prepares a Spark process that reads, before its first task."""

from __future__ import annotations

import gc
from functools import cache


@cache
def spare_collections() -> None:
    """Move imported objects out of the garbage collector's sight.

    Spark has each process collect all garbage after each task, which looks at every object of
    PySpark, pandas and Arrow: half of the time that a task takes to read a segment.
    """
    gc.freeze()
