"""What a message of 100 bytes takes on disk: the growth from 1 M to 5 M stored messages.

Indexes are in it, space made ahead of need is not. It is counted right after the stores were
closed; nothing here is timed.
"""

from __future__ import annotations

from functools import partial

from benchmarks.loop import Effort, Measured
from benchmarks.row import Goal, Row
from benchmarks.stock import Stock, noted

PEERS = ("sqlite3", "lmdb", "rocksdict", "redis")
MILLION = 1_000_000


def measure(subject: str, effort: Effort, *, small: Stock, large: Stock) -> Measured:
    count_small, bytes_small = noted(small.place(subject, effort))
    count_large, bytes_large = noted(large.place(subject, effort))
    return Measured((bytes_large - bytes_small) / (count_large - count_small))


def row(*, singly: bool, goal: float) -> Row:
    small, large = Stock(MILLION, singly=singly), Stock(5 * MILLION, singly=singly)
    return Row(
        name="disk-singly" if singly else "disk",
        title=f"disk per message, sent {'one by one' if singly else 'by 1,000'}",
        unit="B",
        work=partial(measure, small=small, large=large),
        subjects=("fmq", *(() if singly else PEERS)),
        goals=(Goal("figure", goal),),
        more_is_better=False,
        stock=(small, large),
        repeats=False,
    )


ROWS = (row(singly=False, goal=106), row(singly=True, goal=180))
