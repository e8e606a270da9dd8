"""What a row of the table is: a piece of work, who does it, and what would be good enough.

The rows themselves stand in the files of their families; `table.py` lists these.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from benchmarks.loop import Effort, Measured
from benchmarks.stock import Stock

DURABLE_PEERS = ("sqlite3", "sqlite3-group", "lmdb", "rocksdict", "redis", "postgresql")


@dataclass(frozen=True, slots=True)
class Goal:
    """The figure that the first subject must reach.

    `limit` is a factor of the best peer, of the raw loop or of another row, or a plain figure
    in the row's unit. Whether more or less is better, the row knows.
    """

    against: Literal["best peer", "raw", "row", "figure"]
    limit: float
    row: str = ""


Work = Callable[[str, Effort], Measured]


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table; its first subject is fmq in some guise, the rest are its peers."""

    name: str
    title: str
    unit: str
    work: Work
    subjects: tuple[str, ...]
    goals: tuple[Goal, ...]
    more_is_better: bool = True
    outside: tuple[str, ...] = ()
    """Subjects that are shown and not competed with; the family's file says why."""
    stock: tuple[Stock, ...] = ()
    """Stores that must lie ready before the row can be measured."""
    syncs_min: int = 0
    """How many syncs an operation must have paid for; 0: the row is not about that."""
    repeats: bool = True
    """False where a second round would find the very same figure."""
